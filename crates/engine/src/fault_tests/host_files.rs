//! Real files of the host that are shorter than they should be.

use crate::device::{Device, FileDevice};

#[test]
fn a_file_that_ends_early_is_an_error_and_not_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short");
    std::fs::write(&path, [7; 6_000]).unwrap();
    let device = FileDevice::open_buffered(&path, true).unwrap();
    let mut bytes = [0; 4096];
    device.read_at(&mut bytes, 0).unwrap();
    for at in [4096, 8192] {
        let error = device.read_at(&mut bytes, at).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
