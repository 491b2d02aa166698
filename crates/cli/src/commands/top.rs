//! `oncefs top`: a live view of a mounted volume in the terminal.

mod rates;
mod view;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::rates::{History, Moment};
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::of_mount::Snapshot;
use crate::mounting::mount_table;
use crate::names::shown;
use crate::process::signals::EndSignals;

/// How long a key, a new terminal size or a signal may wait for its effect.
const POLL: Duration = Duration::from_millis(100);

/// The size of the frame that --once prints: that of the smallest terminal in use.
const ONCE_SIZE: (u16, u16) = (80, 24);

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: q, Esc or Ctrl-C ends.

Examples:
  oncefs top /mnt
  oncefs top /mnt --every 5
  oncefs top /mnt --once            one frame as text, over one interval")]
pub struct TopArgs {
    /// Any path inside a mount, or the volume
    pub target: PathBuf,
    /// Seconds from one frame to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub every: u64,
    /// Print one frame as text, and end
    #[arg(long)]
    pub once: bool,
}

/// Shows the view until a key, a signal or the end of the daemon.
pub fn run(arguments: &TopArgs) -> Outcome {
    let daemon = Daemon::find(&arguments.target)?;
    let every = Duration::from_secs(arguments.every);
    let mut history = History::default();
    history.add(moment(&daemon)?);
    if arguments.once {
        std::thread::sleep(every);
        history.add(moment(&daemon)?);
        put!("{}", once(&history)?);
        return Ok(());
    }
    if !io::stdout().is_terminal() {
        let text = "the output is not a terminal: oncefs top --once prints a frame as text";
        return Err(Failure::new(exit::USAGE, text));
    }
    let signals = EndSignals::block();
    let moments = watch(daemon, every)?;
    let terminal = ratatui::try_init();
    let shown = terminal.and_then(|mut terminal| show(&mut terminal, history, &moments, &signals));
    // The terminal is restored in any case before a message is printed.
    let restored = ratatui::try_restore();
    shown.or_fail_doing(exit::FAILED, "cannot use the terminal")??;
    restored.or_fail_doing(exit::FAILED, "cannot restore the terminal")
}

/// The present figures. A daemon that ends during the request may hang up in any way, so the error reports an unmounted
/// volume instead.
fn moment(daemon: &Daemon) -> Outcome<Moment> {
    let snapshot = Snapshot::take(daemon).map_err(|failure| match mount_table::of_volume(&daemon.volume) {
        Ok(None) => Failure::new(exit::FAILED, format!("{} was unmounted meanwhile", shown(&daemon.volume))),
        _ => failure,
    })?;
    Ok(Moment { snapshot, at: Instant::now() })
}

/// Asks the daemon on a thread of its own, so that a daemon that hangs does not block the keys.
fn watch(daemon: Daemon, every: Duration) -> Outcome<Receiver<Outcome<Moment>>> {
    let (sender, moments) = channel();
    let ask = move || send_moments(&daemon, every, &sender);
    std::thread::Builder::new().spawn(ask).or_fail_doing(exit::FAILED, "cannot start a thread")?;
    Ok(moments)
}

fn send_moments(daemon: &Daemon, every: Duration, sender: &Sender<Outcome<Moment>>) {
    loop {
        std::thread::sleep(every);
        let moment = moment(daemon);
        let is_over = moment.is_err();
        if sender.send(moment).is_err() || is_over {
            return;
        }
    }
}

/// Draws whenever there are new figures, or the terminal has a new size.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut history: History,
    moments: &Receiver<Outcome<Moment>>,
    signals: &EndSignals,
) -> io::Result<Outcome> {
    let mut is_new = true;
    loop {
        if is_new {
            terminal.draw(|frame| view::draw(frame, &history))?;
        }
        is_new = match moments.recv_timeout(Duration::ZERO) {
            Ok(Ok(moment)) => {
                history.add(moment);
                true
            }
            Ok(Err(failure)) => return Ok(Err(failure)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        };
        if signals.wait(Some(Duration::ZERO)).is_some() {
            return Ok(Ok(()));
        }
        if event::poll(POLL)? {
            match event::read()? {
                Event::Key(key) if ends(&key) => return Ok(Ok(())),
                Event::Resize(..) => is_new = true,
                _ => {}
            }
        }
    }
}

fn ends(key: &KeyEvent) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (is_ctrl_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}

/// One frame as text.
fn once(history: &History) -> Outcome<String> {
    let (columns, rows) = ONCE_SIZE;
    let drawn = || {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows))?;
        terminal.draw(|frame| view::draw(frame, history))?;
        Ok::<_, std::convert::Infallible>(view::text(terminal.backend().buffer()))
    };
    drawn().or_fail(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_end_and_other_keys_do_not() {
        let key = |code, modifiers| ends(&KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert!(key(KeyCode::Char('q'), none) && key(KeyCode::Esc, none));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), none) && !key(KeyCode::Enter, none));
    }
}
