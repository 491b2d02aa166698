//! mount(8), umount(8), fsck(8) and fstab lines find the binary under its helper names and get along with it.
//!
//! An overlay in the test's own mount namespace puts the names into /usr/sbin, so nothing is installed.

use std::fs;
use std::process::Command;

use crate::common::{BINARY, Place, Run, in_own_namespace};

/// Runs a script that sees the helpers in /sbin.
fn with_helpers(place: &Place, script: &str) -> Run {
    let helpers = place.helpers();
    let overlay = format!("mount -t overlay overlay -o lowerdir={}:/usr/sbin /usr/sbin\n", helpers.display());
    in_own_namespace(&format!("{overlay}V={} D={}\n{script}", place.volume_str(), place.mnt_str()))
}

/// Ends the script if a daemon still serves the volume.
const GONE: &str = "if pgrep -f \"serve .* $V $D\" >/dev/null; then echo the daemon is still there >&2; exit 99; fi";

#[test]
fn mount_8_mounts_and_umount_8_waits_for_the_daemon() {
    let place = Place::with_volume();
    let script = format!(
        "mount -t oncefs $V $D
         grep -q \" $D fuse.oncefs rw,relatime\" /proc/mounts
         echo content >$D/file
         umount $D
         {GONE}
         mount -t oncefs -o ro,noatime,nosuid,x-test=1 $V $D
         grep -q \" $D fuse.oncefs ro,nosuid,noatime\" /proc/mounts
         cat $D/file
         umount -v $D
         {GONE}"
    );
    let run = with_helpers(&place, &script).succeeds();
    assert!(run.out.starts_with("content\n"), "{run:?}");
}

