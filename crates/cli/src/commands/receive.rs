//! `oncefs receive`: makes a directory from a stream of `oncefs send`.

mod answers;
mod file;
mod late_flags;
mod state;
mod tree;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_stream::{Asked, Digest, Header, Name, Reader, Record};

use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::attributes::RECEIVED;
use crate::files::held::Held;
use crate::files::in_mount::InMount;
use crate::names::shown;
use crate::size::Size;
use answers::Answers;
use file::Sources;
use state::State;
use tree::Tree;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Arguments of `receive`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads the stream from the standard input, and checks each part of it. DIR/NAME appears when all of the stream has
arrived. What an interrupted receive has is kept below .oncefs/receive in the mount. To go on with it, send with the
token that --token prints; --discard gives it up. Needs root. Experimental.

Examples:
  oncefs receive /backup home < home.stream
  ssh host oncefs send /mnt/home | oncefs receive /backup home
  ssh host oncefs send /mnt/home-2 --from /mnt/home-1 | oncefs receive /backup home-2
  oncefs receive /backup home --token         the token for oncefs send --resume
  oncefs receive /backup home --discard       remove what an interrupted receive left")]
pub struct ReceiveArgs {
    /// A directory in a mount
    pub dir: PathBuf,
    /// Name of the new directory in it
    pub name: OsString,
    /// Where the older directory of an incremental stream is [default: it is looked for in DIR]
    #[arg(long, value_name = "PATH")]
    pub older: Option<PathBuf>,
    /// Print the token of an interrupted receive, and do nothing else
    #[arg(long, conflicts_with = "discard")]
    pub token: bool,
    /// Remove what an interrupted receive has, and do nothing else
    #[arg(long)]
    pub discard: bool,
    /// Answer on the standard output which contents the volume has: for oncefs send --to --ask
    #[arg(long, hide = true, conflicts_with_all = ["token", "discard"])]
    pub answers: bool,
    /// Make durable what has arrived after each SIZE of it: as much is sent again after a crash
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub save_every: Size,
}

/// Where to receive.
struct Target<'a> {
    arguments: &'a ReceiveArgs,
    dir: InMount,
    daemon: Daemon,
}

/// Receives the stream on the standard input.
pub fn run(arguments: &ReceiveArgs) -> Outcome {
    if let Err(why) = Name::new(arguments.name.as_bytes()) {
        let text = format!("{} cannot be the name of a directory: {why}", shown(&arguments.name));
        return Err(Failure::new(exit::USAGE, text));
    }
    let dir = InMount::find(&arguments.dir, "give a directory in one")?;
    let daemon = Daemon::of(&dir.mount)?;
    let target = Target { arguments, dir, daemon };
    let state = State::open(&target.dir, &arguments.name).or_fail_doing(exit::FAILED, target.failed())?;
    if arguments.discard {
        let doing = format!("cannot remove what has arrived of {}", target.path());
        return state.remove().or_fail_doing(exit::FAILED, doing);
    }
    let outcome = if arguments.token { target.say_token(&state) } else { target.receive(&state) };
    if outcome.is_err() && matches!(state.token(), Ok(None)) {
        // Nothing is there that could be continued, and the outcome says why.
        let _ = state.remove();
    }
    outcome
}

