//! Wrong input of every kind: one line with the way out, the exit code of the command's family, nothing changed.
//! Not covered: damage inside the structures (the engine's and the file system's own tests).

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use crate::common::{BINARY, LoopDevice, Place, Run, in_own_namespace, oncefs};

#[test]
fn a_command_that_does_not_exist_is_refused() {
    oncefs(&["frobnicate"]).fails(2, &["frobnicate", "oncefs --help"]);
    oncefs::<&str>(&[]).fails(2, &["oncefs --help"]);
}

#[test]
fn help_of_every_command_has_examples_or_arguments_and_goes_to_stdout() {
    for command in ["mkfs", "mount", "umount", "fsck", "list", "metrics", "top", "status", "stats", "grow", "sync"] {
        let run = oncefs(&[command, "--help"]).succeeds();
        assert!(run.out.contains("Usage:") && run.err.is_empty(), "{run:?}");
    }
    assert!(oncefs(&["--help"]).succeeds().out.contains("/etc/fstab"));
    assert!(oncefs(&["version"]).succeeds().out.starts_with("oncefs "));
}

#[test]
fn a_volume_is_not_made_over_something_else() {
    let place = Place::with_volume();
    oncefs(&["mkfs", place.volume_str()]).fails(1, &["is a volume already", "choose another path"]);
    fs::create_dir(place.path("full")).unwrap();
    fs::write(place.path("full/letter"), "dear").unwrap();
    oncefs(&["mkfs", &place.str("full")]).fails(1, &["not empty"]);
    oncefs(&["mkfs", &place.str("full/letter")]).fails(1, &["letter"]);
    assert_eq!(fs::read(place.path("full/letter")).unwrap(), b"dear");
}

/// Runs mkfs with a limit on the size of files. The limit's signal kills it at the first larger file.
fn killed_mkfs(arguments: &str, blocks_of_512_bytes: u64) {
    let script = format!("ulimit -f {blocks_of_512_bytes}; exec {BINARY} mkfs {arguments}");
    let killed = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(killed.status.signal(), Some(libc::SIGXFSZ), "{killed:?}");
}

#[test]
fn a_volume_whose_mkfs_was_killed_says_what_to_do_and_that_helps() {
    let place = Place::new();
    let volume = place.volume_str();
    killed_mkfs(&format!("--size 64M {volume}"), 2048);
    let way_out = &["was not made to its end", "oncefs mkfs"];
    oncefs(&["fsck", volume]).fails(8, way_out);
    place.mount(&[]).fails(32, way_out);
    oncefs(&["mkfs", "--size", "64M", volume]).succeeds();
    assert!(oncefs(&["fsck", volume]).succeeds().out.contains("clean"));
    oncefs(&["mkfs", volume]).fails(1, &["is a volume already"]);
    place.mount(&[]).succeeds();
}

#[test]
fn the_directory_of_a_volume_is_not_taken_for_its_mount_and_the_way_there_is_said() {
    let place = Place::with_volume();
    let (volume, mnt) = (place.volume_str(), place.mnt_str());
    let refused = |advice: &[&str]| {
        for command in ["explain", "defrag", "clone", "send"] {
            let more = if command == "clone" { Some("/new") } else { None };
            let arguments: Vec<&str> = [command, volume].into_iter().chain(more).collect();
            oncefs(&arguments).fails(1, advice);
        }
        oncefs(&["snapshot", "create", volume, "one"]).fails(1, advice);
    };
    refused(&["is a volume that is not mounted", &format!("oncefs mount {volume} DIR")]);
    place.mount(&[]).succeeds();
    refused(&[&format!("is the volume that is mounted on {mnt}: give a path there")]);
}

