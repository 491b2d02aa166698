//! Guarantees of POSIX and Linux that random operations do not test: times, modes, ACLs, cookies, orphans, threads.

use std::collections::BTreeSet;
use std::thread;

use crate::common::{DATA_BYTES, ROOT, Volume, at, contradictions, directory, file, names};
use oncefs_fs::{
    AllocateMode, AtimePolicy, Caller, Error, FILE_BYTES_MAX, FileSystem, Ino, Privileges, RenameMode, SetAttributes,
    SetTime, WriteOrigin, XattrMode,
};
use oncefs_toolbox::Random;
use oncefs_toolbox::waiting::eventually;

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Owner rwx, user 1000 rwx, group r-x, mask rwx, others r-x.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 5, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn assert_consistent(file_system: &FileSystem) {
    assert_eq!(contradictions(file_system), Vec::<String>::new());
}

#[test]
fn a_directory_does_not_take_the_place_of_the_one_it_is_in() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let outer = directory(&file_system, Ino::ROOT, "name").ino;
    let inner = directory(&file_system, outer, "name").ino;
    for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
        let refused = file_system.rename(outer, b"name", Ino::ROOT, b"name", mode).unwrap_err();
        let is_expected = match mode {
            RenameMode::Replace => matches!(refused, Error::NotEmpty),
            RenameMode::NoReplace => matches!(refused, Error::Exists),
            RenameMode::Exchange => matches!(refused, Error::Invalid(_)),
        };
        assert!(is_expected, "{mode:?}: {refused:?}");
    }
    assert_eq!(file_system.lookup(outer, b"name").unwrap().ino, inner);
    assert_consistent(&file_system);
}

#[test]
fn a_listing_goes_on_at_its_cookie_while_names_come_and_go() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    for number in 0..3000 {
        file(&file_system, Ino::ROOT, &format!("stays {number}"));
        file(&file_system, Ino::ROOT, &format!("goes {number}"));
    }
    let (mut cookie, mut seen, mut round) = (0, Vec::new(), 0);
    loop {
        let before = seen.len();
        file_system
            .readdir(Ino::ROOT, cookie, &mut |entry| {
                cookie = entry.cookie;
                seen.push(entry.name.to_vec());
                seen.len() < before + 100
            })
            .unwrap();
        if seen.len() == before {
            break;
        }
        for number in round * 40..3000.min((round + 1) * 40) {
            file_system.unlink(Ino::ROOT, format!("goes {number}").as_bytes()).unwrap();
            file(&file_system, Ino::ROOT, &format!("new {number}"));
        }
        round += 1;
    }
    assert_eq!(&seen[..2], [b".".to_vec(), b"..".to_vec()]);
    let unique: BTreeSet<&Vec<u8>> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "a name was listed twice");
    let staying = unique.iter().filter(|name| name.starts_with(b"stays")).count();
    assert_eq!(staying, 3000, "names that were there all the time were not listed");
    assert_consistent(&file_system);
}

#[test]
fn names_of_255_bytes_work_and_longer_ones_are_refused() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    let made = file(&file_system, Ino::ROOT, &longest);
    assert_eq!(file_system.lookup(Ino::ROOT, longest.as_bytes()).unwrap().ino, made.ino);
    assert!(matches!(file_system.lookup(Ino::ROOT, longer.as_bytes()), Err(Error::NameTooLong)));
    assert!(matches!(file_system.mkdir(Ino::ROOT, longer.as_bytes(), 0o755, &ROOT), Err(Error::NameTooLong)));
    let renamed = file_system.rename(Ino::ROOT, longest.as_bytes(), Ino::ROOT, longer.as_bytes(), RenameMode::Replace);
    assert!(matches!(renamed, Err(Error::NameTooLong)));
    let target = "t".repeat(4096);
    assert!(matches!(file_system.symlink(Ino::ROOT, b"s", target.as_bytes(), &ROOT), Err(Error::NameTooLong)));
}

#[test]
fn a_file_has_at_most_65000_names() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let made = file(&file_system, Ino::ROOT, "0");
    for number in 1..65_000 {
        file_system.link(made.ino, Ino::ROOT, number.to_string().as_bytes()).unwrap();
    }
    assert!(matches!(file_system.link(made.ino, Ino::ROOT, b"one more"), Err(Error::TooManyLinks)));
    assert_eq!(file_system.getattr(made.ino).unwrap().nlink, 65_000);
    assert_consistent(&file_system);
}

