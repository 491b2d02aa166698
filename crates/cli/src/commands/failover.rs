//! `oncefs failover`: moves a volume in a cluster to a process on another machine that waits for it, on purpose.
//!
//! Nothing changes before somebody waits and everything is durable. Then the daemon is told for whom it reserves the
//! volume, the mount ends as with `oncefs umount`, and the other takes the lock, which is free.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use oncefs_engine::{HeadState, HeadWatch, Heads, Store};

use crate::commands::umount::{self, NotGivenUp};
use crate::control::protocol::Request;
use crate::control::target::{Daemon, Target};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table;
use crate::names::{printable, shown};

/// How often the new head is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Arguments of `failover`.
#[derive(Debug, Args)]
#[command(after_help = "\
Run it on the machine that has the volume mounted. It needs a process that waits for the volume (oncefs mount
--standby on another machine), writes everything, unmounts the volume here, and returns when the other has
mounted it. Nothing is lost, synced or not. If nobody waits, or programs use the mount or a command is at work on it,
nothing changes. It fails if another machine took the volume. A standby that was killed is listed for ten seconds.
With oncefs-head, which has servers and an address to stop first: oncefs-head failover NAME.

Examples:
  oncefs failover /home
  oncefs failover /home --to second
  oncefs failover rados://data/home --dry-run")]
pub struct FailoverArgs {
    /// The mount point, or the volume
    pub target: PathBuf,
    /// Which of those that wait: its host name, or MACHINE:DIRECTORY as --dry-run names it. Without it, the first
    #[arg(long, value_name = "HOLDER")]
    pub to: Option<String>,
    /// How many seconds the other may take to mount the volume
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub wait: u64,
    /// Change nothing: say who waits, and where the volume would go
    #[arg(long)]
    pub dry_run: bool,
}

/// Moves the volume.
pub fn run(arguments: &FailoverArgs) -> Outcome {
    let (daemon, watch) = here(&arguments.target)?;
    let before = watch.look().or_fail(exit::FAILED)?;
    let name = shown(&daemon.volume).to_string();
    let heir = choose(&before.waiting, arguments.to.as_deref(), &name)?;
    if arguments.dry_run {
        say!("waiting for {name}: {}", listed(&before.waiting));
        say!("it would go to {}", brief(heir));
        return Ok(());
    }
    say!("{name} goes to {}", brief(heir));
    let began = Instant::now();
    give_up(&daemon, heir)?;
    let patience = Duration::from_secs(arguments.wait);
    let found = wait(&watch, heir, before.epoch, patience).or_fail_doing(exit::FAILED, unmounted(&name))?;
    match told(&found, heir, before.epoch) {
        Told::Served => {
            say!("{} has mounted it: {:.1} seconds in all", brief(heir), began.elapsed().as_secs_f32());
            Ok(())
        }
        Told::Taken(text) => Err(Failure::new(exit::FAILED, format!("{}, but {text}", unmounted(&name)))),
        Told::Otherwise(state) => {
            let text = format!("{}; after {} seconds {state}", unmounted(&name), arguments.wait);
            Err(Failure::new(exit::FAILED, text))
        }
    }
}

/// The daemon of a volume that is mounted here and can move, and a watch over who has it.
fn here(target: &Path) -> Outcome<(Daemon, HeadWatch)> {
    let daemon = match Target::find(target)? {
        Target::Mounted(daemon) => daemon,
        Target::Offline(volume) => return Err(elsewhere(target, &volume)),
    };
    let watch = Store::watch_head(&daemon.volume).or_fail(exit::FAILED)?;
    Ok((daemon, watch))
}

/// Why a volume that is not mounted here does not move.
fn elsewhere(target: &Path, volume: &Path) -> Failure {
    let head = Store::watch_head(volume).and_then(|watch| watch.look());
    match (Store::profile_of(volume), head) {
        (Ok(_), Err(error)) => Failure::new(exit::FAILED, error),
        (Ok(_), Ok(Heads { state: Some(HeadState::Open | HeadState::Serves), owner, .. })) => {
            let text = format!("{} is not mounted here: run the command where it is, {}", shown(target), brief(&owner));
            Failure::new(exit::FAILED, text)
        }
        _ => match Daemon::find(target) {
            Err(failure) => failure,
            Ok(_) => Failure::new(exit::FAILED, format!("{} was just mounted: try again", shown(target))),
        },
    }
}

