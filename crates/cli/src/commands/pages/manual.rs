//! Manual pages: one for each command, and pages that refer to them for the names that other programs call.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::{around, notes};
use crate::commands::mount::MountHelper;

/// Other names of commands, each with its manual page.
const HELPERS: [(&str, &str); 6] = [
    ("mount.fuse.oncefs", "mount.oncefs"),
    ("mkfs.oncefs", "oncefs-mkfs"),
    ("umount.oncefs", "oncefs-umount"),
    ("umount.fuse", "oncefs-umount"),
    ("umount.fuse.oncefs", "oncefs-umount"),
    ("fsck.oncefs", "oncefs-fsck"),
];

/// The section of administrators' commands.
const SECTION: &str = "8";

/// Writes all pages.
pub fn write(dir: &Path, mut oncefs: Command) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    oncefs.build();
    write_with_subcommands(dir, "oncefs", &oncefs)?;
    write_page(dir, "mount.oncefs", MountHelper::command())?;
    let write_reference = |name: &str, page: &str| fs::write(dir.join(format!("{name}.{SECTION}")), reference(page));
    HELPERS.iter().try_for_each(|(name, page)| write_reference(name, page))
}

fn write_with_subcommands(dir: &Path, name: &str, command: &Command) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        write_with_subcommands(dir, &format!("{name}-{}", below.get_name()), below)?;
    }
    write_page(dir, name, command.clone())
}

/// A page that refers to another one.
fn reference(page: &str) -> String {
    format!(".so man{SECTION}/{page}.{SECTION}\n")
}

fn write_page(dir: &Path, name: &str, mut command: Command) -> io::Result<()> {
    let mut page = Vec::new();
    let usage = command.render_usage().to_string();
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (codes, text) = around::split_exit_codes(&text);
    let has_commands = command.has_subcommands();
    let man = Man::new(command.display_name(name)).title(name.to_uppercase()).section(SECTION).date("");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    notes::section("SYNOPSIS", usage.trim_start_matches("Usage: ")).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    let codes = codes.unwrap_or_else(|| around::exit_codes(name).to_owned());
    let sections =
        [("NOTES", text), ("EXIT STATUS", codes), ("FILES", around::files(name)), ("SEE ALSO", around::see_also(name))];
    for (title, text) in sections.iter().filter(|(_, text)| !text.is_empty()) {
        notes::section(title, text).to_writer(&mut page)?;
    }
    fs::write(dir.join(format!("{name}.{SECTION}")), page)
}
