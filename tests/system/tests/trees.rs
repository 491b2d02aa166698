//! `oncefs clone` and `oncefs snapshot` on a mount: what other programs see of them.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, bytes, oncefs, run, run_json};

mod interrupted;

fn clone(source: &Path, new: &Path) -> Command {
    let mut command = Command::new(oncefs());
    command.arg("clone").arg(source).arg(new);
    command
}

fn snapshot(what: &str, target: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(oncefs());
    command.args(["snapshot", what]).arg(target).args(more);
    command
}

/// The message of a command that fails.
fn fails(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{command:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes a tree of some directories, files and links.
fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("a/b")).unwrap();
    for number in 0..300 {
        fs::write(top.join(format!("a/{number}")), format!("content of {number}")).unwrap();
    }
    fs::write(top.join("a/b/large"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(top.join("a/1"), top.join("a/b/one")).unwrap();
    symlink("a/1", top.join("link")).unwrap();
    run(Command::new("setfattr").args(["-n", "user.name", "-v", "value"]).arg(top.join("a/2")));
    run(Command::new("mkfifo").arg(top.join("pipe")));
}

/// Requires that two trees are equal, as tar(1) sees them.
fn assert_same(one: &Path, other: &Path) {
    run(Command::new("diff").args(["-r", "--no-dereference"]).arg(one.join("a")).arg(other.join("a")));
    let listed = |top: &Path| {
        let list = ["-c", "find . -printf '%P %y %m %u %g %s %n %l %T@\\n' | sort"];
        run(Command::new("sh").args(list).current_dir(top))
    };
    assert_eq!(listed(one), listed(other));
}

#[test]
fn a_clone_is_seen_at_once_and_has_what_was_just_written() {
    let mut mount = Mount::new("1G");
    let (top, new) = (mount.join("top"), mount.join("new"));
    make_tree(&top);
    // The kernel knows that there is no such name, and has listed the directory.
    assert!(!new.exists());
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 1);
    let mut open = File::create(top.join("open")).unwrap();
    open.write_all(b"not written back").unwrap();
    run(&mut clone(&top, &new));
    drop(open);
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 2);
    assert_same(&top, &new);
    assert_eq!(fs::read(new.join("open")).unwrap(), b"not written back");
    assert_eq!(fs::metadata(mount.dir()).unwrap().nlink(), 4);
    let found = run(Command::new("getfattr")
        .args(["--absolute-names", "--only-values", "-n", "user.name"])
        .arg(new.join("a/2")));
    assert_eq!(found, "value");
    assert_eq!(fs::metadata(new.join("a/1")).unwrap().ino(), fs::metadata(new.join("a/b/one")).unwrap().ino());
    // Both change for themselves.
    fs::write(new.join("a/3"), "changed").unwrap();
    assert_eq!(fs::read(top.join("a/3")).unwrap(), b"content of 3");
    run(&mut clone(&top.join("a/b/large"), &top.join("larger")));
    assert_eq!(fs::read(top.join("larger")).unwrap(), vec![7; 3 << 20]);
    mount.check();
}

#[test]
fn what_cannot_be_cloned_is_refused_with_the_reason() {
    let mount = Mount::new("1G");
    let other = Mount::new("1G");
    let top = mount.join("top");
    make_tree(&top);
    assert!(fails(clone(&top, &top.join("a"))).contains("the name exists already"));
    assert!(fails(clone(&top, &other.join("new"))).contains("is in another volume"));
    assert!(fails(clone(&top, &mount.join("none/new"))).contains("No such file"));
    assert!(fails(clone(&top, &mount.join("top/link/new"))).contains("symbolic link"));
    assert!(fails(clone(&top, Path::new("/tmp/new"))).contains("same volume"));
    assert!(fails(clone(&mount.join("none"), &mount.join("new"))).contains("No such file"));
    assert!(fails(clone(Path::new("/etc"), &mount.join("new"))).contains("not in a mounted oncefs volume"));
    assert!(fails(snapshot("create", &top.join("a/1"), &["one"])).contains("not a directory"));
    assert!(fails(snapshot("remove", &top, &["none"])).contains("there is no snapshot none"));
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 1);
}

