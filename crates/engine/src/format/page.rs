//! The block table: an array of 31-byte entries by pbn, 16 to a 512-byte sector, 8 sectors to a page.
//!
//! A sector has its checksum and the sequence of the last group applied to it. A crash while a page is written leaves
//! sectors that are each old or new, and redo knows which.
//! A sector of zeros was never written: it holds 16 free entries.
//!
//! A page of fragments has 12 entries of 40 bytes to a sector: such an entry, followed by the fragment's place.

use super::fragment::{self, FragmentPlace, PAGE_FRAGMENTS, PLACE_BYTES, is_fragment};
use super::{at, checksum};
use crate::{Blocks, Fingerprint, Pbn, Tag};

/// Size of a page, the unit of caching and of writing.
pub const PAGE_BYTES: usize = 4096;
/// Size of a sector, the unit of checksums.
pub const SECTOR_BYTES: usize = 512;
/// Entries in a page.
pub const PAGE_ENTRIES: u64 = 128;
/// The largest refcount; a share beyond it is refused and the block is stored again.
pub const COUNT_MAX: u32 = u32::MAX;

/// Flag: the content is known to be damaged. A record has a reference, so that the block is not reused.
pub const BAD: u8 = 1;
/// Flag: the block has a replica, named by a record.
pub const COPIED: u8 = 2;
/// Flag: the block is a replica, and a record has its reference.
pub const REPLICA: u8 = 4;
/// Flag: the block holds fragments. Its count is how many have a byte in it; that of the last block of a pack is how
/// many fragments the pack has, and its tag is their length together.
pub const PACK: u8 = 8;
/// Flag: the content does not shrink when it is compressed.
pub const INCOMPRESSIBLE: u8 = 16;
/// The flags that this version sets. A page read from disk may have others.
pub const FLAGS_KNOWN: u8 = BAD | COPIED | REPLICA | PACK | INCOMPRESSIBLE;

const SECTOR_ENTRIES: usize = 16;
const SECTORS: u64 = (PAGE_BYTES / SECTOR_BYTES) as u64;
const CHECKSUM_AT: usize = 0;
const SEQUENCE_AT: usize = 8;
const ENTRIES_AT: usize = 16;
const ENTRY_BYTES: usize = 31;
const TAG_AT: usize = 0;
const FINGERPRINT_AT: usize = 8;
const COUNT_AT: usize = 24;
const FLAGS_AT: usize = 28;
const SECTOR_FRAGMENTS: usize = 12;
const FRAGMENT_ENTRY_BYTES: usize = 40;
const PLACE_AT: usize = 31;
const SEED: u64 = 0x7461_626C;
const _: () = assert!(ENTRIES_AT + SECTOR_FRAGMENTS * FRAGMENT_ENTRY_BYTES <= SECTOR_BYTES);
const _: () = assert!(fragment::PAGE_NUMBERS == PAGE_ENTRIES);
const _: () = assert!(SECTOR_FRAGMENTS as u64 * SECTORS == PAGE_FRAGMENTS && ENTRY_BYTES <= PLACE_AT);
const _: () = assert!(PLACE_AT + PLACE_BYTES == FRAGMENT_ENTRY_BYTES);
const _: () = assert!(ENTRIES_AT + SECTOR_ENTRIES * ENTRY_BYTES == SECTOR_BYTES);
const _: () = assert!(PAGE_BYTES / SECTOR_BYTES * SECTOR_ENTRIES == PAGE_ENTRIES as usize);

/// The table's entry of one pbn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Checksum of the content. Of a block that holds fragments, see [`PACK`].
    pub tag: Tag,
    /// Fingerprint of the content, if it was computed.
    pub fingerprint: Option<Fingerprint>,
    /// Refcount: references from maps and records. 0: the block is free, and the other fields mean nothing.
    pub count: u32,
    /// `BAD`, `COPIED`, `REPLICA`, `PACK`.
    pub flags: u8,
}

