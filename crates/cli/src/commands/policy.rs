//! `oncefs policy`: sets or shows how files and directories are deduplicated.
//!
//! A policy is an extended attribute, and is set by the usual system calls. Owners may set it without root, and
//! programs that copy attributes copy it. Only the daemon knows the effective policy that follows from it.

mod set;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use oncefs_engine::{InvalidOverride, PolicyOverride, Rank};
use serde_json::json;

use crate::control::answers::EffectiveView;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{self, Name, shown};

/// Arguments of `policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    /// Set how a file, or a directory and everything in it, is deduplicated from now on
    Set(SetArgs),
    /// Show the policy of a file or directory, and what follows from it
    Show(ShowArgs),
}

/// Arguments of `policy set`.
#[derive(Debug, Args)]
#[command(after_help = "\
Policies:
  off        share nothing
  inline     share while writing, and the rest out of line, as the mount's settings say
  later      only out of line, when the mount is idle
  selective  out of line, by use: not as long as a file is new, in long runs if it is read in sequence
  run=N      as inline, but only runs of at least N blocks, 1 to 256
  slowdown=N as inline, as far as reading becomes at most N % slower for it; slowdown=none: however slow
  none       no policy: follow the mount's settings

A policy overrides the mount's settings, except inline=off and worker=off. New files and directories inherit the policy
of their directory; a file that is moved keeps its own. A policy never separates what is already shared (oncefs defrag
does). It is stored in the attribute user.oncefs.policy, which tar --xattrs and rsync -X copy. Owners may set it.

Exit codes: 0 done, 1 some files could not be changed; they are named.

Examples:
  oncefs policy set /mnt/scratch off
  oncefs policy set /mnt/images run=16
  oncefs policy set /mnt/images none")]
struct SetArgs {
    /// A file, or a directory with everything in it
    path: PathBuf,
    /// The policy; see below
    #[arg(value_name = "POLICY")]
    policy: Requested,
}

/// Arguments of `policy show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Needs root.

Examples:
  oncefs policy show /mnt/images/disk.img
  oncefs policy show /mnt/images --json")]
struct ShowArgs {
    /// A file or directory in a mount
    path: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A policy on the command line, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Requested(Option<PolicyOverride>);

impl FromStr for Requested {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            NONE => Ok(Self(None)),
            text => text
                .parse()
                .map(|policy_override| Self(Some(policy_override)))
                .map_err(|error: InvalidOverride| format!("{error}, or none")),
        }
    }
}

/// No policy.
const NONE: &str = "none";

fn text_of(policy_override: Option<&str>) -> &str {
    policy_override.unwrap_or(NONE)
}

/// Runs the command. Returns the exit code.
pub fn run(arguments: PolicyArgs) -> Outcome<u8> {
    match arguments.what {
        What::Set(SetArgs { path, policy: Requested(policy_override) }) => {
            let top = find(&path)?;
            let value = policy_override.map(|policy_override| policy_override.to_string());
            let done = set::below(&top.path, top.held, value.as_deref());
            if done.is_read_only {
                let text = format!("{} is in a mount that is read-only: no policy was changed", shown(&path));
                return Err(Failure::new(exit::FAILED, text));
            }
            say!("{}: {} files and {} directories", text_of(value.as_deref()), done.files, done.directories);
            done.refused.iter().for_each(|refused| tell!("oncefs: {refused}"));
            Ok(if done.refused.is_empty() { 0 } else { exit::FAILED })
        }
        What::Show(arguments) => show(&arguments).map(|()| 0),
    }
}

fn find(path: &Path) -> Outcome<InMount> {
    InMount::find(path, "give a file or directory in one")
}

fn show(arguments: &ShowArgs) -> Outcome {
    let InMount { mount, path, above, held } = find(&arguments.path)?;
    let about = held.about().or_fail_doing(exit::FAILED, shown(&path))?;
    let effective: EffectiveView = Daemon::of(&mount)?.ask(Request::Policy { inode: about.ino() })?;
    let inherits = above.as_ref().and_then(set::policy_of);
    if arguments.json {
        let mut json = json!(effective);
        json["path"] = json!(Name::from(path.as_path()));
        json["inherits"] = json!(inherits);
        say!("{}", names::json(&json));
    } else {
        say!("{}", described(&path, about.is_dir(), &effective, inherits.as_deref()));
    }
    Ok(())
}

