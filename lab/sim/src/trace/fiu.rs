//! The nine columns of FIU's IODedup traces (SNIA IOTTA set 391).
//!
//! An address counts sectors of 512 bytes; blocks are cut from it at multiples of 4096, so a request that is not
//! aligned is moved down to the block it begins in. The last column has an MD5 per 4096 bytes or, as in the `homes`
//! trace, one per 512 bytes; eight of these together are the identity of their block.

use std::time::Duration;

use super::columns::{MD5_DIGITS, NO_CONTENTS, Parsed, columns, md5, number};
use super::request::{Content, Place};
use oncefs_toolbox::random::mix;

const SECTORS_PER_BLOCK: u64 = 8;
/// Sectors that one request may have, 16 MiB: more is taken for a damaged line.
const SECTORS_MAX: u64 = 32_768;
/// MD5 of 512 zero bytes.
const ZERO_SECTOR: u128 = 0xbf61_9eac_0cdf_3f68_d496_ea93_4413_7e8b;

/// Reads a line; the contents of the blocks go to `contents`, which is emptied first.
pub(super) fn parse(line: &str, contents: &mut Vec<Content>) -> Result<Parsed, String> {
    let [time, pid, _process, lba, sectors, direction, major, minor, digests] = columns::<9>(line)?;
    number(pid, "the process id")?;
    let sectors = number(sectors, "the size in sectors")?;
    if sectors == 0 || sectors > SECTORS_MAX {
        return Err(format!("a size of {sectors} sectors: expected 1 to {SECTORS_MAX}"));
    }
    let blocks = sectors.div_ceil(SECTORS_PER_BLOCK);
    let read_blocks = match direction {
        "W" => None,
        "R" => Some(blocks),
        other => return Err(format!("the direction is '{other}': expected W or R")),
    };
    let device = number(major, "the major number")? << 32 | number(minor, "the minor number")?;
    if read_blocks.is_none() || digests != NO_CONTENTS {
        read_contents(digests, sectors, contents)?;
    }
    let lbn = number(lba, "the address")? / SECTORS_PER_BLOCK;
    let time = Duration::from_nanos(number(time, "the time")?);
    Ok(Parsed { time, place: Place { file: device, lbn }, read_blocks })
}

fn read_contents(digests: &str, sectors: u64, contents: &mut Vec<Content>) -> Result<(), String> {
    contents.clear();
    let blocks = sectors.div_ceil(SECTORS_PER_BLOCK) as usize;
    let per_block = if digests.len() == blocks * MD5_DIGITS {
        1
    } else if digests.len() == sectors as usize * MD5_DIGITS {
        SECTORS_PER_BLOCK as usize
    } else {
        let (expected, finer) = (blocks * MD5_DIGITS, sectors as usize * MD5_DIGITS);
        let found = digests.len();
        return Err(format!("{found} digits of MD5 for {sectors} sectors: expected {expected} or {finer}"));
    };
    for block in digests.as_bytes().chunks(per_block * MD5_DIGITS) {
        contents.push(content_of(block)?);
    }
    Ok(())
}

/// The identity of a block from one MD5, or from those of its sectors.
fn content_of(digests: &[u8]) -> Result<Content, String> {
    let text = std::str::from_utf8(digests).map_err(|_| "the MD5 is not ASCII".to_owned())?;
    if digests.len() == MD5_DIGITS {
        return md5(text).map(Content);
    }
    let mut all_zero = true;
    let (mut high, mut low) = (0u64, 0u64);
    for start in (0..text.len()).step_by(MD5_DIGITS) {
        let sector = md5(&text[start..start + MD5_DIGITS])?;
        all_zero &= sector == ZERO_SECTOR;
        high = mix(high.rotate_left(1) ^ (sector >> 64) as u64);
        low = mix(low.rotate_left(1) ^ sector as u64);
    }
    Ok(if all_zero { Content::ZERO } else { Content(u128::from(high) << 64 | u128::from(low)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "00112233445566778899aabbccddeeff";

    fn parsed(line: &str) -> Result<(Parsed, Vec<Content>), String> {
        let mut contents = Vec::new();
        parse(line, &mut contents).map(|parsed| (parsed, contents))
    }

    #[test]
    fn a_line_with_an_md5_per_block_is_read() {
        let line = format!("2345 17 kjournald 808 16 W 6 1 {MD5}{MD5}");
        let (request, contents) = parsed(&line).unwrap();
        let place = Place { file: 6 << 32 | 1, lbn: 101 };
        assert_eq!(request, Parsed { time: Duration::from_nanos(2345), place, read_blocks: None });
        assert_eq!(contents, [Content(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff); 2]);
    }

    #[test]
    fn a_read_is_told_from_a_write() {
        for digests in [&MD5.repeat(2), "-"] {
            assert_eq!(parsed(&format!("1 2 p 8 12 R 0 0 {digests}")).unwrap().0.read_blocks, Some(2));
        }
    }

    #[test]
    fn eight_md5s_of_sectors_make_one_content_that_depends_on_each() {
        let mut sectors = vec![MD5; 8];
        let content = |sectors: &[&str]| parsed(&format!("1 2 p 8 8 W 0 0 {}", sectors.concat())).unwrap().1;
        let one = content(&sectors);
        assert_eq!(one.len(), 1);
        assert_eq!(one, content(&sectors));
        let other = MD5.replace("ff", "fe");
        for at in 0..8 {
            sectors[at] = &other;
            assert_ne!(one, content(&sectors), "sector {at}");
            sectors[at] = MD5;
        }
    }

    #[test]
    fn zeros_are_known_in_both_grains() {
        let sector = "bf619eac0cdf3f68d496ea9344137e8b".repeat(8);
        let block = "620f0b67a91f7f74151bc5be745b7110";
        for digests in [sector.as_str(), block] {
            assert_eq!(parsed(&format!("1 2 p 8 8 W 0 0 {digests}")).unwrap().1, [Content::ZERO]);
        }
    }

    #[test]
    fn damaged_lines_are_refused_with_what_is_wrong() {
        let cases = [
            ("", "0 columns where 9 are expected"),
            ("1 2 p 8 8 W 0 0", "8 columns where 9"),
            (&format!("1 2 p 8 8 W 0 0 {MD5} more"), "10 columns where 9"),
            (&format!("x 2 p 8 8 W 0 0 {MD5}"), "the time is 'x'"),
            (&format!("1 2 p -8 8 W 0 0 {MD5}"), "the address is '-8'"),
            (&format!("1 2 p 8 0 W 0 0 {MD5}"), "a size of 0 sectors"),
            (&format!("1 2 p 8 99999999 W 0 0 {MD5}"), "a size of 99999999 sectors"),
            (&format!("1 2 p 8 8 X 0 0 {MD5}"), "the direction is 'X'"),
            ("1 2 p 8 8 W 0 0 -", "1 digits of MD5"),
            (&format!("1 2 p 8 16 W 0 0 {MD5}"), "32 digits of MD5 for 16 sectors"),
            (&format!("1 2 p 8 8 W 0 0 +{}", &MD5[1..]), "is not an MD5"),
        ];
        for (line, expected) in cases {
            let message = parsed(line).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