impl Target<'_> {
    fn path(&self) -> impl std::fmt::Display {
        shown(&self.dir.path.join(&self.arguments.name))
    }

    fn failed(&self) -> String {
        format!("cannot receive {}", self.path())
    }

    fn refuse<T>(&self, why: impl std::fmt::Display) -> Outcome<T> {
        Err(Failure::new(exit::FAILED, format!("{}: {why}", self.failed())))
    }

    fn say_token(&self, state: &State) -> Outcome {
        match state.token().or_fail_doing(exit::FAILED, format!("cannot read the token of {}", self.path()))? {
            Some(token) => {
                say!("{token}");
                Ok(())
            }
            None => {
                let text = format!(
                    "no receive of {} was interrupted, or nothing of it had arrived: send all of it",
                    self.path()
                );
                Err(Failure::new(exit::FAILED, text))
            }
        }
    }

    fn receive(&self, state: &State) -> Outcome {
        if self.dir.held.status_of(&self.arguments.name).is_ok() {
            return self.refuse("it exists: give another name, or move it away");
        }
        if io::stdin().is_terminal() {
            return self
                .refuse("the standard input is a terminal: give a stream of oncefs send (oncefs receive --help)");
        }
        let mut answers = match self.arguments.answers {
            true => Some(Answers::begin(&self.daemon, state).or_fail_doing(exit::FAILED, self.failed())?),
            false => None,
        };
        let input = io::stdin().as_fd().try_clone_to_owned().or_fail_doing(exit::FAILED, self.failed())?;
        let input = BufReader::with_capacity(BUFFER_BYTES, std::fs::File::from(input));
        let (reader, header) = Reader::begin(input).or_fail_doing(exit::FAILED, self.failed())?;
        self.check_state(state, &header)?;
        let older = header.older.as_ref().map(|older| self.older(older)).transpose()?;
        let tree = state.tree(header.resumed.as_ref()).and_then(|top| {
            let late_flags = state.late_flags()?;
            let known = answers.as_ref().map(Answers::known).transpose()?;
            Tree::new(top, Sources { older, known }, header.resumed.clone(), late_flags)
        });
        let mut tree = tree.or_fail_doing(exit::FAILED, self.failed())?;
        let mut receiving =
            Receiving { target: self, state, header, reader, answers: answers.as_mut(), saved_bytes: 0 };
        receiving.records(&mut tree)?;
        receiving.finish(&mut tree)
    }

    /// Refuses a stream that does not continue what has arrived.
    fn check_state(&self, state: &State, header: &Header) -> Outcome {
        let saved = state.token().or_fail_doing(exit::FAILED, self.failed())?;
        match (&header.resumed, saved) {
            (None, None) => state.clear().or_fail_doing(exit::FAILED, self.failed()),
            (None, Some(_)) => self.refuse(
                "a part of it has arrived before: send the rest (oncefs send --resume, with the token that --token \
                 prints), or give it up with --discard",
            ),
            (Some(_), None) => self.refuse(
                "the stream is the rest of another one, of which nothing is here: send all of it, without --resume",
            ),
            (Some(position), Some(saved))
                if saved.position == *position && saved.source == header.source && saved.older == header.older =>
            {
                Ok(())
            }
            (Some(_), Some(_)) => self.refuse(
                "the stream does not go on where this one was interrupted: use the token that --token prints now",
            ),
        }
    }

    /// The older tree that the stream refers to: the given one, or the one in the same directory that was received from
    /// the same source.
    fn older(&self, identity: &Digest) -> Outcome<Held> {
        if let Some(path) = &self.arguments.older {
            let older = InMount::find(path, "give a directory in one")?;
            return match older.mount.dir == self.dir.mount.dir {
                true => Ok(older.held),
                false => self.refuse(format!(
                    "{} is in another mount: give the older directory in {}",
                    shown(path),
                    shown(&self.dir.mount.dir)
                )),
            };
        }
        let found = received_in(&self.dir.held, identity).or_fail_doing(exit::FAILED, self.failed())?;
        found.map_or_else(
            || {
                self.refuse(
                    "the stream has only what changed since an older directory, which is not here: receive that one \
                     into the same directory first, or say with --older where it is",
                )
            },
            Ok,
        )
    }

    /// Makes everything durable that has arrived.
    fn sync(&self) -> Outcome {
        self.daemon.write_back()?;
        self.daemon.ask::<()>(Request::Commit)
    }
}

/// The directory in `dir` that is a copy of the tree with this identity.
fn received_in(dir: &Held, identity: &Digest) -> io::Result<Option<Held>> {
    let wanted = identity.to_string();
    for entry in dir.entries()?.into_iter().filter(|entry| !entry.is_file) {
        // What cannot be held is another file system, or gone.
        let Ok(held) = dir.below([entry.name.as_os_str()]) else { continue };
        let mut value = [0_u8; 64];
        let length = held.attribute(RECEIVED, &mut value);
        if length.is_some_and(|length| value[..length] == *wanted.as_bytes()) && held.about()?.is_dir() {
            return Ok(Some(held));
        }
    }
    Ok(None)
}