#[test]
fn a_device_that_a_killed_mkfs_labelled_is_taken_by_the_next_one_and_by_no_other() {
    let place = Place::new();
    let image = place.str("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (volume, other, device) = (place.volume_str(), place.str("other"), LoopDevice::of(&image));
    // The block table fits, the log does not.
    killed_mkfs(&format!("--log-size 32M --data {} {volume}", device.0), 32768);
    oncefs(&["mkfs", &other, "--data", &device.0]).fails(1, &["blocks of an oncefs volume", "--force"]);
    oncefs(&["mkfs", volume, "--data", &device.0]).succeeds();
    assert!(oncefs(&["fsck", "-d", volume]).succeeds().out.contains("clean"));
}

#[test]
fn sizes_that_make_no_sense_are_refused_and_nothing_is_left_behind() {
    let place = Place::new();
    oncefs(&["mkfs", place.volume_str(), "--size", "1e9"]).fails(2, &["such as 512M"]);
    oncefs(&["mkfs", place.volume_str(), "--size", "4K"]).fails(1, &["at least"]);
    oncefs(&["mkfs", place.volume_str(), "--size", "1G", "--log-size", "1K"]).fails(1, &["log"]);
    assert!(!place.volume().exists());
}

#[test]
fn a_data_device_must_be_a_block_device() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    oncefs(&["mkfs", place.volume_str(), "--data", &place.str("file")]).fails(1, &["not a block device"]);
    oncefs(&["mkfs", place.volume_str(), "--data", &place.str("nowhere")]).fails(1, &["nowhere"]);
    assert!(!place.volume().exists());
}

#[test]
fn what_is_not_a_volume_is_not_mounted_and_mkfs_is_suggested() {
    let place = Place::new();
    place.mount(&[]).fails(32, &["oncefs mkfs"]);
    fs::create_dir(place.volume()).unwrap();
    place.mount(&[]).fails(32, &["not an oncefs volume", "oncefs mkfs"]);
    assert!(!place.is_mounted());
}

#[test]
fn a_mount_point_must_be_a_directory_outside_of_the_volume() {
    let place = Place::with_volume();
    let volume = place.volume_str();
    oncefs(&["mount", volume, &place.str("nowhere")]).fails(32, &["mkdir -p"]);
    fs::write(place.path("file"), "x").unwrap();
    oncefs(&["mount", volume, &place.str("file")]).fails(32, &["not a directory"]);
    oncefs(&["mount", volume, volume]).fails(32, &["may contain the other"]);
    let above = place.volume().parent().unwrap().to_owned();
    oncefs(&["mount", volume, above.to_str().unwrap()]).fails(32, &["may contain the other"]);
}

#[test]
fn unknown_and_senseless_mount_options_are_refused_by_name() {
    let place = Place::with_volume();
    place.mount(&["-o", "checksum=crc"]).fails(2, &["'checksum=crc'"]);
    place.mount(&["-o", "memory=5K"]).fails(2, &["memory=5K", "at least"]);
    place.mount(&["-o", "profile=turbo"]).fails(2, &["turbo", "lrlfs"]);
    place.mount(&["--threads", "0"]).fails(2, &["threads=0"]);
    place.mount(&["-o", "logfile=relative.log"]).fails(2, &["absolute"]);
    place.mount(&["--log-file", "/proc/nowhere/log"]).fails(2, &["/proc/nowhere/log"]);
    assert!(!place.is_mounted());
}

#[test]
fn a_volume_of_a_newer_format_is_refused() {
    let place = Place::with_volume();
    // In both files, because a change in one alone would count as damage.
    for part in ["volume/superblock", "volume/copies/superblock"] {
        let mut superblock = fs::read(place.path(part)).unwrap();
        // The version is the 32-bit number after the 16 bytes of magic. It is checked before the checksum.
        superblock[16..20].copy_from_slice(&99u32.to_le_bytes());
        fs::write(place.path(part), superblock).unwrap();
    }
    place.mount(&[]).fails(32, &["version 99", "newer oncefs"]);
    oncefs(&["fsck", place.volume_str()]).fails(8, &["version 99"]);
}

#[test]
fn a_volume_with_a_missing_or_truncated_part_is_refused_by_name_of_the_part() {
    for part in ["data", "table", "log", "records"] {
        let place = Place::with_volume();
        fs::rename(place.path(&format!("volume/{part}")), place.path("elsewhere")).unwrap();
        place.mount(&[]).fails(32, &[part, "missing"]);
        assert_eq!(oncefs(&["fsck", place.volume_str()]).code, Some(4));
        fs::rename(place.path("elsewhere"), place.path(&format!("volume/{part}"))).unwrap();
        place.mount(&[]).succeeds();
    }
    for (part, words) in [("data", "data area"), ("table", "block table"), ("superblock", "superblock")] {
        let place = Place::with_volume();
        // Without its copy, which would replace a damaged superblock.
        fs::remove_file(place.path("volume/copies/superblock")).unwrap();
        let file = File::options().write(true).open(place.path(&format!("volume/{part}"))).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        place.mount(&[]).fails(32, &[words]);
    }
}

