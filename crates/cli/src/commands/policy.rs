//! `oncefs policy`: sets or shows how files and directories are deduplicated and compressed.
//!
//! A policy is an extended attribute, and is set by the usual system calls. Owners may set it without root, and
//! programs that copy attributes copy it. Only the daemon knows the effective policy that follows from it.

mod set;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use oncefs_engine::{Compress, InvalidCompress, InvalidOverride, PolicyOverride, Rank};
use serde_json::json;

use crate::control::answers::EffectiveView;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{self, Name, shown};

use set::Edit;

/// Arguments of `policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    /// Set how a file, or a directory and everything in it, is deduplicated or compressed from now on
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
and of compression, on a mount that has -o compress:
  compress=off     leave it uncompressed
  compress=later   only by the worker, when the mount is idle
  compress=inline  while writing, and the rest by the worker
  compress=auto    while writing as far as the device is slower than compression, and the rest by the worker
  compress=none    no policy: as the mount's settings say

A policy overrides the mount's settings, except inline=off and worker=off. New files and directories inherit the policy
of their directory; a file that is moved keeps its own. A policy never separates what is already shared (oncefs defrag
does), and leaves compressed what is compressed. It is stored in the attributes user.oncefs.policy and
user.oncefs.compress, which tar --xattrs and rsync -X copy. Owners may set it. chattr +c is compress=auto, chattr +m
is compress=off.

Exit codes: 0 done, 1 some files could not be changed; they are named.

Examples:
  oncefs policy set /mnt/scratch off
  oncefs policy set /mnt/images run=16
  oncefs policy set /mnt/videos off compress=off
  oncefs policy set /mnt/images none")]
struct SetArgs {
    /// A file, or a directory with everything in it
    path: PathBuf,
    /// The policy, of deduplication, of compression, or one of each; see below
    #[arg(value_name = "POLICY", required = true, num_args = 1..=2)]
    policy: Vec<Requested>,
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

/// A policy on the command line, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requested {
    /// Of deduplication.
    Dedup(Option<PolicyOverride>),
    /// Of compression.
    Compress(Option<Compress>),
}

impl Requested {
    fn edit(self) -> Edit {
        match self {
            Self::Dedup(dedup) => (set::POLICY, dedup.map(|dedup| dedup.to_string())),
            Self::Compress(compress) => (set::COMPRESS, compress.map(|compress| compress.to_string())),
        }
    }
}

impl fmt::Display for Requested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value) = self.edit();
        let prefix = if name == set::COMPRESS { COMPRESS } else { "" };
        write!(f, "{prefix}{}", text_of(value.as_deref()))
    }
}

/// The beginning of a policy of compression.
const COMPRESS: &str = "compress=";

