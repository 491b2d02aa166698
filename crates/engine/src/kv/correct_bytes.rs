//! Corrects single wrong bytes of a record file, at most one in each block.
//!
//! A block counts as corrected if one change of one byte makes it match its checksum. So the result proves itself like
//! a file that was never damaged. A file with more damage stays as it is.

use super::table_file::{
    self, FOOTER_BYTES, MARK_AT, METAINDEX_LEN_AT, TRAILER_BYTES, block_len, is_sound_footer, mended_block, place_part,
    second_block, word,
};
use xxhash_rust::xxh3::xxh3_64;

/// In longer filters and indexes no byte is searched for: among that many changes a wrong one matches the checksum too
/// often.
const OTHER_BYTES_MAX: usize = 16 << 10;

/// The file with at most one byte of each block changed. None: more is wrong, or a corrected filter or index could not
/// be told from another one with the same checksum. Filters and indexes have no form of their own, so they are
/// corrected only if `is_compared` says that the whole file is compared with its own checksum.
pub fn mended(bytes: &[u8], is_compared: bool) -> Option<Vec<u8>> {
    let mut file = bytes.to_vec();
    let footer_at = file.len().checked_sub(FOOTER_BYTES)?;
    mend_footer(&mut file, footer_at)?;
    let mark = word(&file, footer_at + MARK_AT)?;
    let end = footer_at.checked_sub(TRAILER_BYTES)?;
    let metaindex_at = end.checked_sub(word(&file, footer_at + METAINDEX_LEN_AT)? as usize)?;
    mend_block(&mut file, metaindex_at, footer_at, mark, |content| table_file::other_blocks(content).is_some())?;
    let others = table_file::other_blocks(&file[metaindex_at..end])?;
    for (at, len) in &others {
        let behind = at.checked_add(*len)?.checked_add(TRAILER_BYTES).filter(|behind| *behind <= metaindex_at)?;
        let may_mend = is_compared && behind - at <= OTHER_BYTES_MAX;
        if !may_mend && !is_sound(&file[*at..behind], *at, mark) {
            return None;
        }
        mend_block(&mut file, *at, behind, mark, |_| true)?;
    }
    let data_end = others.iter().map(|(at, _)| *at).min().unwrap_or(metaindex_at);
    mend_data(&mut file, data_end, mark)?;
    Some(file)
}

fn mend_footer(file: &mut [u8], at: usize) -> Option<()> {
    let footer = &mut file[at..];
    if is_sound_footer(footer, at) {
        return Some(());
    }
    for byte in 0..footer.len() {
        let found = footer[byte];
        for value in 0..=u8::MAX {
            footer[byte] = value;
            if is_sound_footer(footer, at) {
                return Some(());
            }
        }
        footer[byte] = found;
    }
    None
}

/// Corrects the block that lies with its trailer from `at` to `behind`.
fn mend_block(file: &mut [u8], at: usize, behind: usize, mark: u32, is_block: impl Fn(&[u8]) -> bool) -> Option<()> {
    let block = &mut file[at..behind];
    if !is_sound(block, at, mark) {
        block.copy_from_slice(&mended_block(block, at, mark, is_block)?);
    }
    Some(())
}

/// Whether a block with its trailer matches its checksum.
fn is_sound(block: &[u8], place: usize, mark: u32) -> bool {
    let Some((content, trailer)) = block.split_last_chunk::<TRAILER_BYTES>() else { return false };
    let expected = (xxh3_64(content) as u32).wrapping_add(place_part(mark, place));
    trailer[0] == 0 && word(trailer, 1) == Some(expected)
}

fn mend_data(file: &mut [u8], data_end: usize, mark: u32) -> Option<()> {
    /// Where the sound block that begins here ends.
    fn sound_end(data: &[u8], at: usize, mark: u32) -> Option<usize> {
        let behind = at + block_len(&data[at..])? + TRAILER_BYTES;
        is_sound(data.get(at..behind)?, at, mark).then_some(behind)
    }
    let mut at = 0;
    while at < data_end {
        let data = &file[..data_end];
        if let Some(behind) = sound_end(data, at, mark) {
            at = behind;
            continue;
        }
        let behind = (at + 1..data_end).find(|next| sound_end(data, *next, mark).is_some()).unwrap_or(data_end);
        mend_run(file, at, behind, mark)?;
        at = behind;
    }
    Some(())
}