#[test]
fn a_deleted_file_lives_while_it_is_used_and_not_over_a_reopening() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let made = file(&file_system, Ino::ROOT, "open");
    file_system.write(made.ino, 0, &[7; 50_000], BY_CALLER).unwrap();
    file_system.setxattr(made.ino, b"user.x", b"y", XattrMode::Any, true).unwrap();
    assert_eq!(file_system.unlink(Ino::ROOT, b"open").unwrap(), Some(made.ino));
    assert_eq!(&*file_system.read(made.ino, 49_999, 10, true).unwrap(), [7]);
    assert!(matches!(file_system.link(made.ino, Ino::ROOT, b"again"), Err(Error::NotFound)));
    assert!(matches!(file_system.lookup(made.ino, b"."), Err(Error::Stale)));
    assert_consistent(&file_system);
    file_system.close().unwrap();
    drop(file_system);

    let file_system = volume.open_with_threads();
    eventually("the orphan is reclaimed", || file_system.getattr(made.ino).is_err());
    assert!(matches!(file_system.getattr(made.ino), Err(Error::Stale)), "the orphan was not reclaimed");
    assert_consistent(&file_system);
}

#[test]
fn inode_numbers_are_not_used_again_after_a_reopening() {
    let volume = Volume::new(AtimePolicy::Never);
    let mut last = 0;
    for round in 0..3 {
        let file_system = volume.open();
        for number in 0..1500 {
            let made = file(&file_system, Ino::ROOT, &format!("{round} {number}"));
            assert!(made.ino.0 > last);
            last = made.ino.0;
        }
        file_system.close().unwrap();
    }
}

#[test]
fn a_directory_cannot_be_moved_below_itself() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let outer = directory(&file_system, Ino::ROOT, "outer").ino;
    let inner = directory(&file_system, outer, "inner").ino;
    let rename = |from: Ino, name: &[u8], to: Ino, mode| file_system.rename(from, name, to, b"x", mode);
    assert!(matches!(rename(Ino::ROOT, b"outer", outer, RenameMode::Replace), Err(Error::Invalid(_))));
    assert!(matches!(rename(Ino::ROOT, b"outer", inner, RenameMode::Replace), Err(Error::Invalid(_))));
    directory(&file_system, inner, "x");
    let exchanged = file_system.rename(inner, b"x", Ino::ROOT, b"outer", RenameMode::Exchange);
    assert!(matches!(exchanged, Err(Error::Invalid(_))));
    assert_consistent(&file_system);
}

#[test]
fn threads_that_move_directories_around_make_no_cycle_and_lose_nothing() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let directories: Vec<Ino> =
        (0..6).map(|number| directory(&file_system, Ino::ROOT, &format!("d{number}")).ino).collect();
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (file_system, directories) = (&file_system, &directories);
            scope.spawn(move || {
                let mut choices = Random::new(seed);
                let mut random = |end: usize| choices.index(end);
                for number in 0..500 {
                    let (from, to) = (directories[random(6)], directories[random(6)]);
                    let (old, new) = (format!("d{}", random(6)), format!("d{}", random(6)));
                    let mode = if random(2) == 0 { RenameMode::Replace } else { RenameMode::Exchange };
                    // Most of these are refused, because other threads move the directories meanwhile.
                    let parent = if random(2) == 0 { Ino::ROOT } else { from };
                    if let Ok(Some(orphan)) = file_system.rename(parent, old.as_bytes(), to, new.as_bytes(), mode) {
                        file_system.mkdir(Ino::ROOT, format!("new {seed} {number}").as_bytes(), 0o755, &ROOT).unwrap();
                        file_system.forget(orphan).unwrap();
                    }
                    let _ = file_system.mknod(to, new.as_bytes(), libc::S_IFREG, 0, &ROOT);
                    let _ = file_system.unlink(from, new.as_bytes());
                }
            });
        }
    });
    assert_consistent(&file_system);
}

#[test]
fn threads_that_write_append_and_truncate_one_file_keep_its_size_and_blocks() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "busy").ino;
    thread::scope(|scope| {
        for seed in 1..4_u64 {
            let file_system = &file_system;
            scope.spawn(move || {
                for round in 0..200_u64 {
                    file_system.write(ino, round * seed * 512, &[seed as u8; 9000], BY_CALLER).unwrap();
                    if round % 20 == seed {
                        let set = SetAttributes { size: Some(round % 3 * 5000), ..SetAttributes::default() };
                        file_system.setattr(ino, &set).unwrap();
                    }
                }
            });
        }
    });
    let attributes = file_system.getattr(ino).unwrap();
    assert_eq!(file_system.read(ino, 0, 1 << 20, true).unwrap().len() as u64, attributes.size);
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(file_system.setattr(ino, &set).unwrap().blocks, 0);
}

