//! `oncefs pages`: writes manual pages and completions for packages, from the definitions of the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::{Args, Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::commands::mount::MountHelper;
use crate::failure::{OrFail, Outcome, exit};
use crate::names::shown;

/// Other names of commands, each with its manual page.
const HELPERS: [(&str, &str); 5] = [
    ("mount.fuse.oncefs", "mount.oncefs"),
    ("mkfs.oncefs", "oncefs-mkfs"),
    ("umount.oncefs", "oncefs-umount"),
    ("umount.fuse.oncefs", "oncefs-umount"),
    ("fsck.oncefs", "oncefs-fsck"),
];

/// The section of administrators' commands.
const SECTION: &str = "8";

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
    write_pages(&arguments.dir.join("man8"), oncefs.clone()).or_fail_doing(exit::FAILED, doing())?;
    write_completions(&arguments.dir.join("completions"), oncefs).or_fail_doing(exit::FAILED, doing())
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

fn write_pages(dir: &Path, mut oncefs: Command) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    oncefs.build();
    for command in oncefs.get_subcommands() {
        write_page(dir, &format!("oncefs-{}", command.get_name()), command.clone())?;
    }
    write_page(dir, "oncefs", oncefs)?;
    write_page(dir, "mount.oncefs", MountHelper::command())?;
    let write_reference = |name: &str, page: &str| fs::write(dir.join(format!("{name}.{SECTION}")), reference(page));
    HELPERS.iter().try_for_each(|(name, page)| write_reference(name, page))
}

/// A page that refers to another one.
fn reference(page: &str) -> String {
    format!(".so man{SECTION}/{page}.{SECTION}\n")
}

fn write_page(dir: &Path, name: &str, mut command: Command) -> io::Result<()> {
    let mut page = Vec::new();
    let usage = command.render_usage().to_string();
    let notes = command.get_after_help().map(ToString::to_string);
    let has_commands = command.has_subcommands();
    let man = Man::new(command.display_name(name)).title(name.to_uppercase()).section(SECTION).date("");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    as_it_stands("SYNOPSIS", usage.trim_start_matches("Usage: ")).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = notes {
        as_it_stands("NOTES", &notes).to_writer(&mut page)?;
    }
    fs::write(dir.join(format!("{name}.{SECTION}")), page)
}

/// A section of text with tables and examples, which keeps its line breaks.
fn as_it_stands(title: &str, text: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", [title]).control("nf", []).text([roman(text)]).control("fi", []);
    section
}

fn write_completions(dir: &Path, mut oncefs: Command) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut oncefs, "oncefs", dir)?;
    }
    Ok(())
}