/// One of those that wait.
fn choose<'a>(waiting: &'a [String], to: Option<&str>, name: &str) -> Outcome<&'a str> {
    let refused = |text: String| Err(Failure::new(exit::FAILED, text));
    let is_meant = |one: &&String| {
        // A part of its id follows the machine's name.
        let machine = one.split_once(':').map_or(one.as_str(), |(machine, _)| machine);
        let host = machine.rsplit_once('-').map_or(machine, |(host, _)| host);
        to.is_none_or(|to| [host, machine, brief(one), one].contains(&to))
    };
    let mut meant = waiting.iter().filter(is_meant);
    match (meant.next(), meant.next(), to) {
        (Some(_), Some(_), Some(to)) => {
            refused(format!("{to} may be several that wait, name one of them: {}", listed(waiting)))
        }
        (Some(one), ..) => Ok(one),
        (None, _, Some(to)) if !waiting.is_empty() => {
            refused(format!("{} does not wait for {name}, these do: {}", printable(to), listed(waiting)))
        }
        (None, ..) => refused(format!(
            "nobody waits for {name}, so it stays here: run oncefs mount --standby on the machine that is to have it, and \
             try again a few seconds later"
        )),
    }
}

/// Makes everything durable, reserves the volume, and unmounts it.
fn give_up(daemon: &Daemon, heir: &str) -> Outcome {
    let Some(mount) = mount_table::of_volume(&daemon.volume).or_fail(exit::FAILED)? else {
        return Err(Failure::new(exit::FAILED, format!("{} was just unmounted", shown(&daemon.volume))));
    };
    let stays = |failure: Failure| Failure {
        message: format!("{}; the volume stays here, and nothing has changed", failure.message),
        ..failure
    };
    // The kernel tells nobody which pages it could not write when it unmounts.
    daemon.write_back().map_err(stays)?;
    daemon.ask::<()>(Request::Commit).map_err(stays)?;
    daemon.ask::<()>(Request::ReserveFor { heir: Some(heir.to_owned()) }).map_err(stays)?;
    let take_back = |failure: Failure| match daemon.ask::<()>(Request::ReserveFor { heir: None }) {
        Ok(()) => failure,
        Err(why) => {
            let message = format!("{}; it is still reserved for {}: {}", failure.message, brief(heir), why.message);
            Failure { message, ..failure }
        }
    };
    umount::give_up(&mount).map_err(|not_given_up| match not_given_up {
        NotGivenUp::Badly(failure) => failure,
        NotGivenUp::Elsewhere(failure) => take_back(failure),
        NotGivenUp::Stays(failure) => take_back(stays(failure)),
    })
}

fn unmounted(name: &str) -> String {
    format!("{name} is unmounted here with everything written")
}

/// Machine and directory, without what tells one directory from a later one.
fn brief(holder: &str) -> &str {
    holder.split_once(" (inode ").map_or(holder, |(brief, _)| brief)
}

fn listed(holders: &[String]) -> String {
    let names: Vec<&str> = holders.iter().map(|holder| brief(holder)).collect();
    names.join(", ")
}

/// Looks until a later head serves the volume, the heir or another, or the time is over.
fn wait(watch: &HeadWatch, heir: &str, epoch: u64, patience: Duration) -> oncefs_engine::Result<Heads> {
    let began = Instant::now();
    loop {
        let found = watch.look()?;
        if !matches!(told(&found, heir, epoch), Told::Otherwise(_)) || began.elapsed() >= patience {
            return Ok(found);
        }
        thread::sleep(LOOK);
    }
}

/// What a look says about the move.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// By the heir.
    Served,
    /// Another has it, and programs use it there.
    Taken(String),
    Otherwise(String),
}

