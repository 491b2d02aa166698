//! Measures what the monitor and the queues cost tar, untar, grep and cp on a source tree (figure 15).
//!
//! Each program starts with everything cold, because reads from the kernel's cache never reach the daemon. It ends when
//! everything is durable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::args::OverheadArgs;
use super::comparison::{RUNS, Reading, measured, rank_mounts, table, verdicts};
use crate::command;
use crate::failure::{During, Result, tell};
use crate::measure::Latencies;
use crate::mount::rotated;
use crate::side::{Bench, Side};
use crate::tree::Tree;

/// The most that this may cost, in percent.
pub const AIM_PERCENT: f64 = 2.0;
/// Searches for text that no file has, so that every file is read to its end. Exit code 1 is no match and no error.
const GREP: [&str; 3] = ["-c", r#"grep -rF "$0" "$1"; test $? -eq 1"#, "what no source file holds"];

/// Measures every program on every mount and prints the table.
pub fn run(args: &OverheadArgs, bench: &Bench) -> Result<Vec<Reading>> {
    let archive = archive(args, &bench.directory)?;
    let mounts = rank_mounts(&args.profile);
    let mut readings = Vec::new();
    for (repetition, _) in args.rounds().iter() {
        for (_, mount) in rotated(&mounts, repetition) {
            tell(&format!("utilities, repetition {}: {}", repetition + 1, mount.name));
            let mut side = mount.begin(bench)?;
            for step in Step::ALL {
                side.remount_cold()?;
                let place = (step.name(), mount.name.as_str(), repetition);
                readings.push(measured(&side, place, || step.run(&side, &archive).map(|()| 1))?);
            }
            side.unmount()?;
        }
    }
    fs::remove_file(&archive).during(|| format!("cannot remove {}", archive.display()))?;
    println!("\nPrograms over a source tree, with ranks and without (figure 15)\n{}", table(&readings, RUNS));
    println!("{}", verdicts(&readings, AIM_PERCENT));
    Ok(readings)
}

/// The tree as tar has it, outside of what is measured.
fn archive(args: &OverheadArgs, directory: &Path) -> Result<PathBuf> {
    let made = directory.join("source");
    let source = match &args.source {
        Some(source) => source.clone(),
        None => {
            fs::create_dir_all(&made).during(|| format!("cannot create {}", made.display()))?;
            let tree = Tree::generate(args.shared.seed, args.tree_files());
            tree.copy_to(&made, &mut Latencies::with_capacity(tree.files()))?;
            made.clone()
        }
    };
    let archive = directory.join("source.tar");
    command::run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg("."))?;
    if args.source.is_none() {
        fs::remove_dir_all(&made).during(|| format!("cannot remove {}", made.display()))?;
    }
    Ok(archive)
}

/// A program of the paper's table 7.
#[derive(Clone, Copy, Debug)]
enum Step {
    Untar,
    Tar,
    Grep,
    Cp,
}

impl Step {
    /// In the order in which they are run.
    const ALL: [Step; 4] = [Step::Untar, Step::Tar, Step::Grep, Step::Cp];

    fn name(self) -> &'static str {
        match self {
            Step::Untar => "untar",
            Step::Tar => "tar",
            Step::Grep => "grep",
            Step::Cp => "cp",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Step::Untar | Step::Tar => "tar",
            Step::Grep => "sh",
            Step::Cp => "cp",
        }
    }

    fn run(self, side: &Side, archive: &Path) -> Result<()> {
        let tree = side.root().join("tree");
        let mut command = Command::new(self.program());
        match self {
            Step::Untar => {
                fs::create_dir(&tree).during(|| format!("cannot create {}", tree.display()))?;
                command.arg("-xf").arg(archive).arg("-C").arg(&tree)
            }
            Step::Tar => command.arg("-cf").arg(side.root().join("tree.tar")).arg("-C").arg(&tree).arg("."),
            Step::Grep => command.args(GREP).arg(&tree),
            // Blocks that a clone shares are neither read nor written.
            Step::Cp => command.args(["-a", "--reflink=never"]).arg(&tree).arg(side.root().join("copy")),
        };
        command::run(&mut command)?;
        side.ask("sync", &[]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_know_the_options_that_they_are_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir(path.join("tree")).unwrap();
        fs::write(path.join("tree/file"), "a\nb\n").unwrap();
        let grep = |tree: &Path| command::run(Command::new("sh").args(GREP).arg(tree));
        grep(&path.join("tree")).unwrap();
        assert!(grep(&path.join("missing")).is_err());
        fs::write(path.join("found"), GREP[2]).unwrap();
        assert!(grep(&path.join("found")).is_err(), "a file that holds it makes grep end early");
        let mut cp = Command::new("cp");
        command::run(cp.args(["-a", "--reflink=never"]).arg(path.join("tree")).arg(path.join("copy"))).unwrap();
        assert_eq!(fs::read(path.join("copy/file")).unwrap(), b"a\nb\n");
    }
}
