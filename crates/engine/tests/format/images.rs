//! The headers of images and of records in objects, and the record of a head, looked up in the tables of the page.

use oncefs_engine::format::head_record::{HeadRecord, HeadState};
use oncefs_engine::format::image::ImageHeader;
use oncefs_engine::format::records_index;
use oncefs_engine::format::sealed_superblock::SealedSuperblock;
use oncefs_engine::format::superblock::Superblock;
use oncefs_engine::{DataPlace, Profile};
use oncefs_words::page::Section;

use super::PAGE;

#[test]
fn the_header_of_an_image_is_as_the_page_says() {
    let header = ImageHeader { volume_id: [3; 16], len: 0x0102_0304, object_bytes: 4 << 20 };
    let bytes = header.encode();
    let page = Section::of(PAGE, "Image header");
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs image\n\0\0\0".to_vec()),
            ("volume id", vec![3; 16]),
            ("length", 0x0102_0304_u64.to_le_bytes().to_vec()),
            ("object bytes", (4_u64 << 20).to_le_bytes().to_vec()),
            ("checksum", page.checksum(&bytes, 0).to_le_bytes().to_vec()),
        ],
    );
}

#[test]
fn the_record_of_a_head_is_as_the_page_says() {
    let record = HeadRecord {
        volume_id: [3; 16],
        epoch: 0x0102,
        renewals: 0x0304,
        lease_millis: 5000,
        state: HeadState::Released,
        address: "10.0.0.1:0/7".to_owned(),
        owner: "head".to_owned(),
    };
    let bytes = record.encode();
    let page = Section::of(PAGE, "Record of a head");
    let padded = |text: &str, len: usize| [text.as_bytes(), &vec![0; len - text.len()]].concat();
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs head\n\0\0\0\0".to_vec()),
            ("volume id", vec![3; 16]),
            ("epoch", 0x0102_u64.to_le_bytes().to_vec()),
            ("renewals", 0x0304_u64.to_le_bytes().to_vec()),
            ("lease", 5000_u32.to_le_bytes().to_vec()),
            ("state", 1_u32.to_le_bytes().to_vec()),
            ("address", padded("10.0.0.1:0/7", 64)),
            ("owner", padded("head", 128)),
            ("checksum", page.checksum(&bytes, 0).to_le_bytes().to_vec()),
        ],
    );
}

#[test]
fn the_superblock_in_a_cluster_is_as_the_page_says() {
    let superblock = Superblock {
        volume_id: [3; 16],
        secret: [0; 32],
        log_bytes: 8 << 20,
        data: DataPlace::File,
        profile: Profile::Desktop,
        copies: None,
        has_clones: true,
        has_fragments: true,
    };
    let sealed = SealedSuperblock {
        superblock: superblock.clone(),
        key_id: [4; 8],
        nonce: [5; 24],
        sealed: [6; 48],
        machine: "head".to_owned(),
        key_file: "/etc/k".to_owned(),
    };
    let bytes = sealed.encode().unwrap();
    let page = Section::of(PAGE, "Superblock in a cluster");
    let padded = |text: &str, len: usize| [text.as_bytes(), &vec![0; len - text.len()]].concat();
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs sealed\n\0\0".to_vec()),
            ("version", 1_u32.to_le_bytes().to_vec()),
            ("rest", vec![0; 4]),
            ("key id", vec![4; 8]),
            ("nonce", vec![5; 24]),
            ("sealed secret", vec![6; 48]),
            ("machine", padded("head", 64)),
            ("key file", padded("/etc/k", 256)),
            ("superblock", superblock.encode().unwrap().to_vec()),
            ("checksum", page.checksum(&bytes, 0).to_le_bytes().to_vec()),
        ],
    );
}

#[test]
fn the_header_of_records_in_objects_is_as_the_page_says() {
    let bytes = records_index::header([3; 16], Some(9));
    let page = Section::of(PAGE, "Records in objects");
    page.assert_layout(
        &bytes,
        0,
        &[
            ("magic", b"oncefs records\n\0".to_vec()),
            ("volume id", vec![3; 16]),
            ("number", 9_u64.to_le_bytes().to_vec()),
            ("checksum", page.checksum(&bytes, 0).to_le_bytes().to_vec()),
        ],
    );
}
