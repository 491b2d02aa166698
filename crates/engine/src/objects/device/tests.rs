//! The device in objects, on the twin in memory.

use oncefs_rados::MemoryObjects;

use super::*;

const OBJECT: u64 = 64 << 10;
const HEADER: ImageHeader = ImageHeader { volume_id: [1; 16], len: 16 * OBJECT, object_bytes: OBJECT };

fn open(objects: &MemoryObjects) -> ObjectDevice {
    let header = ObjectDevice::header(objects, "data").unwrap().expect("it was made");
    let objects: Arc<dyn Objects> = Arc::new(objects.clone());
    ObjectDevice::new(objects.clone(), "data", header, Arc::new(ObjectRoom::of(objects)))
}

fn device() -> (MemoryObjects, ObjectDevice) {
    let objects = MemoryObjects::default();
    ObjectDevice::create(&objects, "data", HEADER).unwrap();
    let device = open(&objects);
    (objects, device)
}

fn read(device: &ObjectDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    device.read_at(&mut bytes, at).unwrap();
    bytes
}

/// The numbers of the objects with content.
fn there(objects: &MemoryObjects) -> Vec<u64> {
    let numbered = |name: String| u64::from_str_radix(name.strip_prefix("data.")?, 16).ok();
    objects.names().unwrap().into_iter().filter_map(numbered).collect()
}

#[test]
fn what_is_written_across_objects_is_read_at_once() {
    let (objects, device) = device();
    let bytes: Vec<u8> = (0..3 * OBJECT).map(|n| (n / 512) as u8).collect();
    device.write_at(&bytes, OBJECT / 2).unwrap();
    assert_eq!(objects.awaited(), 1, "only the header was awaited");
    assert_eq!(read(&device, OBJECT / 2, bytes.len()), bytes);
    assert_eq!(read(&device, 0, 16), [0; 16]);
    assert_eq!(there(&objects), [0, 1, 2, 3]);
    device.flush().unwrap();
    assert_eq!(read(&open(&objects.after_crash(|_, left| left)), OBJECT / 2, bytes.len()), bytes);
}

