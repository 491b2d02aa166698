//! The script `oncefs-head`, with programs in place of `oncefs` and `stat`, and a mount table of the test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};

use oncefs_system_tests::eventually;

fn program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A machine with the volume `home`, which is mounted while the file `mounted` is there.
struct Machine(tempfile::TempDir);

impl Machine {
    /// `oncefs failover` does `moves`, in which MOUNTED stands for the file. `oncefs mount` lasts as long as the mount.
    fn with(moves: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let bin = machine.0.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let oncefs = "case \"$*\" in\n*--dry-run*) exit 0 ;;\n\
                      mount*) : >MOUNTED; while [ -e MOUNTED ]; do sleep 0.05; done; exit 0 ;;\nesac\n";
        let mounted = machine.path("mounted");
        program(
            &bin.join("oncefs"),
            &format!("{oncefs}{moves}").replace("MOUNTED", &mounted).replace("GO", &machine.path("go")),
        );
        let line = "50 20 0:52 / /no/mount rw - fuse.oncefs /srv/volume rw";
        program(&bin.join("grep"), &format!("[ ! -e {mounted} ] || echo '{line}'"));
        program(&bin.join("stat"), "exit 0");
        let log = machine.path("log");
        fs::write(&log, "").unwrap();
        let settings = format!(
            "volume=/srv/volume dir=/no/mount\nstart_servers() {{ echo -n start, >>{log}; }}\n\
             stop_servers() {{ echo -n stop, >>{log}; }}\n"
        );
        fs::write(machine.path("home.conf"), settings).unwrap();
        machine
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn mount(&self) {
        fs::write(self.path("mounted"), "").unwrap();
    }

    /// `oncefs-head` with an action.
    fn head(&self, action: &str) -> Command {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/failover/oncefs-head");
        let path = format!("{}:{}", self.path("bin"), std::env::var("PATH").unwrap());
        let mut head = Command::new("bash");
        head.args([script, action, "home"]).env("PATH", path);
        head.env("ONCEFS_HEAD_SETTINGS", self.0.path()).env("ONCEFS_HEAD_RUN", self.0.path());
        head
    }

    /// What happened to the servers so far.
    fn servers(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }
}

/// What `oncefs-head failover` returns, and what it did with its servers, if `oncefs failover` does `moves`.
fn failover(moves: &str) -> (Option<i32>, String) {
    let machine = Machine::with(moves);
    machine.mount();
    (machine.head("failover").status().unwrap().code(), machine.servers())
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

/// `oncefs-head run`, which has ended when this is dropped.
struct Running<'a>(&'a Machine, Child);

impl<'a> Running<'a> {
    fn on(machine: &'a Machine) -> Self {
        let run = machine.head("run").spawn().unwrap();
        let running = Self(machine, run);
        eventually("the servers start", || machine.servers() == "stop,start,");
        running
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.path("mounted"));
        let _ = self.1.wait();
    }
}

/// A failover whose script is killed while the command does `moves`.
fn killed(machine: &Machine) {
    let status = machine.head("failover").status().unwrap();
    assert_eq!(status.signal(), Some(9), "{status:?}");
}

#[test]
fn servers_that_a_killed_failover_stopped_come_back_once_nothing_of_it_is_at_work() {
    let machine = Machine::with("kill -KILL $PPID; exit 1");
    let running = Running::on(&machine);
    for failover in 2..4 {
        killed(&machine);
        eventually("what was stopped comes back", || machine.servers() == "stop,start,".repeat(failover));
    }
    drop(running);
    assert_eq!(machine.servers(), "stop,start,stop,start,stop,start,stop,", "the mount is gone");
    let machine = Machine::with("kill -KILL $PPID; until [ -e GO ]; do sleep 0.05; done; rm MOUNTED");
    let mut running = Running::on(&machine);
    killed(&machine);
    fs::write(machine.path("go"), "").unwrap();
    running.1.wait().unwrap();
    assert_eq!(machine.servers(), "stop,start,stop,stop,", "the command went on, and moved the volume");
}
