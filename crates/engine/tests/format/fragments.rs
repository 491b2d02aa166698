//! The structures of compressed blocks against the page.

use oncefs_engine::format::fragment::FragmentPlace;
use oncefs_engine::format::fragment_totals::FragmentTotals;
use oncefs_engine::format::page::{Entry, Page};
use oncefs_engine::{Pbn, Tag};
use oncefs_words::page::Section;

use super::PAGE;

fn number(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn place() -> FragmentPlace {
    FragmentPlace { at: 4097, bytes: 300, coding: oncefs_compress::Coding::Zstd }
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
    let fields = [("entry", bytes[at..at + 31].to_vec()), ("spare", vec![0]), ("place", number(place().encode()))];
    assert_eq!(bytes[at..at + 4], [4, 3, 2, 1]);
    assert_eq!(place().encode(), 4097 << 14 | 299 << 2 | 2);
    Section::of(PAGE, "Pages of fragments").assert_layout(&bytes[at..at + 40], 0, &fields);
}

#[test]
fn how_much_is_compressed_is_as_the_page_says() {
    let bytes = FragmentTotals { fragments: 0x0102, bytes: 0x0304 }.encode();
    let page = Section::of(PAGE, "Fragment totals");
    let fields = [("fragments", 0x0102_u64.to_le_bytes().to_vec()), ("bytes", 0x0304_u64.to_le_bytes().to_vec())];
    page.assert_layout(
        &bytes,
        0,
        &[fields[0].clone(), fields[1].clone(), ("checksum", number(page.checksum(&bytes, 0)))],
    );
}
