//! Parallel reads of a file, by io_uring and by threads.

use std::fs::FileTimes;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, SystemTime};

use oncefs_toolbox::Random;

use super::*;
use crate::device::ALIGN_BYTES;
use crate::device::buffer::AlignedBuf;

const PAGES: u64 = 4096;

/// A file of pages that each begin with their number.
fn numbered_pages() -> (tempfile::TempDir, FileDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut bytes = vec![0; PAGES as usize * ALIGN_BYTES];
    for (number, page) in (0_u64..).zip(bytes.chunks_exact_mut(ALIGN_BYTES)) {
        page[..8].copy_from_slice(&number.to_le_bytes());
        page[ALIGN_BYTES - 8..].copy_from_slice(&number.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    let device = FileDevice::open_direct(&path, false).unwrap();
    (dir, device)
}

type Submit = fn(&FileDevice, &mut [Io<'_>]);

/// Reads runs of pages, those of one inner list in one read, and returns the result of each.
fn read(device: &FileDevice, reads: &[Vec<Range<u64>>], submit: Submit) -> Vec<io::Result<()>> {
    let pages = |run: &Range<u64>| (run.end - run.start) as usize;
    let mut buffers: Vec<Vec<AlignedBuf>> = Vec::new();
    for runs in reads {
        buffers.push(runs.iter().map(|run| AlignedBuf::new(pages(run) * ALIGN_BYTES)).collect());
    }
    let mut joined = Vec::new();
    for (runs, buffers) in reads.iter().zip(&mut buffers) {
        let mut buffers = buffers.iter_mut();
        let mut read = Io::read(runs[0].start * ALIGN_BYTES as u64, buffers.next().unwrap());
        for (pair, buffer) in runs.windows(2).zip(buffers) {
            read.join((pair[1].start - pair[0].end) as usize * ALIGN_BYTES, buffer);
        }
        joined.push(read);
    }
    submit(device, &mut joined);
    let results: Vec<io::Result<()>> = joined.into_iter().map(Io::into_result).collect();
    for ((runs, buffers), result) in reads.iter().zip(&buffers).zip(&results) {
        for (run, bytes) in runs.iter().zip(buffers).filter(|_| result.is_ok()) {
            for (number, page) in run.clone().zip(bytes.chunks_exact(ALIGN_BYTES)) {
                let number = number.to_le_bytes();
                assert!(page[..8] == number && page[ALIGN_BYTES - 8..] == number, "page of {run:?}");
            }
        }
    }
    results
}

/// Single pages, runs, and runs with gaps, more of them than are read at a time.
fn many_reads() -> Vec<Vec<Range<u64>>> {
    let mut random = Random::new(5);
    let mut one_read = |pieces: u64| {
        let mut end = random.below(PAGES - 64);
        let mut run = |_| {
            let begin = end + random.below(9);
            end = begin + 1 + random.below(4);
            begin..end
        };
        (0..pieces).map(&mut run).collect()
    };
    (0..500).map(|n| one_read(1 + n % 3)).collect()
}

fn by_ring(device: &FileDevice, reads: &mut [Io<'_>]) {
    assert!(ring::submit(&device.file, reads, None), "this test needs io_uring");
}

fn by_whatever_is_allowed(device: &FileDevice, reads: &mut [Io<'_>]) {
    device.submit(reads);
}

fn assert_reads_all(submit: Submit) {
    let (_dir, device) = numbered_pages();
    for count in [1, 2, 7, 500] {
        let reads = &many_reads()[..count];
        assert!(read(&device, reads, submit).into_iter().all(|result| result.is_ok()), "{count} reads");
    }
}

/// The end of the file stands for a bad place.
fn assert_one_bad_place_costs_one_read(submit: Submit) {
    let (_dir, device) = numbered_pages();
    let mut reads = many_reads();
    reads[40] = vec![PAGES - 1..PAGES, PAGES + 1..PAGES + 2];
    reads[300] = std::iter::once(PAGES + 5..PAGES + 6).collect();
    let failed: Vec<usize> = read(&device, &reads, submit)
        .into_iter()
        .enumerate()
        .filter_map(|(n, result)| result.is_err().then_some(n))
        .collect();
    assert_eq!(failed, [40, 300]);
}

#[test]
fn the_ring_reads_everything_and_one_bad_place_costs_one_read() {
    assert_reads_all(by_ring);
    assert_one_bad_place_costs_one_read(by_ring);
}

/// A file of this many identical pages.
fn equal_pages(pages: usize, byte: u8) -> (tempfile::TempDir, FileDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pages");
    std::fs::write(&path, vec![byte; pages * ALIGN_BYTES]).unwrap();
    let device = FileDevice::open_buffered(&path, false).unwrap();
    (dir, device)
}

/// While one file is read another one is, and that ends before its second read.
fn assert_reads_of_two_files_get_their_own_results() {
    let (_dirs, devices): (Vec<_>, Vec<_>) = [equal_pages(64, 1), equal_pages(4, 2)].into_iter().unzip();
    let mut pages: Vec<AlignedBuf> = (0..5).map(|_| AlignedBuf::new(ALIGN_BYTES)).collect();
    let mut reads = pages.iter_mut().zip([0, 60, 30, 3, 60]).map(|(page, at)| Io::read(at * 4096, page));
    let mut of_one: Vec<Io<'_>> = reads.by_ref().take(3).collect();
    let mut of_other: Vec<Io<'_>> = reads.collect();
    devices[0].submit_while(&mut of_one, &mut || devices[1].submit(&mut of_other));
    let results: Vec<bool> = of_one.iter().chain(&of_other).map(Io::is_done).collect();
    drop((of_one, of_other));
    assert_eq!(results, [true, true, true, true, false]);
    for (page, byte) in pages.iter().zip([1, 1, 1, 2]) {
        assert!(page.iter().all(|found| *found == byte), "a page of another file than {byte}");
    }
}

#[test]
fn reads_of_two_files_are_made_together() {
    assert_reads_of_two_files_get_their_own_results();
    thread::spawn(|| {
        forbid_rings();
        assert_reads_of_two_files_get_their_own_results();
    })
    .join()
    .unwrap();
}

#[test]
fn more_reads_than_a_ring_holds_are_made_while_others_are_under_way() {
    let (_dir, device) = numbered_pages();
    let mut pages: Vec<AlignedBuf> = (0..500).map(|_| AlignedBuf::new(ALIGN_BYTES)).collect();
    let mut reads = (0_u64..).zip(&mut pages).map(|(number, page)| Io::read(number * ALIGN_BYTES as u64, page));
    let mut outer: Vec<Io<'_>> = reads.by_ref().take(300).collect();
    let mut inner: Vec<Io<'_>> = reads.collect();
    device.submit_while(&mut outer, &mut || device.submit(&mut inner));
    assert!(outer.iter().chain(&inner).all(Io::is_done));
    drop((outer, inner));
    for (number, page) in (0_u64..).zip(&pages) {
        assert_eq!(page[..8], number.to_le_bytes(), "page {number}");
    }
}

#[test]
fn a_panic_while_reads_are_under_way_leaves_a_ring_that_works() {
    let (_dir, device) = numbered_pages();
    let mut pages: Vec<AlignedBuf> = (0..200).map(|_| AlignedBuf::new(ALIGN_BYTES)).collect();
    let mut reads: Vec<Io<'_>> = pages.iter_mut().map(|page| Io::read(0, page)).collect();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        device.submit_while(&mut reads, &mut || panic!("work beside reads"));
    }));
    assert!(panicked.is_err());
    assert_reads_all(by_whatever_is_allowed);
}

#[test]
fn a_write_is_made_while_the_thread_works_and_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 4 * ALIGN_BYTES]).unwrap();
    let device = FileDevice::open_buffered(&path, true).unwrap();
    let mut found = [0; ALIGN_BYTES];
    let mut write = [Io::write(0, &[7; ALIGN_BYTES])];
    device.submit_while(&mut write, &mut || device.read_at(&mut found, 3 * ALIGN_BYTES as u64).unwrap());
    assert!(write[0].is_done() && found == [1; ALIGN_BYTES]);
    device.read_at(&mut found, 0).unwrap();
    assert_eq!(found, [7; ALIGN_BYTES]);
}

