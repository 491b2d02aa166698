//! The header of an image in objects, looked up in the table of the page.

use oncefs_engine::format::image::ImageHeader;
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