fn told(found: &Heads, heir: &str, epoch: u64) -> Told {
    let (owner, meant) = (brief(&found.owner), brief(heir));
    let is_heir = found.is_owned_by(heir);
    Told::Otherwise(match found.state {
        Some(HeadState::Serves) if found.epoch > epoch && is_heir => return Told::Served,
        Some(HeadState::Serves) if found.epoch > epoch => {
            return Told::Taken(format!("{owner} took it instead of {meant}: move it from there, or leave it"));
        }
        Some(HeadState::Open) if found.epoch > epoch && !is_heir => {
            format!("{owner} took it instead of {meant}, and has not mounted it yet: see its log")
        }
        Some(HeadState::Open) if found.epoch > epoch => {
            format!("{owner} has it, and has not mounted it yet: see its log")
        }
        Some(HeadState::Released | HeadState::Reserved) if found.epoch > epoch => {
            "another machine had it, and let go of it again: mount it where it is to be".to_owned()
        }
        _ if found.waiting.is_empty() => "nobody has it, and nobody waits: mount it here again".to_owned(),
        _ => {
            let waiting = listed(&found.waiting);
            format!("nobody has it yet: see the log of {waiting}, or mount it here again")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_state_of_a_move_has_its_words() {
        let heads = |epoch, state, waiting: &[&str]| {
            let owner = "second:/srv (inode 7, born 1.000000000)".to_owned();
            Heads { epoch, owner, state: Some(state), waiting: owned(waiting) }
        };
        let heir = "second:/srv (inode 7, born 1.000000000)";
        assert_eq!(told(&heads(8, HeadState::Serves, &[]), heir, 7), Told::Served);
        for (found, words) in [
            (heads(7, HeadState::Serves, &["second:/srv"]), "nobody has it yet: see the log of second:/srv,"),
            (heads(7, HeadState::Reserved, &["second:/srv"]), "nobody has it yet: see the log of second:/srv,"),
            (heads(7, HeadState::Reserved, &[]), "nobody waits: mount it here again"),
            (heads(8, HeadState::Open, &[]), "second:/srv has it, and has not mounted it yet"),
            (heads(8, HeadState::Released, &[]), "let go of it again"),
        ] {
            let Told::Otherwise(text) = told(&found, heir, 7) else { panic!("{found:?} serves") };
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn only_the_heir_that_mounts_it_ends_a_move_well() {
        let heads =
            |owner: &str, state| Heads { epoch: 8, owner: owner.to_owned(), state: Some(state), waiting: vec![] };
        let (old, heir) = ("first:/srv (inode 3, born 1.000000000)", "second:/srv (inode 7, born 1.000000000)");
        // The directory was made anew, and so is another.
        for owner in [old, "second:/srv (inode 8, born 2.000000000)"] {
            let Told::Taken(text) = told(&heads(owner, HeadState::Serves), heir, 7) else {
                panic!("{owner} is no heir")
            };
            assert!(text.starts_with(&format!("{} took it instead of second:/srv", brief(owner))), "{text}");
        }
        let Told::Otherwise(text) = told(&heads(old, HeadState::Open), heir, 7) else { panic!("nobody serves") };
        assert!(text.starts_with("first:/srv took it instead of second:/srv, and has not mounted it yet"), "{text}");
        // A record keeps 128 bytes of a name.
        let long = format!("second:/{}", "d".repeat(200));
        assert_eq!(told(&heads(&long[..128], HeadState::Serves), &long, 7), Told::Served);
        assert!(matches!(told(&heads(&long[..127], HeadState::Serves), &long, 7), Told::Taken(_)));
    }

    #[test]
    fn one_that_waits_is_chosen_by_its_machine_or_directory() {
        let waiting = owned(&["second-1f:/a (inode 1)", "second-1f:/b (inode 2)", "third-2e:/a (inode 3)"]);
        let chosen = |to| choose(&waiting, to, "/home").map_err(|failure| failure.message);
        assert_eq!(chosen(None).unwrap(), waiting[0]);
        assert_eq!(chosen(Some("third")).unwrap(), waiting[2]);
        assert_eq!(chosen(Some("third-2e")).unwrap(), waiting[2]);
        assert_eq!(chosen(Some("second-1f:/b")).unwrap(), waiting[1]);
        assert_eq!(chosen(Some(&waiting[1])).unwrap(), waiting[1]);
        let several = chosen(Some("second")).unwrap_err();
        assert!(several.ends_with("name one of them: second-1f:/a, second-1f:/b, third-2e:/a"), "{several}");
        let other = chosen(Some("fourth")).unwrap_err();
        assert!(other.contains("fourth does not wait for /home, these do: second-1f:/a"), "{other}");
        for to in [None, Some("second")] {
            let nobody = choose(&[], to, "/home").unwrap_err().message;
            assert!(nobody.contains("nobody waits for /home, so it stays here"), "{nobody}");
        }
    }
}
