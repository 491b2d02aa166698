//! `oncefs estimate` as any user calls it: the files that it reads, those that it reports as left out, and its exit
//! codes.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{BINARY, LoopDevice, Run, content, oncefs};

const BLOCK: usize = 4096;
/// fcntl(2): sets the signal for the end of a lease. The crate `libc` lacks it.
const F_SETSIG: libc::c_int = 10;

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

fn estimate(path: &Path) -> Value {
    json(&oncefs(&["estimate", "--json", path.to_str().unwrap()]).succeeds())
}

fn read(estimated: &Value) -> [u64; 3] {
    ["files", "blocks", "zero_blocks"].map(|name| estimated["read"][name].as_u64().unwrap())
}

#[test]
fn every_file_counts_once_holes_are_zeros_and_what_is_no_file_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("below")).unwrap();
    fs::write(at("one"), content(1, 10 * BLOCK + 1)).unwrap();
    fs::copy(at("one"), at("below/copy")).unwrap();
    fs::hard_link(at("one"), at("below/also-one")).unwrap();
    fs::write(at("empty"), "").unwrap();
    symlink("/", at("below/link")).unwrap();
    Run::of(Command::new("mkfifo").arg(at("pipe"))).succeeds();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(&content(2, 2 * BLOCK), 1 << 39).unwrap();

    let estimated = estimate(dir.path());
    let [files, blocks, zeros] = read(&estimated);
    assert_eq!((files, blocks), (4, 2 * 11 + 2), "{estimated:#}");
    assert_eq!(zeros + 2, (1 << 40) / BLOCK as u64, "the holes");
    assert_eq!(estimated["duplicates"]["blocks"], 11);
    assert_eq!(estimated["profiles"][0]["saved_bytes"], 11 * BLOCK);
    let text = oncefs(&["estimate", dir.path().to_str().unwrap()]).succeeds();
    assert!(text.out.contains("-o compress=later, experimental") && text.err.is_empty(), "{text:?}");
    assert_eq!(read(&estimate(&at("below/also-one")))[..2], [1, 11], "a file by itself");
}

#[test]
fn a_block_device_is_read_as_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    fs::write(&image, [content(1, 8 * BLOCK), vec![0; 8 * BLOCK], content(1, 8 * BLOCK)].concat()).unwrap();
    let device = LoopDevice::of(image.to_str().unwrap());
    let estimated = estimate(Path::new(&device.0));
    assert_eq!((read(&estimated), &estimated["duplicates"]["blocks"]), ([1, 16, 8], &Value::from(8)));
}

#[test]
fn what_cannot_be_read_is_named_and_counted_and_the_rest_is_estimated() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["mine", "closed"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("open"), content(1, BLOCK)).unwrap();
    fs::write(at("secret"), content(1, BLOCK)).unwrap();
    fs::set_permissions(at("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::set_permissions(at("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    // A copy, because the build directory may be closed to other users. A process of its own makes it, so that no other
    // test's child has it open.
    Run::of(Command::new("cp").arg(BINARY).arg(at("mine/oncefs"))).succeeds();
    let run = Run::of(
        Command::new(at("mine/oncefs"))
            .args(["estimate", "--json"])
            .args([at("open"), at("secret"), at("closed"), at("missing")])
            .uid(65534)
            .gid(65534),
    );
    assert_eq!(run.code, Some(1), "{run:?}");
    let lines: Vec<&str> = run.err.lines().collect();
    assert_eq!(lines.len(), 3, "{run:?}");
    for (line, name) in lines.iter().zip(["secret", "closed", "missing"]) {
        assert!(line.starts_with("oncefs: cannot read ") && line.contains(name), "{line}");
    }
    let estimated = json(&run);
    assert_eq!((read(&estimated), &estimated["refused"]), ([1, 1, 0], &Value::from(3)));
}

#[test]
fn wrong_usage_is_told_apart() {
    let nothing = oncefs(&["estimate", "/nowhere"]).fails(1, &["cannot read /nowhere"]);
    assert!(nothing.out.is_empty(), "a table of zeros: {nothing:?}");
    oncefs(&["estimate"]).fails(2, &["PATH", "oncefs estimate --help"]);
    oncefs(&["estimate", "/dev/null", "--memory", "1M"]).fails(2, &["--memory", "4.00 MiB"]);
    oncefs(&["estimate", "/dev/null", "--memory", "much"]).fails(2, &["such as 512M"]);
    oncefs(&["estimate", "/dev/null", "--piece-cost", "0"]).fails(2, &["--piece-cost"]);
    let run = oncefs(&["estimate", "/dev/null"]);
    assert!(run.code == Some(1) && run.err.contains("it is no file, directory or block device"), "{run:?}");
}

#[test]
fn times_of_access_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, content(1, BLOCK)).unwrap();
    Run::of(Command::new("touch").args(["-a", "-d", "2001-01-01"]).arg(&file)).succeeds();
    let accessed = fs::metadata(&file).unwrap().atime();
    estimate(&file);
    assert_eq!(fs::metadata(&file).unwrap().atime(), accessed);
}

#[test]
fn a_cancelled_estimate_prints_no_half_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, content(1, BLOCK)).unwrap();
    // An open of the file waits for the end of the lease, so the command does not get to its end. SIGURG, which the
    // kernel sends for the lease, is ignored.
    let leased = File::options().read(true).write(true).open(&path).unwrap();
    let (fd, urgent, lease) = (leased.as_raw_fd(), libc::SIGURG, libc::F_WRLCK);
    // SAFETY: fcntl takes integers here, and the descriptor is open.
    let set = unsafe { [libc::fcntl(fd, F_SETSIG, urgent), libc::fcntl(fd, libc::F_SETLEASE, lease)] };
    assert_eq!(set, [0, 0], "{}", std::io::Error::last_os_error());
    let mut command = Command::new(BINARY);
    // Background jobs of a script ignore the signal, and the command would inherit that. SAFETY: signal(2) is safe
    // between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let child = command.arg("estimate").arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // SAFETY: kill takes two integers; the process is this test's own. It ends by the signal, or ends itself because of
    // it.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code() == Some(130) || output.status.signal() == Some(libc::SIGINT), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}