#[test]
fn a_record_file_that_is_gone_with_its_copy_is_named_and_given_up_only_if_asked() {
    let place = Place::mounted();
    fs::write(place.file("file"), "content").unwrap();
    place.umount().succeeds();
    let listed = fs::read_dir(place.path("volume/records")).unwrap().map(|entry| entry.unwrap().file_name());
    let name = listed.map(|name| name.into_string().unwrap()).find(|name| name.ends_with(".sst")).unwrap();
    for folder in ["volume/records", "volume/copies"] {
        fs::remove_file(place.path(folder).join(&name)).unwrap();
    }
    let way_out: &[&str] = &[&name, "neither the record file nor a copy is there", "--salvage"];
    for how in ["-n", "-p", "-y"] {
        let run = oncefs(&["fsck", how, place.volume_str()]);
        assert!(!run.err.contains("restores it"), "{run:?}");
        run.fails(4, way_out);
    }
    place.mount(&[]).fails(32, way_out);
    let without: &[&str] = &[&name, "neither the record file nor a copy is there", &format!("--without {name}")];
    oncefs(&["fsck", "--salvage", place.volume_str()]).fails(4, without);
    oncefs(&["fsck", "--salvage", "--without", "000000.sst", place.volume_str()]).fails(4, without);
    assert!(!place.path("volume/records.damaged").exists(), "nothing was exchanged");
    let salvaged = oncefs(&["fsck", "--salvage", "--without", &name, place.volume_str()]);
    assert_eq!(salvaged.code, Some(1), "{salvaged:?}");
    assert!(salvaged.out.contains(&name) && salvaged.out.contains("records that were lost"), "{salvaged:?}");
    assert!(oncefs(&["fsck", place.volume_str()]).succeeds().out.contains("clean"));
}

#[test]
fn a_data_device_that_shrank_is_refused() {
    let place = Place::new();
    let image = place.str("image");
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    let device = LoopDevice::of(&image);
    oncefs(&["mkfs", place.volume_str(), "--data", &device.0]).succeeds();
    place.mount(&[]).succeeds();
    place.umount().succeeds();
    File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
    Run::of(Command::new("losetup").args(["--set-capacity", &device.0])).succeeds();
    place.mount(&[]).fails(32, &["data area", "shrink"]);
}

#[test]
fn a_data_device_is_found_by_its_label_and_changed_only_if_it_is_named() {
    let place = Place::new();
    let image = |name: &str| {
        File::create(place.path(name)).unwrap().set_len(64 << 20).unwrap();
        LoopDevice::of(&place.str(name))
    };
    // A link stands for a name that the kernel assigns. It leads to another device, and then to none.
    let (link, ours, other) = (place.str("device"), image("ours"), image("other"));
    let lead_to = |device: &LoopDevice| {
        let _ = fs::remove_file(&link);
        symlink(&device.0, &link).unwrap();
    };
    lead_to(&ours);
    oncefs(&["mkfs", place.volume_str(), "--data", &link]).succeeds();
    lead_to(&other);
    let option = format!("data={}", ours.0);
    // It may be a copy, so an administrator who changed the device must name it.
    let before = fs::read(place.path("ours")).unwrap();
    place.mount(&[]).fails(32, &[&link, &ours.0, &option]);
    oncefs(&["fsck", "-y", place.volume_str()]).fails(8, &[&link, &ours.0, &option]);
    place.mount(&["-o", "ro"]).succeeds();
    place.umount().succeeds();
    assert!(before == fs::read(place.path("ours")).unwrap(), "nothing was changed");
    place.mount(&["-o", &format!("data={}", other.0)]).fails(32, &[&other.0, "is it the right device?"]);
    assert!(oncefs(&["fsck", "-y", "--device", &ours.0, place.volume_str()]).succeeds().out.contains("clean"));
    place.mount(&["-o", &option]).succeeds();
    fs::write(place.file("file"), "content").unwrap();
    place.umount().succeeds();
    fs::remove_file(&link).unwrap();
    assert!(oncefs(&["fsck", "-d", place.volume_str()]).succeeds().out.contains("clean"));
    place.mount(&["-o", &option]).succeeds();
    assert_eq!(fs::read(place.file("file")).unwrap(), b"content");
    place.umount().succeeds();
    fs::copy(place.path("ours"), place.path("copy")).unwrap();
    let copy = LoopDevice::of(&place.str("copy"));
    place.mount(&[]).fails(32, &[&ours.0, &copy.0, &link, "a link to the right one"]);
    place.mount(&["-o", &option]).succeeds();
    place.umount().succeeds();
    lead_to(&ours);
    place.mount(&[]).succeeds();
    place.umount().succeeds();
    drop((ours, copy));
    lead_to(&other);
    place.mount(&[]).fails(32, &[&link, "is it the right device?"]);
}