#[test]
fn pieces_of_several_reads_find_their_places() {
    let (_, device) = device();
    device.write_at(&[1; 4096], OBJECT - 4096).unwrap();
    device.write_at(&[2; 4096], OBJECT + 4096).unwrap();
    let (mut first, mut second, mut beyond) = ([0; 4096], [0; 4096], [0; 4096]);
    let mut read = Io::read(OBJECT - 4096, &mut first);
    read.join(4096, &mut second);
    let mut ios = [read, Io::read(HEADER.len, &mut beyond), Io::write(0, &[3; 4096])];
    device.submit(&mut ios);
    let [read, beyond, write] = ios;
    read.into_result().unwrap();
    write.into_result().unwrap();
    assert_eq!(beyond.into_result().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!((first, second), ([1; 4096], [2; 4096]));
}

#[test]
fn a_crash_may_keep_a_part_of_a_write_that_crosses_objects() {
    let (objects, device) = device();
    device.write_at(&[1; 8192], OBJECT - 4096).unwrap();
    let after = |kept: &str| {
        let crashed = objects.after_crash(|name, left| if name.ends_with(kept) { left } else { 0 });
        read(&open(&crashed), OBJECT - 4096, 8192)
    };
    assert_eq!(after("data.0000000000000001"), [[0; 4096], [1; 4096]].concat());
    assert_eq!(after("data.0000000000000000"), [[1; 4096], [0; 4096]].concat());
    device.flush().unwrap();
    assert_eq!(after("nothing"), [1; 8192]);
}

#[test]
fn a_hole_reads_as_zeros_and_an_object_that_is_all_hole_goes() {
    let (objects, device) = device();
    device.write_at(&vec![1; 3 * OBJECT as usize], 0).unwrap();
    device.punch(4096, 2 * OBJECT - 4096).unwrap();
    device.flush().unwrap();
    assert_eq!(there(&objects), [0, 2]);
    assert_eq!(read(&device, 0, 8192), [[1; 4096], [0; 4096]].concat());
    assert_eq!(read(&device, 2 * OBJECT - 4096, 8192), [[0; 4096], [1; 4096]].concat());
    device.punch(OBJECT, OBJECT).unwrap();
    device.flush().unwrap();
    assert_eq!(device.next_data(0).unwrap(), Some(0));
    assert_eq!(device.next_data(4096).unwrap(), Some(2 * OBJECT));
    assert_eq!(device.next_data(3 * OBJECT).unwrap(), None);
}

/// There the space of a part would not come back, and zeros cost as much as a write.
#[test]
fn of_an_erasure_coded_image_only_whole_objects_go() {
    let (objects, device) = device();
    let device = device.erasure_coded();
    device.write_at(&vec![1; 3 * OBJECT as usize], 0).unwrap();
    device.flush().unwrap();
    let awaited = objects.awaited();
    assert_eq!(device.punch(4096, 8192).unwrap_err().kind(), io::ErrorKind::Unsupported);
    device.flush().unwrap();
    assert_eq!(objects.awaited(), awaited, "nothing was changed");
    device.punch(4096, 2 * OBJECT - 4096).unwrap();
    device.flush().unwrap();
    assert_eq!(there(&objects), [0, 2]);
    assert_eq!(read(&device, 4096, 4096), [1; 4096], "as on a raw device");
}

#[test]
fn objects_of_a_deleted_pool_are_no_holes_and_nothing_is_removed_there() {
    let (objects, device) = device();
    device.write_at(&[1; OBJECT as usize], 0).unwrap();
    device.flush().unwrap();
    objects.delete_pool();
    for at in [0, 5 * OBJECT] {
        let failed = device.read_at(&mut [0xEE; 4096], at).unwrap_err();
        assert!(failed.to_string().contains("is gone"), "{failed}");
    }
    device.next_data(0).unwrap_err();
    device.punch(0, OBJECT).unwrap();
    assert!(device.flush().unwrap_err().to_string().contains("is gone"), "the removal was not done");
}

#[test]
fn an_image_grows_durably_and_is_virtual() {
    let (objects, device) = device();
    device.grow(100 << 40).unwrap();
    device.grow(1).unwrap();
    device.write_at(&[5; 4096], (100 << 40) - 4096).unwrap();
    device.flush().unwrap();
    let crashed = open(&objects.after_crash(|_, _| 0));
    assert_eq!(crashed.len().unwrap(), 100 << 40);
    assert_eq!(read(&crashed, (100 << 40) - 4096, 4096), [5; 4096]);
    assert_eq!(there(&objects).len(), 1);
}

#[test]
fn a_full_pool_loses_nothing_and_says_that_it_is_full() {
    let objects = MemoryObjects::default();
    ObjectDevice::create(&objects, "data", HEADER).unwrap();
    let shared: Arc<dyn Objects> = Arc::new(objects.clone());
    let room = Arc::new(ObjectRoom::of(shared.clone()));
    let device = ObjectDevice::new(shared, "data", HEADER, room.clone());
    objects.set_full(true);
    device.write_at(&[1; 4096], 0).unwrap();
    device.flush().unwrap();
    assert!(room.is_full());
    assert_eq!(read(&open(&objects.after_crash(|_, _| 0)), 0, 4096), [1; 4096]);
}

#[test]
fn a_failed_write_fails_this_flush_and_every_later_one() {
    let (objects, device) = device();
    objects.fence();
    device.write_at(&[1; 4096], 0).unwrap();
    for _ in 0..2 {
        assert!(device.flush().unwrap_err().to_string().contains("blocklisted"));
    }
}

#[test]
fn what_is_in_flight_is_bounded() {
    let (objects, device) = device();
    for at in 0..600 {
        device.punch(at % 16 * OBJECT, 4096).unwrap();
    }
    assert!(objects.awaited() >= 600 - 256, "{} were awaited", objects.awaited());
}
