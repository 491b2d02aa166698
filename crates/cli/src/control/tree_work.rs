//! Work of the daemon on a tree that a command waits for, with its progress on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::control::answers::TreeDone;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, Outcome, exit};
use crate::progress::{Progress, Step};

/// How often the daemon is asked for the progress.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A number that no other command uses at the same time.
pub fn ticket() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    u64::from(std::process::id()) << 32 | u64::from(nanos)
}

/// Asks for work with this ticket, and waits for its end. `doing` and `done` are words for it.
pub fn await_work(daemon: &Daemon, request: Request, ticket: u64, (doing, done): (&str, &str)) -> Outcome<TreeDone> {
    if !std::io::stderr().is_terminal() {
        return daemon.ask(request);
    }
    let mut progress = Progress::new();
    let answer: TreeDone = std::thread::scope(|scope| {
        let (sender, answered) = channel();
        // The answer is awaited below, until the thread has sent it.
        scope.spawn(move || drop(sender.send(daemon.ask(request))));
        loop {
            match answered.recv_timeout(ASK_EVERY) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(exit::FAILED, "the daemon was not asked: try again"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Progress is only shown; the answer of the work says what went wrong.
                    let now: TreeDone = daemon.ask(Request::TreeProgress { ticket }).unwrap_or_default();
                    progress.show(doing, Step::things("names", now.names, 0));
                }
            }
        }
    })?;
    progress.end(done, Step::things("names", answer.names, answer.names));
    Ok(answer)
}