#[test]
fn a_snapshot_is_found_by_its_name_and_refuses_every_change() {
    let mut mount = Mount::new("1G");
    make_tree(&mount.join("top"));
    run(&mut snapshot("create", &mount.dir(), &["first"]));
    run(&mut snapshot("create", &mount.dir(), &["second"]));
    assert!(fails(snapshot("create", &mount.dir(), &["first"])).contains("the name exists already"));
    let listed: Vec<_> = fs::read_dir(mount.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listed, ["top"], ".oncefs is left out");
    let first = mount.join(".oncefs/snapshots/first");
    assert!(!first.join(".oncefs").exists());
    assert_eq!(fs::metadata(mount.join(".oncefs")).unwrap().permissions().mode() & 0o7777, 0o700);
    fs::write(mount.join("top/a/1"), "changed").unwrap();
    fs::remove_dir_all(mount.join("top/a/b")).unwrap();
    assert_eq!(fs::read(first.join("top/a/1")).unwrap(), b"content of 1");
    assert_eq!(fs::read(first.join("top/a/b/large")).unwrap(), vec![7; 3 << 20]);
    let is_refused = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.map_err(|e| e.raw_os_error()), Err(Some(libc::EROFS)));
    };
    let file = first.join("top/a/1");
    is_refused(OpenOptions::new().append(true).open(&file).map(drop));
    is_refused(fs::write(&file, "x"));
    is_refused(fs::write(first.join("new"), "x"));
    is_refused(fs::remove_file(&file));
    is_refused(fs::remove_dir(first.join("top/a")));
    is_refused(fs::rename(&file, mount.join("out")));
    is_refused(fs::rename(&first, mount.join(".oncefs/snapshots/third")));
    is_refused(fs::hard_link(&file, mount.join("out")));
    is_refused(fs::create_dir(first.join("top/new")));
    is_refused(symlink("x", first.join("top/new")));
    is_refused(fs::set_permissions(&file, PermissionsExt::from_mode(0o600)));
    is_refused(File::open(&file).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH));
    assert!(!Command::new("setfattr").args(["-n", "user.x", "-v", "1"]).arg(&file).status().unwrap().success());
    let restored = mount.join("restored");
    run(&mut clone(&first.join("top"), &restored));
    fs::write(restored.join("a/1"), "mine").unwrap();
    fs::remove_dir_all(&restored).unwrap();
    mount.check();
}

#[test]
fn snapshots_are_listed_kept_by_number_and_removed() {
    let mut mount = Mount::new("1G");
    make_tree(&mount.join("top"));
    assert!(run(&mut snapshot("list", &mount.dir(), &[])).contains("has no snapshots"));
    run(&mut snapshot("create", &mount.join("top"), &["by-hand"]));
    for number in 1..=4 {
        run(&mut snapshot("create", &mount.dir(), &[&format!("daily-{number}"), "--keep", "2"]));
    }
    let all = run_json(&mut snapshot("list", &mount.dir(), &["--json"]))["snapshots"].clone();
    let mut names: Vec<_> = all.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["by-hand", "daily-3", "daily-4"]);
    let by_hand = all.as_array().unwrap().iter().find(|it| it["name"] == "by-hand").unwrap();
    assert_eq!((by_hand["of"].as_str(), by_hand["names"].as_u64()), (Some("/top"), Some(307)));
    assert!(run(&mut snapshot("list", &mount.dir(), &[])).contains("/top"));
    let mut open = File::open(mount.join(".oncefs/snapshots/by-hand/a/b/large")).unwrap();
    run(&mut snapshot("remove", &mount.dir(), &["by-hand"]));
    assert!(!mount.join(".oncefs/snapshots/by-hand").exists());
    assert_eq!(fs::read_dir(mount.join(".oncefs/snapshots")).unwrap().count(), 2);
    let mut content = Vec::new();
    open.read_to_end(&mut content).unwrap();
    assert_eq!(content, vec![7; 3 << 20], "a file that is open can be read until it is closed");
    drop(open);
    for name in ["daily-3", "daily-4"] {
        run(&mut snapshot("remove", &mount.dir(), &[name]));
    }
    assert_same(&mount.join("top"), &mount.join("top"));
    mount.check();
}

