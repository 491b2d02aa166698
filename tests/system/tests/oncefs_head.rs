//! The script `oncefs-head`, with a program in place of `oncefs` and a mount table of the test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What `oncefs-head failover` returns, and what it did with its servers, if `oncefs failover` does `moves`. That may
/// remove the file `mounted`.
fn failover(moves: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let [log, mounted] = ["log", "mounted"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(&mounted, "").unwrap();
    let moves = moves.replace("MOUNTED", &mounted);
    program(&bin.join("oncefs"), &format!("case \"$*\" in *--dry-run*) exit 0 ;; esac\n{moves}"));
    let line = "50 20 0:52 / /no/mount rw - fuse.oncefs /srv/volume rw";
    program(&bin.join("grep"), &format!("[ ! -e {mounted} ] || echo '{line}'"));
    let settings = format!(
        "volume=/srv/volume dir=/no/mount\nstart_servers() {{ echo -n start, >>{log}; }}\n\
         stop_servers() {{ echo -n stop, >>{log}; }}\n"
    );
    fs::write(dir.path().join("home.conf"), settings).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/failover/oncefs-head");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut head = Command::new("bash");
    head.args([script, "failover", "home"]).env("PATH", path).env("ONCEFS_HEAD_SETTINGS", dir.path());
    let status = head.status().unwrap();
    (status.code(), fs::read_to_string(log).unwrap())
}

#[test]
fn servers_come_back_if_the_volume_stays_however_the_move_ends() {
    assert_eq!(failover("rm MOUNTED"), (Some(0), "stop,".to_owned()), "it moved");
    assert_eq!(failover("exit 1"), (Some(1), "stop,start,".to_owned()), "it was refused");
    assert_eq!(failover("kill -KILL $$"), (Some(137), "stop,start,".to_owned()), "the command was killed");
    let ended = "kill -TERM $PPID; kill -TERM $$";
    assert_eq!(failover(ended), (Some(143), "stop,start,".to_owned()), "both were ended");
    let moved = "kill -TERM $PPID; rm MOUNTED";
    assert_eq!(failover(moved), (Some(143), "stop,".to_owned()), "the script was ended, and the volume moved");
    assert_eq!(failover("rm MOUNTED; exit 1").1, "stop,", "another took it");
}
