//! Files that lost records of their maps: what is gone cannot be read, and all else of them can.

use oncefs_engine::{BLOCK_BYTES, Change, Remedy, Store};

use super::{USER, Volume};
use crate::format::inode::{self, InodeRecord};
use crate::fsck::fix::{check_names, fix_names};
use crate::{FileSystem, Ino, SetAttributes, SystemClock, WriteOrigin};

const MIB: usize = 1 << 20;

/// A file of 3 MiB of content, and its content. It has `size` bytes.
fn made(fs: &FileSystem, size: usize) -> (Ino, Vec<u8>) {
    let ino = fs.mknod(Ino::ROOT, b"large", libc::S_IFREG | 0o644, 0, &USER).unwrap().ino;
    let content: Vec<u8> = (0..(3 * MIB / 8) as u64).flat_map(|n| (n * 0x9E37_79B9 + 5).to_le_bytes()).collect();
    fs.write(ino, 0, &content, WriteOrigin::PageCache).unwrap();
    fs.setattr(ino, &SetAttributes { size: Some(size as u64), ..SetAttributes::default() }).unwrap();
    fs.close().unwrap();
    (ino, content)
}

/// Blocks of the second MiB of the file's map are mapped no more, and its inode does not know.
fn lose(store: &Store, ino: Ino, blocks: usize) {
    let bytes = store.get(&inode::key(ino)).unwrap().unwrap();
    let map = InodeRecord::decode(ino, &bytes).unwrap().map;
    let len = (blocks * BLOCK_BYTES) as u64;
    store.zero(map, MIB as u64, len, false, |_, _: &mut Change| ()).unwrap();
    store.commit().unwrap();
}

#[test]
fn lost_content_cannot_be_read_until_it_is_written_again_or_removed() {
    let volume = Volume::new();
    let (ino, content) = made(&volume.file_system(volume.store()), 4 * MIB);
    let store = volume.store();
    lose(&store, ino, 256);
    let said = check_names(&store, &mut |_, _, _| ()).unwrap().left;
    assert!(said.iter().any(|line| line.contains("256 blocks of its content are lost")), "{said:#?}");
    let safe = fix_names(&store, &SystemClock, Remedy::Safe, &mut |_, _, _| ()).unwrap();
    assert_eq!((safe.fixed_count, safe.left_count), (0, 1), "nothing is decided without being asked");
    volume.fix(&store);
    assert_eq!(store.bad_blocks().len(), 2, "one for each part without a record: the hole cannot be told from content");
    store.close().unwrap();
    drop(store);

    let fs = volume.file_system(volume.store_in_use());
    for (at, block) in content.chunks(BLOCK_BYTES).enumerate() {
        let read = fs.read(ino, (at * BLOCK_BYTES) as u64, BLOCK_BYTES, false).ok();
        let is_lost = (256..512).contains(&at);
        assert!(read.map(|bytes| bytes.to_vec()) == (!is_lost).then(|| block.to_vec()), "block {at}");
    }
    assert!(fs.read(ino, 3 * MIB as u64, 1, false).is_err());
    fs.write(ino, MIB as u64, &content[MIB..2 * MIB], WriteOrigin::PageCache).unwrap();
    assert!(fs.read(ino, 0, 3 * MIB, false).unwrap().to_vec() == content);
    let removed = fs.unlink(Ino::ROOT, b"large").unwrap().unwrap();
    fs.forget(removed).unwrap();
    fs.close().unwrap();
    drop(fs);
    volume.assert_clean(&volume.store());
}

#[test]
fn what_the_log_brought_back_of_a_lost_part_hides_nothing_of_it() {
    let volume = Volume::new();
    let (ino, content) = made(&volume.file_system(volume.store()), 3 * MIB);
    let store = volume.store();
    lose(&store, ino, 200);
    volume.fix(&store);
    store.close().unwrap();
    drop(store);
    let fs = volume.file_system(volume.store_in_use());
    let rest = MIB + 200 * BLOCK_BYTES;
    assert!(fs.read(ino, MIB as u64, 1, false).is_err() && fs.read(ino, rest as u64 - 1, 1, false).is_err());
    assert_eq!(fs.read(ino, rest as u64, 100, false).unwrap().to_vec(), content[rest..rest + 100]);
    fs.close().unwrap();
}
