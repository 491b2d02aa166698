//! Bodies of replies that consist of a few numbers.

use super::wire::Writer;

/// `fuse_open_out`.
pub(crate) fn opened(handle: u64, opened: u32) -> Vec<u8> {
    let mut writer = Writer::with_capacity(16);
    writer.u64(handle).u32(opened).u32(0);
    writer.finish(16)
}

/// `fuse_write_out`, or `fuse_copy_file_range_out` if `is_wide`.
pub(crate) fn written(bytes: u64, is_wide: bool) -> Vec<u8> {
    let mut writer = Writer::with_capacity(8);
    if is_wide {
        writer.u64(bytes);
    } else {
        let bytes = u32::try_from(bytes).expect("a WRITE is shorter than 4 GiB, and who copies more is asked for less");
        writer.u32(bytes).u32(0);
    }
    writer.finish(8)
}

/// `fuse_getxattr_out`.
pub(crate) fn size(bytes: u32) -> Vec<u8> {
    let mut writer = Writer::with_capacity(8);
    writer.u32(bytes).u32(0);
    writer.finish(8)
}

/// `fuse_ioctl_out` and the output after it.
pub(crate) fn ioctl(result: i32, output: &[u8]) -> Vec<u8> {
    let len = 16 + output.len();
    let mut writer = Writer::with_capacity(len);
    writer.i32(result).u32(0).u32(0).u32(0).bytes(output);
    writer.finish(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_protocol() {
        assert_eq!([opened(1, 2).len(), written(3, false).len(), written(u64::MAX, true).len()], [16, 8, 8]);
        assert_eq!([size(9).len(), ioctl(-1, b"abc").len()], [8, 19]);
        assert_eq!(written(3, false)[..4], 3_u32.to_ne_bytes());
    }
}
