//! The four columns to which others convert content traces: one block of 4096 bytes per line. Theirs are writes only; a
//! block that is read has `-` for its MD5.

use std::time::Duration;

use super::columns::{NO_CONTENTS, Parsed, columns, md5, number};
use super::request::{Content, Place};

/// Reads a line; its one content goes to `contents`, which is emptied first.
pub(super) fn parse(line: &str, contents: &mut Vec<Content>) -> Result<Parsed, String> {
    let [time, file, lbn, digest] = columns::<4>(line)?;
    contents.clear();
    let read_blocks = (digest == NO_CONTENTS).then_some(1);
    if read_blocks.is_none() {
        contents.push(Content(md5(digest)?));
    }
    let time = Duration::from_nanos(number(time, "the time")?);
    let place = Place { file: number(file, "the file")?, lbn: number(lbn, "the block number")? };
    Ok(Parsed { time, place, read_blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn a_line_is_one_written_block() {
        let mut contents = vec![Content::ZERO; 3];
        let parsed = parse(&format!("77 5 12 {MD5}"), &mut contents).unwrap();
        let place = Place { file: 5, lbn: 12 };
        assert_eq!(parsed, Parsed { time: Duration::from_nanos(77), place, read_blocks: None });
        assert_eq!(contents, [Content(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff)]);
    }

    #[test]
    fn a_block_without_md5_is_read() {
        let mut contents = vec![Content::ZERO];
        assert_eq!(parse("77 5 12 -", &mut contents).unwrap().read_blocks, Some(1));
        assert!(contents.is_empty());
    }

    #[test]
    fn damaged_lines_are_refused_with_what_is_wrong() {
        let cases = [
            ("77 5 12", "3 columns where 4"),
            (&format!("77 5 12 {MD5} 1"), "5 columns where 4"),
            ("77 5 12 0123", "'0123' is not an MD5"),
            (&format!("77 five 12 {MD5}"), "the file is 'five'"),
            (&format!("77 5 1.5 {MD5}"), "the block number is '1.5'"),
        ];
        for (line, expected) in cases {
            let message = parse(line, &mut Vec::new()).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