#[test]
fn what_only_a_snapshot_has_is_counted_when_it_is_asked_for() {
    let mut mount = Mount::new("1G");
    let top = mount.join("top");
    fs::create_dir_all(top.join("deeper")).unwrap();
    fs::write(top.join("deeper/small"), bytes(1, 9_000)).unwrap();
    fs::write(top.join("large"), bytes(2, 3 << 20)).unwrap();
    fs::hard_link(top.join("large"), top.join("deeper/again")).unwrap();
    run(&mut snapshot("create", &top, &["one"]));
    let own = |name: &str| {
        let listed = run_json(&mut snapshot("list", &mount.dir(), &["--own", "--json", name]))["snapshots"].clone();
        listed[0]["own_bytes"].as_u64().unwrap()
    };
    assert_eq!(own("one"), 0, "the tree has all of it");
    fs::remove_file(top.join("deeper/small")).unwrap();
    assert_eq!(own("one"), 12 << 10);
    fs::remove_file(top.join("large")).unwrap();
    fs::remove_file(top.join("deeper/again")).unwrap();
    mount.wait_for("space", "held_bytes", |held| held == (3 << 20) + (12 << 10));
    assert_eq!(own("one"), (3 << 20) + (12 << 10), "a file with two names counts once");
    run(&mut snapshot("create", &mount.join(".oncefs/snapshots/one"), &["two"]));
    assert_eq!((own("one"), own("two")), (0, 0), "no removal of one alone frees anything");
    assert!(run(&mut snapshot("list", &mount.dir(), &["--own"])).contains("own"));
    assert!(!run(&mut snapshot("list", &mount.dir(), &[])).contains("own"));
    assert!(fails(snapshot("list", &mount.dir(), &["three"])).contains("there is no snapshot three"));
    mount.check();
}

#[test]
fn the_difference_to_a_snapshot_is_what_programs_changed() {
    let mut mount = Mount::new("1G");
    let top = mount.join("top");
    make_tree(&top);
    run(&mut snapshot("create", &top, &["one"]));
    assert_eq!(run(&mut snapshot("diff", &mount.dir(), &["one"])), "");
    fs::write(top.join("a/1"), "changed").unwrap();
    fs::rename(top.join("a/2"), top.join("moved")).unwrap();
    fs::remove_file(top.join("pipe")).unwrap();
    fs::create_dir(top.join("new")).unwrap();
    fs::set_permissions(top.join("a/3"), PermissionsExt::from_mode(0o600)).unwrap();
    let expected = "M a/1\na a/3\nM a/b/one\nR a/2 -> moved\n+ new\n- pipe\n";
    assert_eq!(run(&mut snapshot("diff", &mount.dir(), &["one"])), expected);
    run(&mut snapshot("create", &top, &["two"]));
    assert_eq!(run(&mut snapshot("diff", &mount.dir(), &["one", "two"])), expected);
    let changes = run_json(&mut snapshot("diff", &mount.dir(), &["one", "two", "--json"]))["changes"].clone();
    assert_eq!((changes[3]["from"].as_str(), changes[3]["change"].as_str()), (Some("a/2"), Some("moved")));
    assert!(fails(snapshot("diff", &mount.dir(), &["one", "three"])).contains("there is no snapshot three"));
    mount.check();
}