impl Entry {
    /// Whether the block is in use and known to be damaged.
    pub fn is_bad(&self) -> bool {
        self.count > 0 && self.flags & BAD != 0
    }

    /// Whether the block has a replica.
    pub fn is_copied(&self) -> bool {
        self.count > 0 && self.flags & COPIED != 0
    }

    /// Whether a map may refer to the block for content with this tag: never a bad block, a replica, or a block of
    /// fragments.
    pub fn serves(&self, tag: Tag) -> bool {
        self.count > 0 && self.tag == tag && self.flags & (BAD | REPLICA | PACK) == 0
    }

    /// Whether the block holds fragments, and no content of its own.
    pub fn is_pack(&self) -> bool {
        self.count > 0 && self.flags & PACK != 0
    }

    /// The length of all fragments of a pack, if this is its last block.
    pub fn pack_bytes(&self) -> Option<u64> {
        (self.is_pack() && self.tag != Tag(0)).then_some(self.tag.0)
    }
}

/// The page with a pbn's entry.
pub fn page_of(pbn: Pbn) -> u64 {
    pbn.0 / PAGE_ENTRIES
}

/// The pbns, or the numbers, whose entries page `number` has.
pub fn pbns_of(number: u64) -> impl Iterator<Item = Pbn> {
    let entries = if number < fragment::FIRST_PAGE { PAGE_ENTRIES } else { PAGE_FRAGMENTS };
    (0..entries).map(move |n| Pbn(number * PAGE_ENTRIES + n))
}

/// Whether a pbn is that of a block, or a number that exists.
fn has_entry(pbn: Pbn) -> bool {
    !is_fragment(pbn) || pbn.0 % PAGE_ENTRIES < PAGE_FRAGMENTS
}

/// Bytes of the table for a data area of this many blocks.
pub fn table_bytes(data: Blocks) -> u64 {
    data.0.div_ceil(PAGE_ENTRIES) * PAGE_BYTES as u64
}

/// The seed makes the checksum of a sector in another sector's place fail.
fn seed_of(number: u64, sector: usize) -> u64 {
    SEED ^ (number * SECTORS + sector as u64)
}

/// A page in memory. Checksums and sequences inside are those of the last read or write.
///
/// A damaged sector keeps its bytes, whatever is written around it: the next read finds the same damage. Its entries
/// read as those of free blocks that cannot be shared, and cannot be set. Only fsck makes it an empty sector.
#[derive(Clone)]
pub struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    changed_sectors: u8,
    damaged_sectors: u8,
}

impl Page {
    /// A page that was never written.
    pub fn empty() -> Self {
        Self { bytes: Box::new([0; PAGE_BYTES]), changed_sectors: 0, damaged_sectors: 0 }
    }

    /// Checks page `number` as read from disk. Err: the first sector that is damaged or belongs elsewhere.
    pub fn from_disk(number: u64, bytes: &[u8; PAGE_BYTES]) -> Result<Self, usize> {
        let page = Self::as_found(number, bytes);
        match page.damaged_sectors {
            0 => Ok(page),
            damaged => Err(damaged.trailing_zeros() as usize),
        }
    }

    /// Page `number` as read from disk, as far as it is intact.
    pub fn as_found(number: u64, bytes: &[u8; PAGE_BYTES]) -> Self {
        let mut damaged_sectors = 0;
        for (index, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
            let sum = at::u64(sector, CHECKSUM_AT);
            let blank = sum == 0 && sector.iter().all(|byte| *byte == 0);
            if !blank && sum != checksum(&sector[SEQUENCE_AT..], seed_of(number, index)) {
                damaged_sectors |= 1 << index;
            }
        }
        Self { bytes: Box::new(*bytes), changed_sectors: 0, damaged_sectors }
    }

    /// One bit for each damaged sector.
    pub fn damaged_sectors(&self) -> u8 {
        self.damaged_sectors
    }