/// A stream on its way in.
struct Receiving<'a, In> {
    target: &'a Target<'a>,
    state: &'a State,
    header: Header,
    reader: Reader<In>,
    /// Of a sender that may ask.
    answers: Option<&'a mut Answers<'a>>,
    /// Bytes of the stream that had arrived when the position was last saved.
    saved_bytes: u64,
}

impl<In: io::Read> Receiving<'_, In> {
    fn records(&mut self, tree: &mut Tree) -> Outcome {
        loop {
            let record = match self.reader.record() {
                Ok(Record::End { .. }) => return Ok(()),
                Ok(Record::Ask { contents }) => {
                    if let Err(why) = self.answer(&contents) {
                        return Err(self.broken_off(tree, &why));
                    }
                    continue;
                }
                Ok(record) => record,
                Err(e) => return Err(self.broken_off(tree, &e.to_string())),
            };
            if let Err(e) = tree.take(record) {
                let text = format!("{}: {e}", shown(&tree.shown_path(Path::new(&self.target.arguments.name))));
                return Err(self.broken_off(tree, &text));
            }
            if self.reader.bytes() - self.saved_bytes >= self.target.arguments.save_every.0 {
                self.save(tree)?;
            }
        }
    }

    /// Tells the sender which contents are here.
    fn answer(&mut self, asked: &[Asked]) -> Result<(), String> {
        let answers = self.answers.as_mut().ok_or("the stream asks for contents, and nobody reads the answers")?;
        answers.answer(&self.header.key, asked)
    }

    /// Saves how far the stream has arrived, so that it can go on there.
    fn save(&mut self, tree: &Tree) -> Outcome<bool> {
        self.saved_bytes = self.reader.bytes();
        let Some(position) = tree.position() else { return Ok(false) };
        self.target.sync()?;
        let saved = self.state.save(&self.header, position);
        let doing = format!("cannot save how much of {} has arrived", self.target.path());
        saved.or_fail_doing(exit::FAILED, doing).map(|()| true)
    }

    fn broken_off(&mut self, tree: &Tree, why: &str) -> Failure {
        let text = format!("{}: {why}", self.target.failed());
        match self.save(tree) {
            Ok(true) => {
                let (dir, name) = (shown(&self.target.arguments.dir), shown(&self.target.arguments.name));
                let rest = format!("what has arrived is kept: oncefs receive {dir} {name} --token");
                Failure::new(exit::FAILED, format!("{text}; {rest} prints the token for oncefs send --resume"))
            }
            Ok(false) => Failure::new(exit::FAILED, text),
            Err(failure) => Failure::new(exit::FAILED, format!("{text}; {}", failure.message)),
        }
    }

    /// Gives the whole tree its name.
    fn finish(&mut self, tree: &mut Tree) -> Outcome {
        let target = self.target;
        tree.mark(&self.header.source).or_fail_doing(exit::FAILED, target.failed())?;
        // If the tree cannot get its name, it can be continued from here.
        self.save(tree)?;
        let of_top = tree.set_late_flags().or_fail_doing(exit::FAILED, target.failed())?;
        target.sync()?;
        let named = self.state.give_name(&target.dir.held, OsStr::new(&target.arguments.name));
        named.or_fail_doing(exit::FAILED, target.failed())?;
        if !of_top.is_empty() {
            let doing = format!("{} is complete, but has no flags", target.path());
            tree.set_flags_of_top(of_top).or_fail_doing(exit::FAILED, doing)?;
        }
        let doing = format!("{} is complete, but its folder in .oncefs/receive cannot be removed", target.path());
        self.state.remove().or_fail_doing(exit::FAILED, doing)?;
        target.daemon.ask::<()>(Request::Commit)?;
        let totals = self.reader.totals();
        let (data, shared) = (Size(totals.data_bytes), Size(totals.shared_bytes));
        tell!("oncefs: received {} entries: {data} of contents, and {shared} again", totals.entries);
        Ok(())
    }
}
