//! The commands as a person meets them: in the background, under their other names, and with wrong arguments.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, run, run_json, test_dir};
use serde_json::Value;

fn oncefs_with(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(oncefs());
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

/// Requires a failure told in one line, and returns the line.
fn one_line_error(output: &Output) -> String {
    assert!(!output.status.success(), "this must fail");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim_end().lines().count(), 1, "an error is one line:\n{said}");
    assert!(!said.contains("panicked"), "{said}");
    said.into_owned()
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

/// Ids of the processes whose arguments name `path`.
fn processes_naming(path: &Path) -> Vec<String> {
    let wanted = path.to_str().unwrap();
    let names = |entry: &fs::DirEntry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(wanted)
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(names)
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn mount_returns_when_the_mount_is_live_and_umount_when_the_daemon_is_gone() {
    let volume = Mount::unmounted(&test_dir(), "1G", &[]);
    for round in 0..3u64 {
        run(Command::new(oncefs()).arg("mount").arg(volume.volume()).arg(volume.dir()));
        assert!(is_mounted(&volume.dir()), "mount came back before the mount was live");
        if round > 0 {
            assert!(
                fs::read(volume.join("file")).unwrap() == bytes(round - 1, 100_000),
                "the content of round {round} is lost"
            );
        }
        fs::write(volume.join("file"), bytes(round, 100_000)).unwrap();
        run(Command::new(oncefs()).arg("umount").arg(volume.dir()));
        assert!(!is_mounted(&volume.dir()));
        assert_eq!(processes_naming(&volume.volume()), [""; 0], "umount came back before the daemon was gone");
    }
    volume.assert_clean();
}

#[test]
fn the_names_that_mount_and_fsck_call_work() {
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    let named = |name: &str| {
        let link = scratch.path().join(name);
        if !link.exists() {
            symlink(oncefs(), &link).unwrap();
        }
        Command::new(link)
    };
    let (volume, dir) = (scratch.path().join("volume"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    run(named("mkfs.oncefs").arg(&volume).args(["--size", "1G"]));
    run(named("mount.oncefs").arg(&volume).arg(&dir).args(["-o", "rw,nosuid,nodev"]));
    fs::write(dir.join("file"), "content").unwrap();
    run(named("umount.fuse.oncefs").arg(&dir));
    assert!(!is_mounted(&dir));
    // fsck(8) passes -a at boot.
    run(named("fsck.oncefs").arg("-a").arg(&volume));
    run(named("mount.oncefs").arg(&volume).arg(&dir).args(["-o", "ro"]));
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "content");
    assert!(fs::write(dir.join("file"), "other").is_err(), "read-only means read-only");
    run(named("umount.oncefs").arg(&dir));
}

#[test]
fn a_path_that_is_no_volume_is_refused_in_one_line() {
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    one_line_error(&oncefs_with(&[&"mount", &"/usr/include", &dir]));
    one_line_error(&oncefs_with(&[&"mount", &scratch.path().join("missing"), &dir]));
    one_line_error(&oncefs_with(&[&"stats", &scratch.path()]));
    one_line_error(&oncefs_with(&[&"umount", &scratch.path()]));
    one_line_error(&oncefs_with(&[&"mkfs", &"/usr/include", &"--size", &"1G"]));
    let fsck = oncefs_with(&[&"fsck", &"/usr/include"]);
    one_line_error(&fsck);
    assert_eq!(fsck.status.code(), Some(8), "fsck's code for an operational error");
}

#[test]
fn a_volume_in_use_is_refused_and_left_alone() {
    let mount = Mount::new("1G");
    let other = mount.dir().parent().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    one_line_error(&oncefs_with(&[&"mount", &mount.volume(), &other]));
    one_line_error(&oncefs_with(&[&"mkfs", &mount.volume(), &"--size", &"1G"]));
    assert_eq!(mount.fsck().0, 8, "a mounted volume is not checked");
    fs::write(mount.join("file"), "still well").unwrap();
}

#[test]
fn wrong_options_are_named() {
    let volume = Mount::unmounted(&test_dir(), "1G", &[]);
    let said = one_line_error(&oncefs_with(&[&"mount", &volume.volume(), &volume.dir(), &"-o", &"no_such_option"]));
    assert!(said.contains("no_such_option"), "{said}");
    assert!(!is_mounted(&volume.dir()));
    let scratch = tempfile::tempdir_in(test_dir()).unwrap();
    one_line_error(&oncefs_with(&[&"mkfs", &scratch.path().join("v"), &"--size", &"lots"]));
}

#[test]
fn a_damaged_volume_is_refused_and_fsck_says_so() {
    let mut mount = Mount::new("1G");
    fs::write(mount.join("file"), bytes(1, 1 << 20)).unwrap();
    mount.umount();
    let data = largest_file(&mount.volume());
    fs::File::options().write(true).open(&data).unwrap().set_len(1000).unwrap();
    one_line_error(&oncefs_with(&[&"mount", &mount.volume(), &mount.dir()]));
    let (code, said) = mount.fsck();
    assert!(code & (4 | 8) != 0, "fsck of a volume with a truncated {} ended with {code}: {said}", data.display());
}

/// The data area: the largest file of a volume by its apparent size.
fn largest_file(volume: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(volume).unwrap().flatten().filter(|e| e.file_type().unwrap().is_file());
    files.max_by_key(|e| e.metadata().unwrap().len()).unwrap().path()
}

#[test]
fn growing_makes_room_while_files_are_in_use() {
    let mut mount = Mount::new("256M");
    let file = fs::File::create(mount.join("open")).unwrap();
    let before = mount.figure("space", "data_bytes");
    run(Command::new(oncefs()).arg("grow").arg(mount.dir()).arg("1G"));
    assert_eq!(before, 256 << 20);
    assert_eq!(mount.figure("space", "data_bytes"), 1 << 30);
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes(3, 300 << 20), 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    one_line_error(&oncefs_with(&[&"grow", &mount.dir(), &"128M"]));
    mount.check();
    assert_eq!(mount.figure("space", "data_bytes"), 1 << 30);
    assert!(fs::read(mount.join("open")).unwrap() == bytes(3, 300 << 20));
}

#[test]
fn stats_speak_to_people_and_programs() {
    let mount = Mount::new("1G");
    fs::write(mount.join("file"), bytes(1, 1 << 20)).unwrap();
    fs::File::open(mount.join("file")).unwrap().sync_all().unwrap();
    let stats = mount.stats();
    for group in ["space", "stages", "caches", "counters"] {
        assert!(stats[group].is_object(), "stats lack {group}: {stats:#}");
    }
    assert_eq!(mount.figure("counters", "blocks_placed"), 256);
    let said = run(Command::new(oncefs()).arg("stats").arg(mount.dir()));
    assert_eq!(said.lines().count(), 10, "{said}");
    let held = mount.figure("space", "held_bytes");
    assert!(held == 1 << 20 && stats["settings"]["battery_percent_min"].is_u64(), "{stats:#}");
    assert!(stats["health"]["findings"].is_array() && stats["read_only"] == false, "{stats:#}");
    let all = run(Command::new(oncefs()).args(["stats", "-v"]).arg(mount.dir()));
    assert!(all.contains("blocks_placed"), "{all}");
}

/// What `oncefs tune --json` says of every setting.
fn settings(mount: &Mount) -> Value {
    run_json(Command::new(oncefs()).args(["tune", "--json"]).arg(mount.dir()))
}

/// The value of one setting.
fn setting(mount: &Mount, name: &str) -> String {
    settings(mount)[name]["value"].as_str().unwrap_or_else(|| panic!("there is no setting {name}")).to_owned()
}

/// A volume of a profile, with mount options.
fn of_profile(profile: &str, options: &[&str]) -> Mount {
    let mut mount = Mount::unmounted(&test_dir(), "1G", options);
    fs::remove_dir_all(mount.volume()).unwrap();
    run(Command::new(oncefs()).arg("mkfs").arg(mount.volume()).args(["--size", "1G", "--profile", profile]));
    mount.mount();
    mount
}

#[test]
fn tune_shows_every_setting_and_sets_several_at_once() {
    let mount = Mount::new("1G");
    fs::create_dir(mount.join("inside")).unwrap();
    let table = run(Command::new(oncefs()).arg("tune").arg(mount.join("inside")));
    let settings = settings(&mount);
    for (name, about) in settings.as_object().unwrap() {
        let row = table.lines().find(|row| row.split(' ').next() == Some(name));
        let row = row.unwrap_or_else(|| panic!("{name} is missing in\n{table}"));
        let [value, of_profile] = ["value", "profile_value"].map(|which| about[which].as_str().unwrap());
        // The mounts of tests have settings of their own.
        let differs = row.split_whitespace().nth(2).is_some_and(|word| !["KiB", "MiB", "GiB"].contains(&word));
        assert!(!differs || value != of_profile, "{row}: {about}");
        let one = run(Command::new(oncefs()).arg("tune").arg(mount.dir()).arg(name));
        let words = one.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["range", "meaning"] {
            assert!(words.contains(about[part].as_str().unwrap()), "{name} lacks its {part}: {one}");
        }
    }
    let said = run(Command::new(oncefs()).arg("tune").arg(mount.volume()).args(["inline=off", "hint_memory=2M"]));
    let changes = "hint_memory: BEFORE -> 2.00 MiB\ninline: adaptive -> off\nuntil the volume is unmounted";
    assert!(said.starts_with(&changes.replace("BEFORE", &before(&said))), "{said}");
    assert_eq!([setting(&mount, "inline"), setting(&mount, "hint_memory")], ["off", "2097152"]);
    let said = run(Command::new(oncefs()).arg("tune").arg(mount.volume()).arg("inline=off"));
    assert_eq!(said, "inline: off, as before\n");
    let said = run(Command::new(oncefs()).arg("tune").arg(mount.volume()).arg("inline"));
    assert!(said.starts_with("inline = off (the profile has adaptive)\n"), "{said}");
}

/// The old value in the first line of `tune`.
fn before(said: &str) -> String {
    said.split(": ").nth(1).and_then(|rest| rest.split(" -> ").next()).unwrap_or_default().to_owned()
}

#[test]
fn tune_refuses_nonsense_with_the_range_and_then_changes_nothing() {
    let mount = Mount::new("1G");
    let settings_before = settings(&mount);
    for (changes, code, hint) in [
        (&["speed=11"][..], 2, "speed"),
        (&["inline=sideways"], 2, "off, all, adaptive"),
        (&["inline", "worker=off"], 2, "inline has no value"),
        (&["memory=1G"], 2, "oncefs mount -o memory"),
        (&["hint_memory=1K"], 2, "4K to"),
        (&["inline=off", "inline_percent_min=0"], 2, "1 to 100"),
        (&["inline=off", "hint_eviction=groups"], 1, "while mounting"),
    ] {
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"tune"];
        let dir = mount.dir();
        arguments.push(&dir);
        arguments.extend(changes.iter().map(|change| change as &dyn AsRef<std::ffi::OsStr>));
        let output = oncefs_with(&arguments);
        let said = one_line_error(&output);
        assert_eq!(output.status.code(), Some(code), "{changes:?}: {said}");
        assert!(said.contains(hint), "{changes:?}: {said}");
    }
    assert_eq!(settings(&mount), settings_before, "all or nothing");
}

#[test]
fn a_volume_keeps_its_profile_and_a_mount_can_take_another() {
    let mut mount = of_profile("smartdedup", &[]);
    let shape = |mount: &Mount| ["hint_prefix_bits", "hint_memory", "worker"].map(|name| setting(mount, name));
    assert_eq!(shape(&mount), ["14", "2969600", "always"]);
    fs::write(mount.join("file"), bytes(5, 1 << 20)).unwrap();
    mount.umount();

    let mount_with = |option: &str| {
        run(Command::new(oncefs()).arg("mount").arg(mount.volume()).arg(mount.dir()).args(["-o", option]));
    };
    mount_with("profile=lrlfs");
    assert_eq!(setting(&mount, "worker"), "off");
    assert_eq!(setting(&mount, "hint_disk_level"), "off");
    run(Command::new(oncefs()).arg("umount").arg(mount.dir()));
    mount_with("hint_prefix_bits=12,worker=off,worker=idle");
    assert_eq!(shape(&mount), ["12", "2969600", "idle"]);
    assert!(fs::read(mount.join("file")).unwrap() == bytes(5, 1 << 20));
    run(Command::new(oncefs()).arg("umount").arg(mount.dir()));
    mount.assert_clean();
}

#[test]
fn profiles_and_settings_that_make_no_sense_are_refused_before_anything_is_done() {
    let volume = Mount::unmounted(&test_dir(), "1G", &[]);
    for (option, hint) in [
        ("profile=turbo", "lrlfs, smartdedup, edge, desktop, server, idedup, selective"),
        ("inline=sideways", "off, all, adaptive"),
        ("hint_memory=3.5MM", "4K to"),
        ("hint_prefix_bits=25", "to 24"),
        ("worker_speed=3", "worker_speed"),
    ] {
        let output = oncefs_with(&[&"mount", &volume.volume(), &volume.dir(), &"-o", &option]);
        let said = one_line_error(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(hint), "{option}: {said}");
        assert!(!is_mounted(&volume.dir()));
    }
    let place = volume.dir().parent().unwrap().join("other");
    one_line_error(&oncefs_with(&[&"mkfs", &place, &"--size", &"1G", &"--profile", &"turbo"]));
    assert!(!place.exists());
}

/// Nothing is looked up as it is written, and the volume never counts as idle.
const LEFT_TO_NOW: [&str; 1] = ["inline=off,idle_after_ms=3600000,worker=idle"];
const FILE_BYTES: usize = 24 << 20;

/// Two files of the same content, neither of them shared.
fn write_twice(mount: &Mount) {
    for name in ["first", "second"] {
        fs::write(mount.join(name), bytes(11, FILE_BYTES)).unwrap();
        fs::File::open(mount.join(name)).unwrap().sync_all().unwrap();
    }
}

fn dedup(mount: &Mount, options: &[&str]) -> String {
    run(Command::new(oncefs()).arg("dedup").arg(mount.dir()).args(options))
}

fn dedup_status(mount: &Mount) -> Value {
    run_json(Command::new(oncefs()).arg("dedup").arg(mount.dir()).args(["--status", "--json"]))
}

/// Requires that the two files share every block and hold what was written, also after a remount.
fn assert_shared(mount: &mut Mount, used_before: u64) {
    mount.wait_for("space", "stored_bytes", |used| used - used_before == FILE_BYTES as u64);
    assert_eq!(mount.figure("space", "held_bytes"), 2 * FILE_BYTES as u64);
    mount.check();
    for name in ["first", "second"] {
        assert!(fs::read(mount.join(name)).unwrap() == bytes(11, FILE_BYTES), "{name} differs");
    }
}

#[test]
fn dedup_now_shares_what_was_skipped_and_says_what_it_saved() {
    let mut mount = Mount::on(&test_dir(), "1G", &LEFT_TO_NOW);
    let used = mount.figure("space", "stored_bytes");
    write_twice(&mount);
    assert_eq!(mount.figure("space", "stored_bytes") - used, 2 * FILE_BYTES as u64, "nothing is shared in-line");
    assert_eq!(dedup_status(&mount)["blocks_remapped"], 0, "nothing is shared before it is asked for");
    let said = dedup(&mount, &["--now"]);
    assert!(said.contains("24.0 MiB saved"), "{said}");
    let status = dedup_status(&mount);
    assert_eq!((&status["now"], &status["skipped_blocks"]), (&Value::from(false), &Value::from(0)), "{status:#}");
    assert_eq!(mount.figure("counters", "blocks_remapped"), FILE_BYTES as u64 / 4096);
    assert_shared(&mut mount, used);
}

#[test]
fn dedup_full_finds_what_was_never_remembered() {
    let mut mount = Mount::on(&test_dir(), "1G", &["inline=off,worker=off,skipped_memory=0"]);
    let used = mount.figure("space", "stored_bytes");
    write_twice(&mount);
    assert!(dedup(&mount, &["--now", "--full"]).contains("24.0 MiB saved"));
    assert_shared(&mut mount, used);
}

#[test]
fn dedup_in_the_background_is_shown_by_its_status() {
    let mut mount = Mount::on(&test_dir(), "1G", &LEFT_TO_NOW);
    let used = mount.figure("space", "stored_bytes");
    write_twice(&mount);
    assert!(dedup(&mount, &["--now", "--background"]).contains("--status"));
    assert!(dedup(&mount, &["--status"]).lines().count() > 4);
    mount.wait_for("counters", "blocks_remapped", |blocks| blocks == FILE_BYTES as u64 / 4096);
    assert_shared(&mut mount, used);
}

/// An hour of every day that is half a day away by the local clock.
fn other_half_of_the_day() -> String {
    let hour: u32 = run(Command::new("date").arg("+%H")).trim().parse().unwrap();
    let begins = (hour + 12) % 24;
    format!("{begins:02}:00-{begins:02}:59")
}

#[test]
fn outside_its_hours_the_worker_waits_and_now_minds_none() {
    let mut mount = Mount::on(&test_dir(), "1G", &["inline=off,idle_after_ms=10,schedule=always"]);
    let used = mount.figure("space", "stored_bytes");
    let hours = other_half_of_the_day();
    let said = dedup(&mount, &["--schedule", &hours]);
    assert!(said.contains(&hours) && said.contains("next window in 1"), "{said}");
    write_twice(&mount);
    eventually("the worker waits for its schedule", || dedup_status(&mount)["doing"] == "waiting for its schedule");
    let status = dedup_status(&mount);
    assert_eq!(status["blocks_revisited"], 0, "{status:#}");
    assert!(status["opens_in_seconds"].as_u64().is_some_and(|seconds| seconds > 10 * 3600), "{status:#}");
    assert!(dedup(&mount, &["--status"]).contains(&hours));
    assert!(dedup(&mount, &["--now"]).contains("24.0 MiB saved"));
    assert_shared(&mut mount, used);
    one_line_error(&oncefs_with(&[&"dedup", &mount.dir(), &"--schedule", &"nights"]));
    assert!(dedup(&mount, &["--schedule", "always"]).contains("always"));
    assert_eq!(dedup_status(&mount)["opens_in_seconds"], Value::Null);
}

#[test]
fn a_paused_worker_waits_for_resume() {
    let mount = Mount::on(&test_dir(), "1G", &["inline=off,idle_after_ms=10"]);
    dedup(&mount, &["--pause"]);
    write_twice(&mount);
    assert_eq!(dedup_status(&mount)["paused"], true);
    let output = oncefs_with(&[&"dedup", &mount.dir(), &"--now"]);
    assert!(one_line_error(&output).contains("--resume"), "now would wait for ever");
    // Many times what the volume needs to count as idle.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(mount.figure("counters", "blocks_remapped"), 0, "paused means paused");
    dedup(&mount, &["--resume"]);
    assert_eq!(dedup_status(&mount)["paused"], false);
    mount.wait_for("counters", "blocks_remapped", |blocks| blocks == FILE_BYTES as u64 / 4096);
}

#[test]
fn dedup_does_one_thing_at_a_time_and_nothing_on_a_read_only_volume() {
    let mount = Mount::on(&test_dir(), "1G", &["ro"]);
    for options in [&[][..], &["--now", "--pause"], &["--full"], &["--status", "--background"], &["--resume", "--json"]]
    {
        let mut command = Command::new(oncefs());
        let output = command.arg("dedup").arg(mount.dir()).args(options).output().unwrap();
        one_line_error(&output);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
    for option in ["--now", "--pause", "--resume"] {
        let said = one_line_error(&oncefs_with(&[&"dedup", &mount.dir(), &option]));
        assert!(said.contains("read-only"), "{option}: {said}");
    }
    assert!(dedup_status(&mount)["doing"].is_string());
}