    /// Whether the sector with `pbn`'s entry is damaged, so that nothing is known of the block.
    pub fn is_damaged(&self, pbn: Pbn) -> bool {
        self.damaged_sectors & 1 << Self::sector_of(pbn) != 0
    }

    /// Makes damaged sectors empty. They are written with the page.
    pub fn empty_damaged(&mut self) {
        for (index, sector) in self.bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            if self.damaged_sectors & 1 << index != 0 {
                sector.fill(0);
            }
        }
        self.changed_sectors |= std::mem::take(&mut self.damaged_sectors);
    }

    /// The sector of its page that has a pbn's entry.
    pub fn sector_of(pbn: Pbn) -> usize {
        let index = (pbn.0 % PAGE_ENTRIES) as usize;
        match is_fragment(pbn) {
            // Numbers that do not exist count to the last sector.
            true => (index / SECTOR_FRAGMENTS).min(SECTORS as usize - 1),
            false => index / SECTOR_ENTRIES,
        }
    }

    /// The first pbn of sector `sector` of page `number`, and that of the sector after it.
    pub fn sector_blocks(number: u64, sector: usize) -> (Pbn, Pbn) {
        assert!((sector as u64) < SECTORS, "a page has no sector {sector}");
        let entries = if number < fragment::FIRST_PAGE { SECTOR_ENTRIES } else { SECTOR_FRAGMENTS };
        let first = number * PAGE_ENTRIES + (sector * entries) as u64;
        (Pbn(first), Pbn(first + entries as u64))
    }

    /// The bytes for the disk of page `number`, changed sectors sealed with `sequence`.
    pub fn sealed(&self, number: u64, sequence: u64) -> [u8; PAGE_BYTES] {
        let mut page = self.clone();
        page.seal(number, sequence);
        *page.bytes
    }

    /// Gives changed sectors their sequence and checksum: the page now equals the one that `sealed` wrote.
    pub fn seal(&mut self, number: u64, sequence: u64) {
        for (index, sector) in self.bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            if self.changed_sectors & (1 << index) != 0 {
                sector[SEQUENCE_AT..ENTRIES_AT].copy_from_slice(&sequence.to_le_bytes());
                let sum = checksum(&sector[SEQUENCE_AT..], seed_of(number, index));
                sector[CHECKSUM_AT..SEQUENCE_AT].copy_from_slice(&sum.to_le_bytes());
            }
        }
        self.changed_sectors = 0;
    }

    /// The newest group in any intact sector.
    pub fn newest_sequence(&self) -> u64 {
        let sectors = self.bytes.chunks_exact(SECTOR_BYTES).enumerate();
        let whole = sectors.filter(|(index, _)| self.damaged_sectors & 1 << index == 0);
        whole.map(|(_, sector)| at::u64(sector, SEQUENCE_AT)).max().unwrap_or(0)
    }

    /// The sequence of the sector with `pbn`'s entry: it includes that group and older ones.
    pub fn sequence_of(&self, pbn: Pbn) -> u64 {
        at::u64(self.bytes.as_slice(), Self::sector_of(pbn) * SECTOR_BYTES + SEQUENCE_AT)
    }

    /// The entry of a pbn of this page. In a damaged sector, and for a number that does not exist, it is that of a free
    /// block.
    pub fn entry(&self, pbn: Pbn) -> Entry {
        if self.is_damaged(pbn) || !has_entry(pbn) {
            return Entry::default();
        }
        let (_, start) = Self::place(pbn);
        let bytes = &self.bytes[start..start + ENTRY_BYTES];
        let fingerprint: [u8; 16] = bytes[FINGERPRINT_AT..COUNT_AT].try_into().expect("sixteen bytes");
        Entry {
            tag: Tag(at::u64(bytes, TAG_AT)),
            fingerprint: (fingerprint != [0; 16]).then_some(Fingerprint(fingerprint)),
            count: at::u32(bytes, COUNT_AT),
            flags: bytes[FLAGS_AT],
        }
    }

    /// The refcount of a pbn of this page. In a damaged sector, and for a number that does not exist, it is 0.
    pub fn count(&self, pbn: Pbn) -> u32 {
        if self.is_damaged(pbn) || !has_entry(pbn) {
            return 0;
        }
        let (_, start) = Self::place(pbn);
        at::u32(self.bytes.as_slice(), start + COUNT_AT)
    }

    /// Whether no entry of page `number` is in use and the page has no stamp: it is equivalent to zeros. False if a
    /// sector is damaged.
    pub fn is_free(&self, number: u64) -> bool {
        let has_stamp = || number == 0 && self.stamped().is_some();
        self.damaged_sectors == 0 && pbns_of(number).all(|pbn| self.count(pbn) == 0) && !has_stamp()
    }

    /// On page 0, where the label needs no entry: records the table's volume, and marks the sector as changed, so that
    /// it gets the number of the checkpoint that writes it.
    pub fn stamp(&mut self, volume_id: [u8; 16]) {
        let entry = Entry { fingerprint: Some(Fingerprint(volume_id)), ..Entry::default() };
        self.set(Pbn(0), &entry);
    }

    /// On page 0: the volume of the table, and the checkpoint that last wrote it. None: the page has no stamp.
    pub fn stamped(&self) -> Option<([u8; 16], u64)> {
        self.entry(Pbn(0)).fingerprint.map(|id| (id.0, self.sequence_of(Pbn(0))))
    }

    /// Sets the entry of a pbn of this page.
    pub fn set(&mut self, pbn: Pbn, entry: &Entry) {
        assert!(!self.is_damaged(pbn), "the entry of block {pbn} is set in a damaged sector");
        debug_assert!(entry.flags & !FLAGS_KNOWN == 0, "flags {:#x} of {pbn}", entry.flags);
        let (sector, start) = Self::place(pbn);
        let bytes = &mut self.bytes[start..start + ENTRY_BYTES];
        bytes[TAG_AT..FINGERPRINT_AT].copy_from_slice(&entry.tag.0.to_le_bytes());
        bytes[FINGERPRINT_AT..COUNT_AT].copy_from_slice(&entry.fingerprint.map_or([0; 16], |f| f.0));
        bytes[COUNT_AT..FLAGS_AT].copy_from_slice(&entry.count.to_le_bytes());
        bytes[FLAGS_AT] = entry.flags;
        self.changed_sectors |= 1 << sector;
    }

    /// Sets only the refcount.
    pub fn set_count(&mut self, pbn: Pbn, count: u32) {
        assert!(!self.is_damaged(pbn), "the refcount of block {pbn} is set in a damaged sector");
        let (sector, start) = Self::place(pbn);
        self.bytes[start + COUNT_AT..start + FLAGS_AT].copy_from_slice(&count.to_le_bytes());
        self.changed_sectors |= 1 << sector;
    }

    /// Sets only the flags.
    pub fn set_flags(&mut self, pbn: Pbn, flags: u8) {
        assert!(!self.is_damaged(pbn), "the flags of block {pbn} are set in a damaged sector");
        debug_assert!(flags & !FLAGS_KNOWN == 0, "flags {flags:#x} of {pbn}");
        let (sector, start) = Self::place(pbn);
        self.bytes[start + FLAGS_AT] = flags;
        self.changed_sectors |= 1 << sector;
    }

    /// Where a fragment lies. None: its entry has no place, or is in a damaged sector.
    pub fn fragment_place(&self, pbn: Pbn) -> Option<FragmentPlace> {
        assert!(is_fragment(pbn), "block {pbn} is no fragment");
        if self.is_damaged(pbn) || !has_entry(pbn) {
            return None;
        }
        let start = Self::place(pbn).1 + PLACE_AT;
        let place: &[u8; PLACE_BYTES] = self.bytes[start..start + PLACE_BYTES].try_into().expect("nine bytes");
        FragmentPlace::decode(place)
    }

    /// Sets only the place of a fragment.
    pub fn set_fragment_place(&mut self, pbn: Pbn, place: FragmentPlace) {
        assert!(is_fragment(pbn) && !self.is_damaged(pbn), "block {pbn} is given the place of a fragment");
        let (sector, start) = Self::place(pbn);
        self.bytes[start + PLACE_AT..start + FRAGMENT_ENTRY_BYTES].copy_from_slice(&place.encode());
        self.changed_sectors |= 1 << sector;
    }

    /// The sector with a pbn's entry, and the first byte of that entry.
    fn place(pbn: Pbn) -> (usize, usize) {
        let index = (pbn.0 % PAGE_ENTRIES) as usize;
        if is_fragment(pbn) {
            assert!((index as u64) < PAGE_FRAGMENTS, "no fragment has the number {pbn}");
            let (sector, slot) = (index / SECTOR_FRAGMENTS, index % SECTOR_FRAGMENTS);
            return (sector, sector * SECTOR_BYTES + ENTRIES_AT + slot * FRAGMENT_ENTRY_BYTES);
        }
        let sector = index / SECTOR_ENTRIES;
        (sector, sector * SECTOR_BYTES + ENTRIES_AT + index % SECTOR_ENTRIES * ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Entry {
        Entry { tag: Tag(0x0102), fingerprint: Some(Fingerprint([9; 16])), count: 3, flags: 0 }
    }

    #[test]
    fn an_entry_has_its_golden_bytes_and_comes_back() {
        let mut page = Page::empty();
        page.set(Pbn(128 + 17), &sample());
        let bytes = page.sealed(1, 5);
        let start = 512 + 16 + 31;
        assert_eq!(bytes[start..start + 10], [2, 1, 0, 0, 0, 0, 0, 0, 9, 9]);
        assert_eq!(bytes[start + 24..start + 31], [3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[512 + 8..512 + 16], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[..512], [0; 512], "an unchanged sector stays as it was");
        let back = Page::from_disk(1, &bytes).unwrap();
        assert_eq!(back.entry(Pbn(17)), sample());
        assert_eq!(back.entry(Pbn(16)), Entry::default());
        assert_eq!((back.sequence_of(Pbn(17)), back.sequence_of(Pbn(0)), back.newest_sequence()), (5, 0, 5));
    }

    #[test]
    fn flags_have_their_golden_byte_and_say_whom_a_block_serves() {
        let mut page = Page::empty();
        page.set(Pbn(0), &sample());
        page.set_flags(Pbn(0), COPIED);
        assert_eq!(page.sealed(0, 1)[16 + 28], 2);
        assert_eq!(page.entry(Pbn(0)), Entry { flags: COPIED, ..sample() });
        let tag = sample().tag;
        let with = |flags| Entry { flags, ..sample() };
        assert!(
            with(0).serves(tag) && with(COPIED).serves(tag) && !with(BAD).serves(tag) && !with(REPLICA).serves(tag)
        );
        assert!(!with(0).serves(Tag(1)) && !Entry { count: 0, ..sample() }.serves(tag));
        assert!(with(BAD).is_bad() && !Entry { count: 0, ..with(BAD) }.is_bad() && with(COPIED).is_copied());
    }

    #[test]
    fn the_entry_of_a_fragment_has_its_golden_bytes_and_comes_back() {
        let number = fragment::FIRST_PAGE + 1;
        let pbn = Pbn(number * PAGE_ENTRIES + 13);
        let place = FragmentPlace { at: 9_000, bytes: 700, coding: oncefs_compress::Coding::Lz4, blocks_after: 3 };
        let mut page = Page::empty();
        page.set(pbn, &sample());
        page.set_fragment_place(pbn, place);
        let bytes = page.sealed(number, 5);
        let start = 512 + 16 + 40;
        assert_eq!(bytes[start..start + 10], [2, 1, 0, 0, 0, 0, 0, 0, 9, 9]);
        assert_eq!(bytes[start + 24..start + 31], [3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[start + 31..start + 40], place.encode());
        let back = Page::from_disk(number, &bytes).unwrap();
        assert_eq!((back.entry(pbn), back.fragment_place(pbn)), (sample(), Some(place)));
        assert_eq!((back.fragment_place(pbn.plus(1)), back.entry(pbn.plus(1))), (None, Entry::default()));
        let nothing = Pbn(number * PAGE_ENTRIES + 96);
        assert_eq!(
            (back.fragment_place(nothing), back.entry(nothing), back.count(nothing)),
            (None, Entry::default(), 0)
        );
        assert_eq!(Page::sector_of(nothing), 7);
        assert_eq!((Page::sector_of(pbn), Page::sector_blocks(number, 1).0), (1, Pbn(pbn.0 - 1)));
        assert!(!back.is_free(number) && Page::empty().is_free(number));
        assert_eq!((pbns_of(number).count(), pbns_of(1).last()), (96, Some(Pbn(255))));
    }

    #[test]
    fn any_flipped_bit_of_a_written_sector_is_noticed() {
        let mut page = Page::empty();
        page.set(Pbn(0), &sample());
        let bytes = page.sealed(0, 1);
        for bit in 0..SECTOR_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Page::from_disk(0, &flipped).err(), Some(0), "bit {bit}");
        }
    }

    #[test]
    fn a_sector_in_the_place_of_another_is_noticed() {
        let mut page = Page::empty();
        [Pbn(0), Pbn(16)].iter().for_each(|pbn| page.set(*pbn, &sample()));
        let mut bytes = page.sealed(3, 1);
        assert!(Page::from_disk(3, &bytes).is_ok());
        assert_eq!(Page::from_disk(4, &bytes).err(), Some(0), "another page");
        bytes.copy_within(..SECTOR_BYTES, SECTOR_BYTES);
        assert_eq!(Page::from_disk(3, &bytes).err(), Some(1), "another sector");
    }

    #[test]
    fn what_is_whole_of_a_damaged_page_is_in_use_and_the_damage_stays() {
        let mut page = Page::empty();
        [Pbn(0), Pbn(20), Pbn(127)].iter().for_each(|pbn| page.set(*pbn, &sample()));
        let mut bytes = page.sealed(0, 1);
        bytes[SECTOR_BYTES + 40] ^= 1;
        let mut back = Page::as_found(0, &bytes);
        assert_eq!((back.damaged_sectors(), back.is_damaged(Pbn(31)), back.is_damaged(Pbn(32))), (2, true, false));
        assert_eq!((back.count(Pbn(0)), back.count(Pbn(20)), back.count(Pbn(127))), (3, 0, 3));
        assert_eq!(Page::sector_blocks(3, 1), (Pbn(400), Pbn(416)));
        [Pbn(0), Pbn(127)].iter().for_each(|pbn| back.set_count(*pbn, 0));
        assert!(!back.is_free(0), "nobody knows of the damaged sector");
        let written = back.sealed(0, 2);
        assert_eq!(Page::from_disk(0, &written).err(), Some(1), "what is written around damage does not hide it");
        assert_eq!(written[SECTOR_BYTES..2 * SECTOR_BYTES], bytes[SECTOR_BYTES..2 * SECTOR_BYTES]);
        back.empty_damaged();
        assert!(Page::from_disk(0, &back.sealed(0, 2)).is_ok(), "emptied and written, the page is whole");
    }

    #[test]
    fn a_torn_page_keeps_whole_sectors_each_old_or_new() {
        let mut page = Page::empty();
        page.set(Pbn(0), &sample());
        page.set(Pbn(127), &sample());
        let mut torn = page.sealed(0, 1);
        torn[SECTOR_BYTES..].fill(0);
        let back = Page::from_disk(0, &torn).unwrap();
        assert_eq!((back.count(Pbn(0)), back.count(Pbn(127))), (3, 0));
    }
}
