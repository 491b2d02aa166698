//! The structures of compressed blocks against the page.

use oncefs_engine::format::file_policy;
use oncefs_engine::format::fragment::FragmentPlace;
use oncefs_engine::format::fragment_totals::FragmentTotals;
use oncefs_engine::format::pack_directory::{Listed, PackDirectory};
use oncefs_engine::format::page::{Entry, Page};
use oncefs_engine::{Compress, FilePolicy, MapId, Pbn, Tag};
use oncefs_words::page::Section;

use super::PAGE;

fn number_bytes(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn place() -> FragmentPlace {
    FragmentPlace { at: 4097, bytes: 300, coding: oncefs_compress::Coding::Zstd, blocks_after: 4 }
}

#[test]
fn a_page_of_fragments_is_as_the_page_says() {
    let mut table = Page::empty();
    let entry = Entry { tag: Tag(0x0102_0304), fingerprint: None, count: 7, flags: 2 };
    // The number 29 of a page is entry 5 of sector 2.
    let number_29 = Pbn((1 << 38) + 29);
    table.set(number_29, &entry);
    table.set_fragment_place(number_29, place());
    let bytes = table.sealed(1 << 31, 6);
    let at = 2 * 512 + 16 + 5 * 40;
    let fields = [("entry", bytes[at..at + 31].to_vec()), ("place", place().encode().to_vec())];
    assert_eq!(bytes[at..at + 4], [4, 3, 2, 1]);
    let mut encoded = vec![4];
    encoded.extend(number_bytes(4097 << 14 | 299 << 2 | 2));
    assert_eq!(place().encode().to_vec(), encoded);
    Section::of(PAGE, "Pages of fragments").assert_layout(&bytes[at..at + 40], 0, &fields);
}

#[test]
fn how_much_is_compressed_is_as_the_page_says() {
    let bytes = FragmentTotals { fragments: 0x0102, bytes: 0x0304, blocks: 0x0506 }.encode();
    let page = Section::of(PAGE, "Fragment totals");
    let fields = [
        ("fragments", number_bytes(0x0102)),
        ("bytes", number_bytes(0x0304)),
        ("blocks", number_bytes(0x0506)),
        ("checksum", number_bytes(page.checksum(&bytes, 0))),
    ];
    page.assert_layout(&bytes, 0, &fields);
}

#[test]
fn a_directory_is_as_the_page_says() {
    let number = Pbn((1 << 38) + 5);
    let listed = Listed { number, bytes: 300, coding: oncefs_compress::Coding::Zstd, tag: Tag(0x0102) };
    let directory = PackDirectory { order: 0x0304, blocks: 3, fragments: vec![listed] };
    let mut block = vec![0; 4096];
    // What the checksum is made of, as a sum that no other bytes give.
    let sum = |bytes: &[u8]| bytes.iter().fold(bytes.len() as u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    directory.write(Pbn(77), &mut block, sum);
    let fields = [
        ("order", number_bytes(0x0304)),
        ("fragments", vec![1, 0]),
        ("blocks", vec![3]),
        ("spare", vec![0; 5]),
        ("magic", number_bytes(0x6F6E_6365_7061_636B)),
        ("checksum", number_bytes(sum(&block[4048..4088]) ^ 77)),
    ];
    Section::of(PAGE, "Pack directory").assert_layout(&block[4064..], 0, &fields);
    let fields = [("fragment", number_bytes(number.0 << 14 | 299 << 2 | 2)), ("tag", number_bytes(0x0102))];
    Section::of(PAGE, "Directory entry").assert_layout(&block[4048..4064], 0, &fields);
}

#[test]
fn the_compression_of_a_file_is_as_the_page_says() {
    let page = Section::of(PAGE, "File policy");
    for (compress, flags) in Compress::ALL.into_iter().zip([2, 4, 6, 8]) {
        let policy = FilePolicy { compress: Some(compress), ..FilePolicy::default() };
        assert_eq!(file_policy::encode(MapId(5), &policy)[..4], [0, 0, 0, flags]);
        assert!(page.rows()[3][3].contains(&format!("{flags}: {compress}")), "{compress}");
    }
}
