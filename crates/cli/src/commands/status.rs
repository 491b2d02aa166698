//! `oncefs status`: whether volumes need attention, in a line each and in the exit code.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Outcome, exit};
use crate::figures::health::{Finding, Limits, line};
use crate::figures::json::path;
use crate::figures::volumes::{State, Volume, Where, all, of};
use crate::names::{self, printable, shown};

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = "\
What needs attention: damage; a volume that an error made read-only; a volume, or the file system below it, that is
nearly full; a worker that is behind; a daemon that died or hangs; a volume that is not mounted, though it was asked
for or fstab names it without noauto.

Exit codes: 0 all are healthy; 1 one needs attention; 2 wrong usage, or one could not be asked and no other needs
attention.

Examples:
  oncefs status
  oncefs status /mnt --free-min 10
  oncefs status --json | jq -r '.volumes[].findings[].message'")]
pub struct StatusArgs {
    /// Any path inside a mount, or a volume; without one all mounts and all volumes that fstab names
    #[arg(value_name = "MOUNT|VOLUME")]
    pub targets: Vec<PathBuf>,
    #[command(flatten)]
    pub limits: Limits,
    #[command(flatten)]
    pub places: Where,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows the state of volumes. Returns the exit code.
pub fn run(arguments: &StatusArgs) -> Outcome<u8> {
    let volumes: Vec<Volume> = match &arguments.targets[..] {
        [] => all(&arguments.places)?,
        targets => targets.iter().map(|target| of(target)).collect::<Outcome<_>>()?,
    };
    let answers: Vec<Answer> = volumes.iter().map(|volume| Answer::of(volume, &arguments.limits)).collect();
    let code = answers.iter().map(Answer::code).max_by_key(|code| rank(*code)).unwrap_or(exit::SUCCESS);
    if arguments.json {
        let volumes: Vec<Value> = answers.iter().map(Answer::json).collect();
        say!("{}", names::json(&json!({ "is_well": code == exit::SUCCESS, "volumes": volumes })));
    } else if answers.is_empty() {
        say!("no volume is mounted, and {} names none", shown(&arguments.places.fstab));
    } else {
        answers.iter().for_each(|answer| say!("{}: {}", shown(answer.volume.place()), answer.line()));
    }
    Ok(code)
}

/// The order of exit codes: a need for attention outranks an unknown state.
fn rank(code: u8) -> u8 {
    match code {
        exit::SUCCESS => 0,
        exit::USAGE => 1,
        _ => 2,
    }
}

/// The answer about a volume.
struct Answer<'a> {
    volume: &'a Volume,
    findings: Result<Vec<Finding>, String>,
}

impl<'a> Answer<'a> {
    fn of(volume: &'a Volume, limits: &Limits) -> Self {
        Self { volume, findings: volume.findings(limits) }
    }

    fn code(&self) -> u8 {
        match &self.findings {
            Ok(findings) if findings.is_empty() => exit::SUCCESS,
            Ok(_) => exit::FAILED,
            Err(_) => exit::USAGE,
        }
    }

    fn line(&self) -> String {
        match (&self.findings, &self.volume.state) {
            (Ok(findings), State::NotMounted | State::Missing) if findings.is_empty() => {
                "not mounted, and fstab says noauto".to_owned()
            }
            (Ok(findings), _) => printable(&line(findings)),
            (Err(why), _) => format!("cannot tell: {}", printable(why)),
        }
    }

    fn json(&self) -> Value {
        let (found, why) = match &self.findings {
            Ok(findings) => (&findings[..], None),
            Err(why) => (&[][..], Some(why)),
        };
        json!({
            "volume": path(&self.volume.volume),
            "mount": self.volume.mount.as_deref().map(path),
            "disk": self.volume.disk,
            "state": self.volume.state.name(),
            "is_well": self.findings.as_ref().ok().map(Vec::is_empty),
            "findings": found,
            "unknown_because": why,
        })
    }
}