#[test]
fn relatime_notes_the_first_read_after_a_write_and_one_a_day() {
    let volume = Volume::new(AtimePolicy::Relative);
    let file_system = volume.open();
    volume.clock.set(1000);
    let ino = file(&file_system, Ino::ROOT, "read").ino;
    file_system.write(ino, 0, b"data", BY_CALLER).unwrap();
    let read_at = |time: i64| {
        volume.clock.set(time);
        file_system.read(ino, 0, 4, true).unwrap();
        file_system.getattr(ino).unwrap().atime
    };
    assert_eq!(read_at(1010), at(1010));
    assert_eq!(read_at(1020), at(1010));
    assert_eq!(read_at(1010 + 24 * 60 * 60), at(1010 + 24 * 60 * 60));
    file_system.set_atime_policy(AtimePolicy::Strict);
    assert_eq!(read_at(200_000), at(200_000));
    assert_eq!(read_at(200_001), at(200_001));
    file_system.set_atime_policy(AtimePolicy::Never);
    assert_eq!(read_at(300_000), at(200_001));
    file_system.set_atime_policy(AtimePolicy::Strict);
    volume.clock.set(400_000);
    file_system.read(ino, 0, 4, false).unwrap();
    assert_eq!(file_system.getattr(ino).unwrap().atime, at(200_001), "O_NOATIME");
}

#[test]
fn writes_of_the_page_cache_leave_times_and_modes_alone() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    volume.clock.set(10);
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.setattr(ino, &SetAttributes { permissions: Some(0o6755), ..SetAttributes::default() }).unwrap();
    volume.clock.set(20);
    file_system.write(ino, 5000, b"cached", WriteOrigin::PageCache).unwrap();
    let attributes = file_system.getattr(ino).unwrap();
    assert_eq!((attributes.mtime, attributes.permissions, attributes.size), (at(10), 0o6755, 5006));
    file_system
        .write(ino, 0, b"direct", WriteOrigin::Caller { privileges: Privileges::Dropped { is_group_member: true } })
        .unwrap();
    let attributes = file_system.getattr(ino).unwrap();
    assert_eq!((attributes.mtime, attributes.ctime, attributes.permissions), (at(20), at(20), 0o755));
}

#[test]
fn set_group_id_directories_hand_down_their_group() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let parent = file_system
        .mkdir(Ino::ROOT, b"shared", 0o2775, &Caller { uid: 1, gid: 50, umask: 0, labels: &[] })
        .unwrap()
        .ino;
    let caller = Caller { uid: 2, gid: 2, umask: 0o022, labels: &[] };
    let inside = file_system.mknod(parent, b"file", libc::S_IFREG | 0o666, 0, &caller).unwrap();
    assert_eq!((inside.uid, inside.gid, inside.permissions), (2, 50, 0o644));
    let below = file_system.mkdir(parent, b"below", 0o777, &caller).unwrap();
    assert_eq!((below.gid, below.permissions), (50, 0o2755));
}

#[test]
fn a_new_owner_takes_the_privileges_away() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "program").ino;
    let set = |set: SetAttributes| file_system.setattr(ino, &set).unwrap().permissions;
    set(SetAttributes { permissions: Some(0o6755), ..SetAttributes::default() });
    assert_eq!(set(SetAttributes { uid: Some(5), ..SetAttributes::default() }), 0o755);
    set(SetAttributes { permissions: Some(0o2644), ..SetAttributes::default() });
    assert_eq!(set(SetAttributes { gid: Some(5), ..SetAttributes::default() }), 0o2644, "mandatory locking's mark");
    assert_eq!(
        set(SetAttributes {
            size: Some(1),
            privileges: Privileges::Dropped { is_group_member: true },
            ..SetAttributes::default()
        }),
        0o2644
    );
}

#[test]
fn times_are_set_to_the_nanosecond_and_before_1970() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "old").ino;
    volume.clock.set(77);
    let old = oncefs_fs::Timestamp { seconds: -1_000_000_000_000, nanoseconds: 123_456_789 };
    let set = SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::At(old)), ..SetAttributes::default() };
    file_system.setattr(ino, &set).unwrap();
    file_system.close().unwrap();
    drop(file_system);
    let attributes = volume.open().getattr(ino).unwrap();
    assert_eq!((attributes.atime, attributes.mtime, attributes.ctime), (at(77), old, at(77)));
}

