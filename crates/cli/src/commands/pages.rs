//! `oncefs pages`: writes manual pages and completions for packages, from the definitions of the command line.

mod around;
mod completions;
mod manual;
mod notes;

use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, Command};

use crate::failure::{OrFail, Outcome, exit};
use crate::names::shown;

/// Arguments of `pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Below it, man8/ gets the pages, and completions/ what shells read
    pub dir: PathBuf,
}

/// Writes the pages and completions of `oncefs`.
pub fn run(arguments: &PagesArgs, oncefs: &Command) -> Outcome {
    let oncefs = visible(oncefs);
    let doing = || format!("cannot write below {}", shown(&arguments.dir));
    manual::write(&arguments.dir.join("man8"), oncefs.clone()).or_fail_doing(exit::FAILED, doing())?;
    completions::write(&arguments.dir.join("completions"), &oncefs).or_fail_doing(exit::FAILED, doing())
}

/// The command line without the commands that only programs use.
fn visible(oncefs: &Command) -> Command {
    let commands = oncefs.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let text = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    Command::new("oncefs")
        .version(env!("CARGO_PKG_VERSION"))
        .about(text(oncefs.get_about()))
        .after_help(text(oncefs.get_after_help()))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(commands)
}