impl FromStr for Requested {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let or_none = |error: &dyn fmt::Display| format!("{error}, or none");
        match (text, text.strip_prefix(COMPRESS)) {
            (NONE, _) => Ok(Self::Dedup(None)),
            (_, Some(NONE)) => Ok(Self::Compress(None)),
            (_, Some(word)) => {
                let compress = word.parse().map_err(|error: InvalidCompress| or_none(&error))?;
                Ok(Self::Compress(Some(compress)))
            }
            (text, None) => {
                let dedup = text.parse().map_err(|error: InvalidOverride| or_none(&error))?;
                Ok(Self::Dedup(Some(dedup)))
            }
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
        What::Set(SetArgs { path, policy }) => {
            let mut edits: Vec<Edit> = policy.iter().map(|requested| requested.edit()).collect();
            if edits.len() == 2 && edits[0].0 == edits[1].0 {
                let text = format!("{} and {} are policies of the same kind: give one of them", policy[0], policy[1]);
                return Err(Failure::new(exit::USAGE, text));
            }
            // Where it is refused, the other one is not set either.
            edits.sort_by_key(|(name, _)| *name != set::COMPRESS);
            let top = find(&path)?;
            let done = set::below(&top.path, top.held, &edits);
            if done.is_read_only {
                let text = format!("{} is in a mount that is read-only: no policy was changed", shown(&path));
                return Err(Failure::new(exit::FAILED, text));
            }
            if done.is_never_compressed {
                let text = format!(
                    "{} is in a volume that was never mounted with compression, and that earlier versions of oncefs \
                     open: mount it with -o compress=later once, and set policies for compression then; no policy was \
                     changed",
                    shown(&path)
                );
                return Err(Failure::new(exit::FAILED, text));
            }
            let words: Vec<String> = policy.iter().map(Requested::to_string).collect();
            say!("{}: {} files and {} directories", words.join(" "), done.files, done.directories);
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
    let inherits_compress = above.as_ref().and_then(set::compress_of);
    if arguments.json {
        let mut json = json!(effective);
        json["path"] = json!(Name::from(path.as_path()));
        json["inherits"] = json!(inherits);
        json["inherits_compress"] = json!(inherits_compress);
        say!("{}", names::json(&json));
    } else {
        say!("{}", described(&path, about.is_dir(), &effective, inherits.as_deref()));
        say!("{}", compression(about.is_dir(), &effective, inherits_compress.as_deref()));
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

fn compression(is_directory: bool, effective: &EffectiveView, inherits: Option<&str>) -> String {
    let (own, above) = (text_of(effective.compress.as_deref()), text_of(inherits));
    let is = if is_directory { "new files in it are" } else { "it is" };
    let when = match effective.compresses.parse() {
        Ok(Compress::Inline) => "compressed while writing, and the rest by the worker",
        Ok(Compress::Auto) => "compressed while writing where that saves time, and else by the worker",
        Ok(Compress::Later) => "compressed by the worker",
        Ok(Compress::Off) if effective.compress.as_deref().is_some_and(|own| own != Compress::Off.word()) => {
            "not compressed, because the volume is mounted with compress=off"
        }
        Ok(Compress::Off) | Err(InvalidCompress) => "not compressed",
    };
    format!("policy {COMPRESS}{own}; its directory has {COMPRESS}{above}; {is} {when}")
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
            compress: None,
            compresses: "later".to_owned(),
        }
    }

    #[test]
    fn policies_are_taken_with_none_and_others_are_refused() {
        for (text, requested) in [
            ("none", Requested::Dedup(None)),
            ("run=8", Requested::Dedup(Some(PolicyOverride::Run(8)))),
            ("compress=none", Requested::Compress(None)),
            ("compress=inline", Requested::Compress(Some(Compress::Inline))),
        ] {
            assert_eq!((text.parse(), requested.to_string().as_str()), (Ok(requested), text));
        }
        for wrong in ["compress=", "compress=on", "compress"] {
            assert!(wrong.parse::<Requested>().unwrap_err().ends_with(", or none"), "{wrong}");
        }
        for wrong in ["", "on", "run=0", "run=257", "None"] {
            let error = wrong.parse::<Requested>().unwrap_err();
            assert!(error.contains("selective, run=N") && error.ends_with(", or none"), "{wrong}: {error}");
        }
    }

    #[test]
    fn compression_is_told_with_its_source_and_why_there_is_none() {
        let inline =
            EffectiveView { compress: Some("inline".to_owned()), compresses: "inline".to_owned(), ..effective() };
        assert_eq!(
            compression(false, &inline, None),
            "policy compress=inline; its directory has compress=none; it is compressed while writing, and the rest by \
             the worker"
        );
        let off = EffectiveView { compresses: "off".to_owned(), ..inline };
        assert!(
            compression(true, &off, Some("later"))
                .ends_with("not compressed, because the volume is mounted with compress=off")
        );
        let plain = EffectiveView { compress: None, ..off };
        assert!(compression(true, &plain, None).ends_with("; new files in it are not compressed"));
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