#[test]
fn fstab_lines_work_with_mount_remount_and_umount() {
    let place = Place::with_volume();
    let fstab = place.str("fstab");
    fs::write(&fstab, format!("{} {} oncefs defaults,nofail,memory=64M 0 2\n", place.volume_str(), place.mnt_str()))
        .unwrap();
    let script = format!(
        "mount -T {fstab} $D
         [ -z \"$(mount -T {fstab} -o remount,ro $D 2>&1)\" ]
         grep -q \" $D fuse.oncefs ro\" /proc/mounts
         mount -o remount,rw $D
         mount -o remount,memory=128M $D 2>&1 | grep -q 'keeps its memory'
         echo content >$D/file
         umount $D
         {GONE}"
    );
    with_helpers(&place, &script).succeeds();
}

#[test]
fn with_nofail_a_volume_that_is_not_there_is_no_error() {
    let place = Place::new();
    let fstab = place.str("fstab");
    let line = format!("{} {} oncefs nofail 0 2\n", place.volume_str(), place.mnt_str());
    fs::write(&fstab, &line).unwrap();
    let script = format!(
        "mount -T {fstab} $D
         mount -a -T {fstab}
         ! grep -q $D /proc/mounts
         sed -i s/nofail/defaults/ {fstab}
         mount -T {fstab} $D"
    );
    with_helpers(&place, &script).fails(32, &["there is no volume"]);
}

#[test]
fn mount_8_passes_our_messages_and_exit_codes_on() {
    let place = Place::with_volume();
    with_helpers(&place, "mount -t oncefs -o bogus=1 $V $D").fails(1, &["'bogus=1'"]);
    with_helpers(&Place::new(), "mkdir $V; mount -t oncefs $V $D").fails(32, &["not an oncefs volume"]);
}

#[test]
fn mount_8s_fake_flag_mounts_nothing() {
    let place = Place::with_volume();
    with_helpers(&place, "mount -f -t oncefs $V $D; ! grep -q $D /proc/mounts").succeeds();
}

#[test]
fn fsck_8_and_mkfs_8_call_us() {
    let place = Place::new();
    let run = with_helpers(&place, "mkfs -t oncefs --size 64M $V; fsck -t oncefs -a $V; fsck.oncefs -p $V").succeeds();
    assert_eq!(run.out.matches("clean").count(), 2, "{run:?}");
}

#[test]
fn another_fuse_file_system_is_still_unmounted_by_umount_8() {
    let place = Place::with_volume();
    // The helper umount.fuse is called for any FUSE mount. Other FUSE file systems are not installed here, so an oncefs
    // mount with another type stands for them.
    let foreign = "mount -i -t fuse.other -o fd=9,rootmode=40000,user_id=0,group_id=0 other $D 9<>/dev/fuse";
    let script =
        format!("{foreign}\n grep -q \"$D fuse.other\" /proc/mounts\n umount $D\n ! grep -q \"$D \" /proc/mounts");
    with_helpers(&place, &script).succeeds();
}

#[test]
fn the_helpers_answer_to_help() {
    let place = Place::new();
    let helpers = place.helpers();
    for name in crate::common::HELPERS {
        let run = Run::of(Command::new(helpers.join(name)).arg("--help")).succeeds();
        assert!(run.out.contains("Usage:"), "{name}: {run:?}");
    }
}

#[test]
fn a_mount_whose_daemon_died_is_mounted_again_as_fstab_says() {
    let place = Place::with_volume();
    let fstab = place.str("fstab");
    fs::write(&fstab, format!("{} {} oncefs noatime,memory=64M 0 0\n", place.volume_str(), place.mnt_str())).unwrap();
    // The shell outlives the daemon, so the daemon does not end the namespace with its mounts.
    let script = format!(
        "trap 'umount -l $D 2>/dev/null || true' EXIT
         mount -T {fstab} $D
         echo content >$D/file
         {BINARY} sync $D
         {BINARY} revive -T {fstab} $D
         kill -9 $(pgrep -o -f \"serve .* $V $D\")
         while stat -f $D >/dev/null 2>&1 || pgrep -f \"serve .* $V $D\" >/dev/null; do sleep 0.05; done
         ! {BINARY} revive -T /dev/null $D 2>$V.told
         grep -q 'does not name' $V.told
         {BINARY} revive -T {fstab} $D
         cat $D/file
         grep -c \" $D fuse.oncefs rw,noatime\" /proc/mounts
         umount $D
         {GONE}"
    );
    let run = with_helpers(&place, &script).succeeds();
    assert!(run.out.contains("is mounted again") && run.out.ends_with("content\n1\n"), "{run:?}");
}

/// Waits in a script until no daemon serves the volume.
const DIED: &str = "while pgrep -f \"serve .* $V \" >/dev/null; do sleep 0.05; done";

#[test]
fn disks_of_a_volume_whose_daemon_died_are_mounted_and_attached_again_after_it() {
    let place = Place::with_volume();
    let (fstab, volume, home) = (place.str("fstab"), place.volume_str(), place.str("home"));
    fs::create_dir(&home).unwrap();
    let lines = format!("{volume} {} oncefs memory=64M 0 0\n{volume} {home} oncefs disk=home 0 0\n", place.mnt_str());
    fs::write(&fstab, lines).unwrap();
    let script = format!(
        "trap 'umount -l {home} 2>/dev/null || true; losetup -d $new 2>/dev/null || true; umount -l $D || true' EXIT
         mount -T {fstab} $D
         for disk in home vm; do {BINARY} disk create $D $disk 16M; done
         mkfs.ext4 -q $({BINARY} disk attach $D home)
         {BINARY} disk detach $D home
         mount -T {fstab} {home}
         new=$({BINARY} disk attach $D vm)
         echo content >{home}/file
         sync {home}/file
         head -c 4096 /dev/urandom >$V.sector
         dd if=$V.sector of=$new bs=4096 oflag=direct conv=fsync,notrunc 2>/dev/null
         {BINARY} revive -T {fstab} $D {home}
         kill -9 $(pgrep -o -f \"serve .* $V $D\")
         {DIED}
         {BINARY} revive -T {fstab} $D {home} >$V.told
         new=$(sed -n 's/^the disk vm is attached again, as \\([^:]*\\):.*/\\1/p' $V.told)
         cmp -n 4096 $V.sector $new
         cat {home}/file
         umount {home}
         {BINARY} disk detach $D vm
         umount $D
         {GONE}"
    );
    let run = with_helpers(&place, &script).succeeds();
    assert!(run.out.ends_with("content\n"), "{run:?}");
}

#[test]
fn a_disk_of_a_dead_hidden_mount_is_mounted_again_beside_programs_that_have_the_old_one_open() {
    let place = Place::with_volume();
    let (fstab, home) = (place.str("fstab"), place.str("home"));
    fs::create_dir(&home).unwrap();
    fs::write(&fstab, format!("{} {home} oncefs disk=home,mkfs=ext4,memory=64M 0 0\n", place.volume_str())).unwrap();
    let script = format!(
        "trap 'umount -l {home} 2>/dev/null || true' EXIT
         {BINARY} disk create $V home 16M
         mount -T {fstab} {home}
         echo content >{home}/file
         sync {home}/file
         exec 3<{home}/file
         kill -9 $(pgrep -o -f \"serve .* $V \")
         {DIED}
         ! {BINARY} revive -T /dev/null {home} 2>$V.told
         grep -q 'mounts no disk on {home}: umount {home}, then oncefs mount VOLUME {home} -o disk=home' $V.told
         {BINARY} revive -T {fstab} {home}
         cat {home}/file
         exec 3<&-
         umount {home}
         {GONE}"
    );
    let run = with_helpers(&place, &script).succeeds();
    assert!(run.out.contains("programs still use the dead disk home"), "{run:?}");
    assert!(run.out.ends_with("content\n"), "{run:?}");
}