/// Whether the host's page cache has a page of the device.
fn is_cached(device: &FileDevice, page: usize) -> bool {
    let cached = device.file.cached.as_ref().expect("this test needs a file system with direct I/O");
    let (len, mut residence) = (ALIGN_BYTES, [0_u8]);
    // SAFETY: the mapping is of a page of the file, and nothing refers to it when it is removed.
    let asked = unsafe {
        let at = (page * ALIGN_BYTES) as i64;
        let mapped = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, cached.as_raw_fd(), at);
        assert_ne!(mapped, libc::MAP_FAILED);
        let asked = libc::mincore(mapped, len, residence.as_mut_ptr());
        libc::munmap(mapped, len);
        asked
    };
    assert_eq!(asked, 0);
    residence[0] & 1 == 1
}

fn read_page(device: &FileDevice, page: usize, is_through_host_cache: bool) -> u8 {
    let mut bytes = AlignedBuf::new(ALIGN_BYTES);
    let mut read = Io::read((page * ALIGN_BYTES) as u64, &mut bytes);
    if is_through_host_cache {
        read.through_host_cache();
    }
    device.submit(std::slice::from_mut(&mut read));
    read.into_result().unwrap();
    bytes[0]
}

#[test]
fn the_hosts_cache_keeps_what_is_read_through_it_until_it_is_written_or_given_up() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 8 * ALIGN_BYTES]).unwrap();
    let device = FileDevice::open_both_ways(&path, true).unwrap();
    device.flush().unwrap();
    device.leave_host_cache(0, 8 * ALIGN_BYTES as u64);
    assert_eq!((read_page(&device, 3, false), is_cached(&device, 3)), (1, false));
    assert_eq!((read_page(&device, 3, true), is_cached(&device, 3), is_cached(&device, 4)), (1, true, false));
    let mut block = AlignedBuf::new(ALIGN_BYTES);
    block.fill(2);
    device.write_at(&block, 3 * ALIGN_BYTES as u64).unwrap();
    assert_eq!((read_page(&device, 3, true), read_page(&device, 3, false)), (2, 2));
    assert!(is_cached(&device, 3));
    device.leave_host_cache(3 * ALIGN_BYTES as u64, ALIGN_BYTES as u64);
    assert!(!is_cached(&device, 3));
}