fn described(path: &Path, is_directory: bool, effective: &EffectiveView, inherits: Option<&str>) -> String {
    let (own, above) = (text_of(effective.policy.as_deref()), text_of(inherits));
    let mut lines = vec![format!("{}: policy {own}; its directory has policy {above}", shown(path))];
    if !is_directory {
        let heavy = if effective.is_update_heavy { ", rewritten on several days" } else { "" };
        lines.push(format!("rank {} ({}){heavy}", effective.rank, about_rank(effective.rank)));
    }
    let whose = if is_directory { "new files in it are" } else { "it is" };
    lines.push(format!("{whose} {}", consequence(effective)));
    lines.join("\n")
}

fn about_rank(rank: u8) -> &'static str {
    match Rank::from_number(rank) {
        Some(Rank::New) => "new, or written recently",
        Some(Rank::Sequential) => "read in sequence",
        Some(Rank::Random) => "read at random",
        Some(Rank::Cold) => "not read for a long time",
        None => "unknown",
    }
}

fn consequence(effective: &EffectiveView) -> String {
    let when = match (effective.is_inline, effective.is_out_of_line) {
        (false, false) => return format!("not deduplicated: {}", effective.why),
        (true, true) => "deduplicated while writing and out of line",
        (true, false) => "deduplicated while writing",
        (false, true) => "deduplicated out of line",
    };
    let ends = if effective.shares_ends { ", whole files, and ends of files" } else { "" };
    match (effective.slowdown_percent_max, effective.run_blocks_min) {
        (Some(percent), _) => {
            format!("{when}, as far as reading is at most {percent} % slower for that ({})", effective.why)
        }
        (None, Some(blocks)) => format!("{when}, in runs of at least {blocks} blocks{ends} ({})", effective.why),
        (None, None) => format!("{when} ({})", effective.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective() -> EffectiveView {
        EffectiveView {
            policy: Some("run=8".to_owned()),
            rank: 2,
            is_update_heavy: false,
            is_inline: true,
            is_out_of_line: true,
            run_blocks_min: Some(8),
            slowdown_percent_max: None,
            shares_ends: false,
            why: "set by its policy".to_owned(),
        }
    }

    #[test]
    fn policies_are_taken_with_none_and_others_are_refused() {
        assert_eq!("none".parse(), Ok(Requested(None)));
        assert_eq!("run=8".parse(), Ok(Requested(Some(PolicyOverride::Run(8)))));
        for wrong in ["", "on", "run=0", "run=257", "None"] {
            let error = wrong.parse::<Requested>().unwrap_err();
            assert!(error.contains("selective, run=N") && error.ends_with(", or none"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_file_and_a_directory_are_told_with_what_follows() {
        let said =
            |is_directory, effective: &EffectiveView| described(Path::new("/mnt/x"), is_directory, effective, None);
        assert_eq!(
            said(false, &effective()),
            "/mnt/x: policy run=8; its directory has policy none\nrank 2 (read at random)\n\
             it is deduplicated while writing and out of line, in runs of at least 8 blocks (set by its policy)"
        );
        let off =
            EffectiveView { is_inline: false, is_out_of_line: false, why: "policy off".to_owned(), ..effective() };
        assert!(said(true, &off).ends_with("\nnew files in it are not deduplicated: policy off"));
        let ends = EffectiveView { is_inline: false, run_blocks_min: Some(64), shares_ends: true, ..effective() };
        assert!(
            said(false, &ends).contains("out of line, in runs of at least 64 blocks, whole files, and ends of files (")
        );
        let budget = EffectiveView { slowdown_percent_max: Some(10), ..effective() };
        assert!(said(false, &budget).contains("as far as reading is at most 10 % slower for that (set by its policy)"));
        let heavy = EffectiveView { is_update_heavy: true, ..effective() };
        assert!(said(false, &heavy).contains("rank 2 (read at random), rewritten on several days\n"));
    }
}