#[test]
fn a_default_acl_is_handed_down_in_place_of_the_umask() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let parent = directory(&file_system, Ino::ROOT, "parent").ino;
    file_system.setxattr(parent, DEFAULT_ACL, &acl(), XattrMode::Any, true).unwrap();
    let caller = Caller { uid: 0, gid: 0, umask: 0o077, labels: &[] };
    let inside = file_system.mknod(parent, b"file", libc::S_IFREG | 0o660, 0, &caller).unwrap();
    assert_eq!(inside.permissions, 0o660);
    assert!(file_system.getxattr(inside.ino, ACCESS_ACL).is_ok());
    assert!(matches!(file_system.getxattr(inside.ino, DEFAULT_ACL), Err(Error::NoData)));
    let below = file_system.mkdir(parent, b"below", 0o777, &caller).unwrap();
    assert_eq!(below.permissions, 0o775);
    assert_eq!(file_system.getxattr(below.ino, DEFAULT_ACL).unwrap(), acl());
    let link = file_system.symlink(parent, b"link", b"file", &caller).unwrap();
    assert_eq!(file_system.listxattr(link.ino).unwrap(), b"");
    assert_consistent(&file_system);
}

#[test]
fn permission_bits_and_access_acl_follow_each_other() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.setattr(ino, &SetAttributes { permissions: Some(0o2600), ..SetAttributes::default() }).unwrap();
    file_system.setxattr(ino, ACCESS_ACL, &acl(), XattrMode::Any, false).unwrap();
    assert_eq!(file_system.getattr(ino).unwrap().permissions, 0o775, "set-group-id goes, the bits show the mask");
    file_system.setattr(ino, &SetAttributes { permissions: Some(0o640), ..SetAttributes::default() }).unwrap();
    let stored = file_system.getxattr(ino, ACCESS_ACL).unwrap();
    let permissions: Vec<u8> = stored[4..].chunks(8).map(|entry| entry[2]).collect();
    assert_eq!(permissions, [6, 7, 5, 4, 0]);
    file_system.removexattr(ino, ACCESS_ACL).unwrap();
    file_system.removexattr(ino, ACCESS_ACL).unwrap();
    assert_eq!(file_system.getattr(ino).unwrap().permissions, 0o640);
    assert!(matches!(file_system.setxattr(ino, ACCESS_ACL, b"junk", XattrMode::Any, true), Err(Error::Invalid(_))));
    assert!(matches!(
        file_system.setxattr(ino, DEFAULT_ACL, &acl(), XattrMode::Any, true),
        Err(Error::PermissionDenied)
    ));
    assert_consistent(&file_system);
}

#[test]
fn extended_attributes_keep_to_their_rules() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    let set = |name: &str, value: &[u8], mode| file_system.setxattr(ino, name.as_bytes(), value, mode, true);
    assert!(matches!(set("user.a", b"", XattrMode::Replace), Err(Error::NoData)));
    set("user.a", b"", XattrMode::Create).unwrap();
    assert!(matches!(set("user.a", b"", XattrMode::Create), Err(Error::Exists)));
    set("user.a", &[1; 65536], XattrMode::Replace).unwrap();
    assert!(matches!(set("user.a", &[1; 65537], XattrMode::Any), Err(Error::TooBig)));
    let long = format!("user.{}", "n".repeat(251));
    assert!(matches!(set(&long, b"", XattrMode::Any), Err(Error::Range)));
    assert!(matches!(set("unknown.a", b"", XattrMode::Any), Err(Error::NotSupported)));
    assert!(matches!(set("user.", b"", XattrMode::Any), Err(Error::NotSupported)));
    for number in 0..200 {
        set(&format!("user.{number:03}"), b"v", XattrMode::Any).unwrap();
    }
    let list = file_system.listxattr(ino).unwrap();
    assert_eq!(list.iter().filter(|byte| **byte == 0).count(), 201);
    assert_consistent(&file_system);
}