/// Corrects one damaged block of data, or several in a row.
fn mend_run(file: &mut [u8], at: usize, behind: usize, mark: u32) -> Option<()> {
    if let Some(second) = second_block(&file[at..behind]).map(|second| at + second)
        && mend_run(file, at, second, mark).is_some()
        && mend_run(file, second, behind, mark).is_some()
    {
        return Some(());
    }
    mend_block(file, at, behind, mark, |content| block_len(content) == Some(content.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Copies;
    use crate::kv::copies::Place;
    use crate::kv::table_file::tests::file;
    use crate::kv::{Kv, RocksKv};

    /// The index is short, so that its byte is found soon.
    #[test]
    fn single_wrong_bytes_in_some_blocks_are_put_right() {
        let whole = file().unwrap();
        let end = whole.len();
        assert!(mended(&whole, true).as_ref() == Some(&whole));
        for places in [vec![end - 1], vec![end - 30], vec![end - 60], vec![end - 100, end - 50], vec![end - 20]] {
            let mut wrong = whole.clone();
            places.iter().for_each(|at| wrong[*at] ^= 0x5A);
            assert!(mended(&wrong, true).as_ref() == Some(&whole), "bytes {places:?} of {end}");
        }
    }

    #[test]
    fn a_filter_or_index_of_a_file_with_no_checksum_of_its_own_stays_as_it_is() {
        let whole = file().unwrap();
        let footer_at = whole.len() - FOOTER_BYTES;
        let end = footer_at - TRAILER_BYTES;
        let metaindex_at = end - word(&whole, footer_at + METAINDEX_LEN_AT).unwrap() as usize;
        for (at, _) in table_file::other_blocks(&whole[metaindex_at..end]).unwrap() {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            assert_eq!(mended(&wrong, false), None, "the block at {at}");
        }
        assert!(mended(&whole, false).as_ref() == Some(&whole));
    }

    /// A store's file, and where its second, third and fourth block begin.
    fn blocks_of(records: impl Iterator<Item = (u64, usize)>) -> (Vec<u8>, [usize; 3]) {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), [1; 16]);
        RocksKv::create(&place.records).unwrap();
        let kv = RocksKv::open(place.clone(), Copies::One, 8 << 20, false).unwrap();
        let put = |(n, len): (u64, usize)| ([&b"i"[..], &n.to_be_bytes()].concat(), Some(vec![7; len]));
        kv.write(records.map(put).collect()).unwrap();
        kv.flush().unwrap();
        let (_, path) = crate::kv::tables_in(&place.records).pop().unwrap();
        let whole = std::fs::read(path).unwrap();
        let next = |at: usize| at + block_len(&whole[at..]).unwrap() + TRAILER_BYTES;
        let starts = [next(0), next(next(0)), next(next(next(0)))];
        (whole, starts)
    }

    fn assert_costs_nothing(whole: &[u8], places: &[usize]) {
        let mut wrong = whole.to_vec();
        places.iter().for_each(|at| wrong[*at] ^= 0x40);
        assert!(table_file::read(&wrong) == table_file::read(whole), "salvage, bytes {places:?}");
        assert!(mended(&wrong, false).as_deref() == Some(whole), "in use, bytes {places:?}");
    }

    /// Records of one size, as inodes are: their full keys lie at the same places in each block. The wrong bytes are
    /// those of checksums, or lengths at the beginning of a block, which leave it no form. They are found soon.
    #[test]
    fn a_wrong_byte_in_each_of_two_blocks_in_a_row_costs_nothing() {
        let (whole, [first, second, third]) = blocks_of((0..600).map(|n| (n, 100)));
        for places in [[second - 1, third - 1], [first + 1, third - 1], [second - 1, second + 1]] {
            assert_costs_nothing(&whole, &places);
        }
        let (whole, [first, second, third]) = blocks_of((0..600).map(|n| (n, 50 + n as usize * 7 % 101)));
        assert_costs_nothing(&whole, &[second - 1, third - 1]);
        assert_costs_nothing(&whole, &[first + 1, second + 1]);
        assert_costs_nothing(&whole, &[1, second - 1, third - 1]);
    }

    #[test]
    fn two_wrong_bytes_of_a_footer_and_other_files_are_left_alone() {
        let mut wrong = file().unwrap();
        let end = wrong.len();
        (wrong[end - 20], wrong[end - 21]) = (1, 1);
        assert_eq!(mended(&wrong, true), None);
        assert_eq!(mended(&[], true), None);
        assert_eq!(mended(&[1; 5_000], true), None);
    }
}
