//! `oncefs top` in a real terminal: tmux, with a server of its own for each test.

use std::fs;
use std::process::Command;

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, run};

/// A terminal in which a shell runs a command, then says how it ended and how the terminal is set.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn running(name: &str, command: &str) -> Self {
        let terminal = Self { socket: format!("oncefs-{name}-{}", std::process::id()) };
        // The pane stays whatever the command does.
        let script =
            format!("{command}; echo ended $?; stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo; sleep 600");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &script]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        run(Command::new("tmux").env("TERM", "xterm").args(["-u", "-L", &self.socket]).args(arguments))
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until all of it is on the screen.
    fn await_words(&self, words: &[&str]) {
        eventually(&format!("{words:?} on the screen"), || {
            let screen = self.screen();
            words.iter().all(|word| screen.contains(word))
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

fn top(mount: &Mount) -> String {
    format!("{} top {}", oncefs().display(), mount.dir().display())
}

#[test]
fn top_follows_the_terminal_and_restores_it() {
    let mount = Mount::new("1G");
    fs::write(mount.join("file"), bytes(1, 1 << 20)).unwrap();
    fs::File::open(mount.join("file")).unwrap().sync_all().unwrap();
    let restored = ["ended 0", "icanon", "echo"];
    for (turn, key) in ["q", "C-c"].iter().enumerate() {
        let terminal = Terminal::running(&format!("keys-{turn}"), &top(&mount));
        let parts = ["held 1.00 MiB", "per second", "latency", "caches", "hints_on_disk", "worker", "q ends"];
        terminal.await_words(&parts);
        let is_as_wide = |columns: usize| terminal.screen().lines().any(|line| line.chars().count() == columns);
        assert!(is_as_wide(80), "{}", terminal.screen());
        terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
        eventually("the frame is as wide as the terminal", || is_as_wide(120));
        terminal.tmux(&["send-keys", key]);
        terminal.await_words(&restored);
        assert!(!terminal.screen().contains("per second"), "the screen is as it was before");
    }
    let terminal = Terminal::running("signal", &top(&mount));
    terminal.await_words(&["per second"]);
    let shell = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.trim())).unwrap();
    run(Command::new("kill").arg(child.trim()));
    terminal.await_words(&restored);
    let once = run(Command::new(oncefs()).arg("top").arg(mount.dir()).arg("--once"));
    assert!(once.lines().count() == 24 && once.contains("held 1.00 MiB"), "{once}");
}

#[test]
fn top_says_that_the_daemon_is_gone() {
    let mut mount = Mount::new("256M");
    let terminal = Terminal::running("gone", &top(&mount));
    terminal.await_words(&["per second"]);
    mount.umount();
    terminal.await_words(&["was unmounted meanwhile", "ended 1", "icanon", "echo"]);
}