#[test]
fn a_file_may_be_as_large_as_its_map_and_not_larger() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "large").ino;
    file_system.write(ino, FILE_BYTES_MAX - 1, b"x", BY_CALLER).unwrap();
    assert!(matches!(file_system.write(ino, FILE_BYTES_MAX, b"x", BY_CALLER), Err(Error::FileTooLarge)));
    assert!(matches!(file_system.write(ino, u64::MAX, b"x", BY_CALLER), Err(Error::FileTooLarge)));
    let set = SetAttributes { size: Some(FILE_BYTES_MAX + 1), ..SetAttributes::default() };
    assert!(matches!(file_system.setattr(ino, &set), Err(Error::FileTooLarge)));
    let reserved = file_system.fallocate(ino, u64::MAX, 2, AllocateMode::PunchHole, Privileges::Kept);
    assert!(matches!(reserved, Err(Error::FileTooLarge)));
    assert_eq!(file_system.getattr(ino).unwrap().blocks, 1);
}

#[test]
fn reserving_more_than_there_is_changes_nothing() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    let reserve = AllocateMode::Reserve { keep_size: false };
    assert!(matches!(file_system.fallocate(ino, 0, 2 * DATA_BYTES, reserve, Privileges::Kept), Err(Error::NoSpace)));
    let attributes = file_system.getattr(ino).unwrap();
    assert_eq!((attributes.size, attributes.blocks), (0, 0));
    let before = file_system.statfs().available;
    file_system.fallocate(ino, 0, 1 << 20, reserve, Privileges::Kept).unwrap();
    assert_eq!(file_system.getattr(ino).unwrap().blocks, 256);
    assert!(file_system.statfs().available <= before - 256);
}

#[test]
fn a_copy_within_a_full_volume_takes_no_space() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let (source, target) = (file(&file_system, Ino::ROOT, "a").ino, file(&file_system, Ino::ROOT, "b").ino);
    let data: Vec<u8> = (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    file_system.write(source, 0, &data, BY_CALLER).unwrap();
    let before = file_system.store().totals().used;
    assert_eq!(
        file_system.copy_file_range(source, 0, target, 0, u64::MAX / 2, Privileges::Kept).unwrap(),
        data.len() as u64
    );
    assert_eq!(file_system.store().totals().used, before);
    assert!(*file_system.read(target, 0, data.len(), true).unwrap() == data[..]);
    assert_eq!(file_system.getattr(target).unwrap().blocks, file_system.getattr(source).unwrap().blocks);
    let overlapping = file_system.copy_file_range(source, 0, source, 4096, 8192, Privileges::Kept);
    assert!(matches!(overlapping, Err(Error::Invalid(_))));
}

#[test]
fn a_file_system_opened_for_reading_refuses_changes_and_keeps_orphans() {
    let volume = Volume::new(AtimePolicy::Strict);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file(&file_system, Ino::ROOT, "gone");
    let orphan = file_system.unlink(Ino::ROOT, b"gone").unwrap().unwrap();
    file_system.close().unwrap();
    drop(file_system);
    let file_system = volume.open_read_only();
    assert_eq!(names(&file_system, Ino::ROOT), [b"file"]);
    assert!(matches!(file_system.unlink(Ino::ROOT, b"file"), Err(Error::ReadOnly(_))));
    assert!(matches!(file_system.write(ino, 0, b"x", BY_CALLER), Err(Error::ReadOnly(_))));
    assert_eq!(file_system.getattr(orphan).unwrap().nlink, 0);
    assert_consistent(&file_system);
}

#[test]
fn an_inode_that_a_crash_took_has_another_generation_than_the_next_one_of_its_number() {
    let volume = Volume::new(AtimePolicy::Never);
    let made_before_a_crash = |generation, name, is_durable| {
        let file_system = volume.open_as(generation);
        let made = file(&file_system, Ino::ROOT, name);
        if is_durable {
            file_system.store().commit().unwrap();
        }
        file_system.store().shut_down();
        assert!(file_system.close().is_err(), "nothing becomes durable any more");
        made
    };
    let lost = made_before_a_crash(1, "lost", false);
    let kept = made_before_a_crash(2, "kept", true);
    assert_eq!(kept.ino, lost.ino, "nothing durable says that the number was given");
    assert_eq!((lost.generation, kept.generation), (1, 2), "a handle has the number and this");
    let later = made_before_a_crash(3, "later", true);
    assert!(later.ino > kept.ino, "the number of a durable inode is not given again");
    let found = volume.open_as(4).lookup(Ino::ROOT, b"kept").unwrap();
    assert_eq!((found.ino, found.generation), (kept.ino, 2));
}
