//! The arguments that the command line accepts under all its names, and its error messages.

use super::*;

fn parsed(line: &str) -> Outcome<Option<Command>> {
    parse(line.split(' ').map(OsString::from).collect())
}

fn failure(line: &str) -> Failure {
    parsed(line).expect_err("the line must be refused")
}

#[test]
fn the_command_line_definition_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
    mount::MountHelper::command().debug_assert();
}

#[test]
fn mount_8_calls_with_f_for_fake_and_oncefs_mount_takes_f_for_foreground() {
    let Ok(Some(Command::Mount(helper))) = parsed("/sbin/mount.oncefs /v /mnt -n -s -v -f -o rw,noatime -t oncefs")
    else {
        panic!("mount.oncefs is a mount");
    };
    assert!(helper.fake && !helper.foreground);
    let Ok(Some(Command::Mount(command))) = parsed("oncefs mount -f /v /mnt") else { panic!("a mount") };
    assert!(command.foreground && !command.fake);
}

#[test]
fn umount_8_and_fsck_8_calls_are_understood_under_all_names() {
    for line in [
        "umount.oncefs /mnt -n -l -f -v -r",
        "umount.fuse /mnt",
        "/usr/sbin/umount.fuse.oncefs /mnt -v -t fuse.oncefs",
        "oncefs umount -lf /mnt",
    ] {
        assert!(matches!(parsed(line), Ok(Some(Command::Umount(_)))), "{line}");
    }
    for line in ["fsck.oncefs -a /v", "fsck.oncefs -p -C 3 /v", "/sbin/fsck.oncefs -y -C0 -f /v", "oncefs fsck -n /v"] {
        assert!(matches!(parsed(line), Ok(Some(Command::Fsck(_)))), "{line}");
    }
    assert!(matches!(parsed("mkfs.oncefs -s 1G /v"), Ok(Some(Command::Mkfs(_)))));
}

#[test]
fn a_wrong_setting_is_told_with_its_range() {
    for (line, range) in [
        ("oncefs mount /v /mnt --fingerprints never", "eager, lazy, auto"),
        ("oncefs mkfs /v --profile turbo", "lrlfs, smartdedup, edge, desktop, server, idedup"),
    ] {
        let failure = failure(line);
        assert!(failure.message.contains(range), "{line}: {}", failure.message);
    }
}

#[test]
fn a_word_that_is_nearly_right_is_told_with_the_right_one() {
    for (line, right) in [
        ("oncefs umoutn /mnt", "'umoutn' (some similar subcommands exist: 'mount', 'umount')"),
        ("oncefs stats /mnt --jsn", "'--json'"),
        ("oncefs mkfs --size 100 GB /srv/v", "(write the size as one word: 100GB)"),
        ("oncefs grow /mnt +5 GiB", "(write the size as one word: +5GiB)"),
    ] {
        let message = failure(line).message;
        assert!(message.contains(right), "{line}: {message}");
    }
    assert!(failure("oncefs grow /mnt -5G").message.contains("nothing can be taken away"));
    assert!(failure("oncefs mkfs --copies 3 /v").message.contains("give 1 or 2"));
    for line in ["oncefs help", "oncefs help mkfs"] {
        assert!(parsed(line).is_ok_and(|command| command.is_none()), "{line}");
    }
}

#[test]
fn a_wrong_line_is_told_in_one_line_with_the_code_of_its_family() {
    for (line, code) in [
        ("oncefs", exit::USAGE),
        ("oncefs frobnicate", exit::USAGE),
        ("oncefs umoutn /mnt", exit::USAGE),
        ("oncefs stats", exit::USAGE),
        ("oncefs dedup /mnt", exit::USAGE),
        ("oncefs dedup /mnt --now --pause", exit::USAGE),
        ("oncefs dedup /mnt --pause --full", exit::USAGE),
        ("oncefs dedup /mnt --now --json", exit::USAGE),
        ("oncefs scrub /mnt --start --pause", exit::USAGE),
        ("oncefs scrub /mnt --stop --rate 1M", exit::USAGE),
        ("oncefs explain", exit::USAGE),
        ("oncefs explain /mnt/a --blocks --json", exit::USAGE),
        ("oncefs stats /mnt --plot a.svg", exit::USAGE),
        ("oncefs tune", exit::USAGE),
        ("oncefs mkfs --profile turbo /v", exit::USAGE),
        ("oncefs mkfs", exit::USAGE),
        ("mkfs.oncefs --size 1e9 /v", exit::FAILED),
        ("oncefs mount /v", exit::USAGE),
        ("mount.oncefs /v", exit::MOUNT_USAGE),
        ("umount.fuse.oncefs", exit::MOUNT_USAGE),
        ("fsck.oncefs --frobnicate /v", exit::FSCK_USAGE),
        ("oncefs fsck -n -y /v", exit::FSCK_USAGE),
    ] {
        let failure = failure(line);
        assert_eq!(failure.code, code, "{line}: {}", failure.message);
        assert!(failure.message.ends_with("--help") && !failure.message.contains('\n'), "{line}: {}", failure.message);
    }
}