#[test]
fn without_root_mounting_is_refused_with_the_way_out() {
    // A copy, because the build directory may be closed to other users. A process of its own makes it. Otherwise the
    // children of other tests could inherit a descriptor for writing, and the copy could not be run.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = dir.path().join("oncefs");
    Run::of(Command::new("cp").arg(BINARY).arg(&copy)).succeeds();
    let nobody = 65534;
    let mount = |words: &[&str]| Run::of(Command::new(&copy).args(words).current_dir("/").uid(nobody).gid(nobody));
    mount(&["mount", "/tmp", "/mnt"]).fails(1, &["needs root", "sudo"]);
}

#[test]
fn without_dev_fuse_mounting_fails_and_the_volume_is_free_again() {
    let place = Place::with_volume();
    let (dev, volume, mnt) = (place.str("dev"), place.volume_str(), place.mnt_str());
    let script = format!(
        "mkdir {dev}; for n in null urandom zero; do cp -a /dev/$n {dev}; done; mount --bind {dev} /dev
         {BINARY} mount {volume} {mnt}"
    );
    in_own_namespace(&script).fails(32, &["/dev/fuse", "modprobe fuse"]);
    place.mount(&[]).succeeds();
}

#[test]
fn only_mounts_of_oncefs_are_unmounted() {
    let place = Place::with_volume();
    place.umount().fails(32, &["not mounted"]);
    oncefs(&["umount", &place.str("nowhere")]).fails(32, &["nowhere"]);
    oncefs(&["umount", "/proc"]).fails(32, &["proc mount", "umount /proc"]);
}

#[test]
fn stats_grow_and_sync_say_what_they_need() {
    let place = Place::with_volume();
    oncefs(&["stats", "/tmp"]).fails(1, &["oncefs mount VOLUME DIR"]);
    oncefs(&["stats", place.volume_str()]).fails(1, &["is not mounted: mount it first (oncefs mount"]);
    oncefs(&["sync", "/nowhere"]).fails(1, &["/nowhere"]);
    oncefs(&["grow", "/tmp", "1T"]).fails(1, &["not an oncefs volume"]);
    oncefs(&["grow", place.volume_str(), "1M"]).fails(1, &["cannot shrink"]);
    oncefs(&["grow", place.volume_str(), "much"]).fails(2, &["such as 512M"]);
}

#[test]
fn fsck_exits_with_the_bits_of_fsck_8() {
    let place = Place::with_volume();
    assert!(oncefs(&["fsck", "--data", place.volume_str()]).succeeds().out.contains("clean"));
    oncefs(&["fsck", "/tmp"]).fails(8, &["not an oncefs volume"]);
    oncefs(&["fsck", &place.str("nowhere")]).fails(8, &["nowhere"]);
    oncefs(&["fsck", "--frobnicate", place.volume_str()]).fails(16, &["--frobnicate"]);
    place.mount(&[]).succeeds();
    oncefs(&["fsck", place.volume_str()]).fails(8, &["already mounted on", place.mnt_str()]);
    oncefs(&["fsck", place.mnt_str()]).fails(8, &["is mounted", "oncefs umount", place.volume_str()]);
}
