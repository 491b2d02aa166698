//! `oncefs send`: writes a directory as a stream in which each content occurs once.

mod asker;
mod body;
mod older;
mod outgoing;
mod remote;
mod resume;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_stream::{Digest, Header, Key, Token, identity};

use crate::control::answers::About;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::shown;
use crate::size::Size;
use asker::Asker;
use older::OlderTree;
use outgoing::Outgoing;
use remote::Destination;
use tree::Sender;

/// Arguments of `send`.
#[derive(Debug, Args)]
#[command(after_help = "\
Writes everything in the directory: names, owners, modes, times, extended attributes and access control lists, hard
links, holes, devices. A block that occurs several times is written once. The stream is checked as oncefs receive reads
it. Files that change meanwhile may be sent as they were at several moments. Other file systems mounted below are left
out. Needs root. Experimental.

Examples:
  oncefs send /mnt/home > home.stream
  oncefs send /mnt/home | ssh host oncefs receive /backup home
  oncefs send /mnt/home --to host /backup/home            the same; goes on by itself if it is run again
  oncefs send /mnt/home --to host /backup/home --ask      and sends no content that the volume there has
  oncefs send /mnt/home-2 --from /mnt/home-1 | ssh host oncefs receive /backup home-2
  oncefs send /mnt/home --resume TOKEN | ssh host oncefs receive /backup home")]
pub struct SendArgs {
    /// A directory in a mount
    pub path: PathBuf,
    /// Send only what changed since this older directory of the same mount, which the receiver has
    #[arg(long, value_name = "OLDER")]
    pub from: Option<PathBuf>,
    /// Go on with a stream that broke off: the token is that of oncefs receive DIR NAME --token
    #[arg(long, value_name = "TOKEN")]
    pub resume: Option<Token>,
    /// Receive it on another machine as the new directory PATH, by ssh; go on where an earlier try broke off
    #[arg(long, num_args = 2, value_names = ["HOST", "PATH"], conflicts_with = "resume")]
    pub to: Option<Vec<OsString>>,
    /// With --to: ask the other side which contents its volume has, and do not send those. Both sides must be trusted
    #[arg(long, requires = "to")]
    pub ask: bool,
    /// The program for --to, with options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "to")]
    pub rsh: String,
}

impl SendArgs {
    /// Where --to leads.
    fn destination(&self) -> Option<Destination<'_>> {
        match self.to.as_deref() {
            Some([host, path]) => Some(Destination { shell: &self.rsh, host, path: Path::new(path) }),
            _ => None,
        }
    }
}

/// Writes the stream to the standard output, or sends it to another machine.
pub fn run(arguments: &SendArgs) -> Outcome {
    let destination = arguments.destination();
    if destination.is_none() && io::stdout().is_terminal() {
        let text = "the standard output is a terminal: write the stream to a file or a pipe (oncefs send --help)";
        return Err(Failure::new(exit::FAILED, text));
    }
    let top = directory(&arguments.path)?;
    let daemon = Daemon::of(&top.mount)?;
    let older = arguments.from.as_deref().map(|path| older_than(&top, path)).transpose()?;
    let token = match &destination {
        Some(destination) => destination.token()?,
        None => arguments.resume.clone(),
    };
    let header = header(arguments, token.as_ref(), &daemon, &top, older.as_ref())?;
    daemon.write_back()?;
    let send = |out, asker| send(arguments, Outgoing::begin(&daemon, &top, header, out, asker), older.as_ref());
    match &destination {
        Some(destination) => {
            let (remote, input, answers) = destination.start(arguments.ask)?;
            let asker = answers.map(Asker::begin).transpose();
            remote.end(asker.and_then(|asker| send(input, asker)))
        }
        None => send(stdout().or_fail_doing(exit::FAILED, "cannot write to the standard output")?, None),
    }
}

fn send(arguments: &SendArgs, outgoing: io::Result<Outgoing>, older: Option<&InMount>) -> Outcome {
    let failed = || format!("cannot send {}", shown(&arguments.path));
    let outgoing = outgoing.or_fail_doing(exit::FAILED, failed())?;
    let older = older.map(OlderTree::new).transpose().or_fail_doing(exit::FAILED, failed())?;
    let (totals, bytes) = Sender::new(outgoing, older).send()?;
    let (data, shared, bytes) = (Size(totals.data_bytes), Size(totals.shared_bytes), Size(bytes));
    tell!("oncefs: sent {} entries in {bytes}: {data} of contents, and {shared} again", totals.entries);
    Ok(())
}

fn directory(path: &Path) -> Outcome<InMount> {
    let found = InMount::find(path, "give a directory in one")?;
    let about = found.held.about().or_fail_doing(exit::FAILED, shown(path))?;
    match about.is_dir() {
        true => Ok(found),
        false => Err(Failure::new(exit::FAILED, format!("{} is not a directory: give one", shown(path)))),
    }
}

/// The directory that `top` is compared with.
fn older_than(top: &InMount, path: &Path) -> Outcome<InMount> {
    let older = directory(path)?;
    if older.mount.dir == top.mount.dir {
        return Ok(older);
    }
    let (older, newer) = (shown(path), shown(&top.path));
    let text = format!("{older} is in another mount than {newer}: their blocks cannot be compared");
    Err(Failure::new(exit::FAILED, text))
}

fn header(
    arguments: &SendArgs,
    token: Option<&Token>,
    daemon: &Daemon,
    top: &InMount,
    older: Option<&InMount>,
) -> Outcome<Header> {
    let source = identity_of(daemon, top)?;
    let older = older.map(|older| identity_of(daemon, older)).transpose()?;
    let resumed = match token {
        None => None,
        Some(token) if token.source == source && token.older == older => Some(token.position.clone()),
        Some(_) => {
            let text = format!(
                "the token is of another stream than that of {}: give the directory, and the one of --from, as before",
                shown(&arguments.path)
            );
            return Err(Failure::new(exit::FAILED, text));
        }
    };
    Ok(Header { key: random_key()?, source, older, resumed })
}

/// Tells a directory from every other one in any volume: no volume reuses an inode number.
fn identity_of(daemon: &Daemon, top: &InMount) -> Outcome<Digest> {
    let volume: About = daemon.ask(Request::Version)?;
    let inode = top.held.about().or_fail_doing(exit::FAILED, shown(&top.path))?.ino();
    Ok(identity(&[b"tree", volume.volume_id.as_bytes(), &inode.to_le_bytes()]))
}

fn random_key() -> Outcome<Key> {
    let mut key = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key));
    read.or_fail_doing(exit::FAILED, "cannot read /dev/urandom").map(|()| Key(key))
}

/// The standard output without a buffer of lines.
fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}