#[test]
fn what_earlier_users_left_in_the_hosts_cache_is_forgotten_when_a_device_is_opened() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 8 * ALIGN_BYTES]).unwrap();
    let before = FileDevice::open_both_ways(&path, true).unwrap();
    before.flush().unwrap();
    assert_eq!((read_page(&before, 3, true), is_cached(&before, 3)), (1, true));
    let device = FileDevice::open_both_ways(&path, true).unwrap();
    assert!(!is_cached(&device, 3));
}

#[test]
fn both_ways_lead_to_one_file_whatever_becomes_of_its_name() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 8 * ALIGN_BYTES]).unwrap();
    let mut file = OpenFile::open(&path, true, libc::O_DIRECT).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, vec![2; 8 * ALIGN_BYTES]).unwrap();
    file.open_through_host_cache();
    let device = FileDevice { file, is_block_device: false };
    assert!(device.has_host_cache());
    assert_eq!(read_page(&device, 3, true), 1);
}

#[test]
fn a_file_that_is_open_through_the_hosts_cache_has_no_second_way() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; ALIGN_BYTES]).unwrap();
    let mut device = FileDevice::open_buffered(&path, true).unwrap();
    device.file.open_through_host_cache();
    assert!(!device.has_host_cache());
}

/// From now on this thread, and those that it starts, cannot create a ring.
fn forbid_rings() {
    const RING_SETUP: u32 = libc::SYS_io_uring_setup as u32;
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0),
        statement((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, RING_SETUP),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: prctl with integer arguments; the program outlives the call that copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    assert!(done, "seccomp: {}", io::Error::last_os_error());
}

#[test]
fn where_no_ring_is_allowed_threads_read_the_same() {
    let work = || {
        forbid_rings();
        let (_dir, device) = numbered_pages();
        let mut page = AlignedBuf::new(ALIGN_BYTES);
        assert!(!ring::submit(&device.file, &mut [Io::read(0, &mut page)], None), "a ring was made");
        assert_reads_all(by_whatever_is_allowed);
        assert_one_bad_place_costs_one_read(by_whatever_is_allowed);
    };
    thread::spawn(work).join().unwrap();
}

#[test]
fn when_a_file_was_read_is_not_noted_and_another_users_file_is_read_all_the_same() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&[7; ALIGN_BYTES], 0).unwrap();
    // The last access is set far in the past, because even a host that updates access times rarely would then note a
    // read.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    file.as_file().set_times(FileTimes::new().set_accessed(long_ago)).unwrap();
    let device = FileDevice::open_buffered(file.path(), false).unwrap();
    device.read_at(&mut [0; ALIGN_BYTES], 0).unwrap();
    assert_eq!(file.as_file().metadata().unwrap().accessed().unwrap(), long_ago);
    // Refused at first unless the test runs as root.
    FileDevice::open_buffered(Path::new("/etc/passwd"), false).unwrap();
}
