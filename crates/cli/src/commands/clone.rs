//! `oncefs clone`: copies a directory with everything in it, or a file, without copying data.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::control::tree_work::{await_work, ticket};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{Name, shown};

/// Arguments of `clone`.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy has names, owners, permissions, times, attributes, access control lists, policies and links like one by cp -a,
and shares all blocks with the source. What was written before is in it. Each file is as it was at one moment; names that
other programs move meanwhile may be missing. It appears under its name when it is whole: Ctrl-C, an error or a crash
leaves nothing. Immutable and append-only files become ordinary ones in it. A clone of the root of a mount is without
.oncefs, where disks and snapshots are. Needs root.

Examples:
  oncefs clone /mnt/project /mnt/experiment
  oncefs clone /mnt/images/base.img /mnt/images/vm7.img
  oncefs clone /mnt/.oncefs/snapshots/daily-2026-11-25/home /mnt/home.restored")]
pub struct CloneArgs {
    /// A directory or a file in a mount
    #[arg(value_name = "DIR")]
    pub source: PathBuf,
    /// The copy, in the same mount; nothing has this name yet
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
}

/// Makes a clone.
pub fn run(CloneArgs { source, new }: &CloneArgs) -> Outcome {
    let found = InMount::find(source, "give a directory or a file in one")?;
    let (above, name) = place_of(new)?;
    let parent = InMount::find(&above, "a clone shares blocks with its source, so it lies in the same volume")?;
    if parent.mount.source != found.mount.source {
        let text = format!(
            "{} is in another volume than {}: a clone shares blocks with its source (cp -a copies between volumes)",
            shown(new),
            shown(source)
        );
        return Err(Failure::new(exit::FAILED, text));
    }
    let cannot = || format!("cannot clone {} as {}", shown(source), shown(new));
    let daemon = Daemon::of(&found.mount)?;
    daemon.write_back()?;
    let number = |held: &InMount| held.held.about().map(|about| std::os::unix::fs::MetadataExt::ino(&about));
    let ticket = ticket();
    let request = Request::CopyTree {
        source: number(&found).or_fail_doing(exit::FAILED, cannot())?,
        parent: number(&parent).or_fail_doing(exit::FAILED, cannot())?,
        name: Name::from(&*name),
        snapshot_of: None,
        ticket,
    };
    let done = await_work(&daemon, request, ticket, ("cloning", "cloned"));
    done.map(drop).map_err(|failure| Failure::new(failure.code, format!("{}: {}", cannot(), failure.message)))
}

/// The directory above a new name, and the name.
fn place_of(new: &Path) -> Outcome<(PathBuf, OsString)> {
    let absolute = std::path::absolute(new).or_fail_doing(exit::FAILED, shown(new))?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(above), Some(name)) => Ok((above.to_owned(), name.to_owned())),
        _ => Err(Failure::new(exit::USAGE, format!("{} ends without a name: name the copy", shown(new)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_has_a_directory_above_it() {
        assert_eq!(place_of(Path::new("/a/b/")).unwrap(), ("/a".into(), "b".into()));
        assert_eq!(place_of(Path::new("b")).unwrap().1, "b");
        for path in ["/", "/a/.."] {
            assert_eq!(place_of(Path::new(path)).unwrap_err().code, exit::USAGE, "{path}");
        }
    }
}
