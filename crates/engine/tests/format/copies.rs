//! The list of copies, as the other structures.

use oncefs_engine::format::record_list::{self, RecordFile, RecordList};
use oncefs_words::page::Section;

use super::PAGE;

fn number(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

#[test]
fn the_list_of_record_files_is_as_the_page_says() {
    let file = RecordFile { number: 12, len: 70_000, sum: 21, end_sum: 22, level: 6 };
    let (manifest, checkpoint) = (b"manifest".to_vec(), vec![9; 64]);
    let list =
        RecordList { files: vec![file], manifest_number: 5, manifest: manifest.clone(), manifest_len: 8, checkpoint };
    let bytes = list.encode([3; 16]);
    let page = Section::of(PAGE, "List of record files");
    let entry = bytes[record_list::HEADER_BYTES..][..record_list::ENTRY_BYTES].to_vec();
    let held = entry.len() + manifest.len();
    page.assert_layout(
        &bytes,
        held,
        &[
            ("magic", b"oncefs records\n\0".to_vec()),
            ("volume id", vec![3; 16]),
            ("files", 1_u32.to_le_bytes().to_vec()),
            ("manifest length", 8_u32.to_le_bytes().to_vec()),
            ("manifest number", number(5)),
            ("checkpoint", vec![9; 64]),
            ("files and manifest", [entry.clone(), manifest].concat()),
            ("checksum", number(page.checksum(&bytes, held))),
        ],
    );
    Section::of(PAGE, "Listed record file").assert_layout(
        &entry,
        0,
        &[
            ("number", number(12)),
            ("length", number(70_000)),
            ("sum", number(21)),
            ("end sum", number(22)),
            ("level", 6_u32.to_le_bytes().to_vec()),
        ],
    );
}
