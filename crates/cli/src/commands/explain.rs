//! `oncefs explain`: how a file lies in the data area, run by run, sharers it shares with, and why.
//!
//! The daemon answers in portions, so nothing here or there grows with the file: what is told is printed and forgotten.

mod lines;
mod render;
mod sharers;
mod sums;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_engine::{Explained, ExplainedRun, push_run};
use serde_json::json;

use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::text::shown;
use lines::{Line, lines_of, start_of_last};
use render::Rule;
use sharers::{Others, Sharers};
use sums::Sums;

/// Runs whose names are looked for together: each time all maps are gone through.
const RUNS_AT_A_TIME: usize = 16_384;

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
A line for each run: its first block and length in the file, where it lies in the data area, and why: shared and with
sharers, stored anew, too short to be shared, not looked at yet, a hole, reserved, bad. Only root may ask. Writes nothing.

Examples:
  oncefs explain /mnt/disk.img
  oncefs explain /mnt/disk.img --blocks             a line for each block
  oncefs explain /mnt/disk.img --no-names           without going through all files for their names
  oncefs explain /mnt/disk.img --json")]
pub struct ExplainArgs {
    /// A file inside a mount
    pub file: PathBuf,
    /// A line for each block
    #[arg(long, conflicts_with = "json")]
    pub blocks: bool,
    /// Do not look for the names of the files that share
    #[arg(long)]
    pub no_names: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Tells a file's layout.
pub fn run(arguments: ExplainArgs) -> Outcome {
    let daemon = Daemon::find(&arguments.file)?;
    let inode = written_out(&arguments.file)?;
    let mut teller = Teller::new(&daemon, &arguments);
    let (mut runs, mut next) = (Vec::new(), Some(0));
    while let Some(lbn) = next {
        let portion: Explained = daemon.ask(Request::Explain { inode, lbn })?;
        let rule = Rule {
            map: portion.map,
            blocks_min: portion.run_blocks_min,
            set_by: portion.run_blocks_min_from,
            is_left_alone: portion.is_left_alone,
        };
        next = portion.next;
        portion.runs.into_iter().for_each(|run| push_run(&mut runs, run));
        if runs.len() >= RUNS_AT_A_TIME || next.is_none() {
            // What is told last may go on in the next portion.
            let open = next.map_or(Vec::new(), |_| runs.split_off(start_of_last(&runs)));
            teller.tell(&rule, &runs)?;
            runs = open;
        }
    }
    teller.end();
    Ok(())
}

/// Hands over what the kernel still holds of the file. Gives its inode number.
fn written_out(path: &Path) -> Outcome<u64> {
    let doing = || format!("cannot look at {}", shown(path));
    let about = path.metadata().or_fail_doing(exit::FAILED, doing())?;
    if !about.is_file() {
        return Err(Failure::new(exit::FAILED, format!("{} is no file: explain one that has content", shown(path))));
    }
    File::open(path).and_then(|file| file.sync_all()).or_fail_doing(exit::FAILED, doing())?;
    Ok(about.ino())
}

/// Prints runs as they come.
struct Teller<'a> {
    arguments: &'a ExplainArgs,
    sharers: Option<Sharers<'a>>,
    sums: Sums,
    has_begun: bool,
    has_told: bool,
}

impl<'a> Teller<'a> {
    fn new(daemon: &'a Daemon, arguments: &'a ExplainArgs) -> Self {
        let sharers = (!arguments.no_names).then(|| Sharers::new(daemon));
        Self { arguments, sharers, sums: Sums::default(), has_begun: false, has_told: false }
    }

    fn tell(&mut self, rule: &Rule, runs: &[ExplainedRun]) -> Outcome {
        let lines = lines_of(runs);
        let others = match &mut self.sharers {
            Some(sharers) => sharers.of(rule.map, runs, &lines)?,
            None => vec![Others::default(); lines.len()],
        };
        if !self.has_begun {
            self.begin(rule);
        }
        for (Line { run, .. }, others) in lines.iter().zip(others) {
            self.sums.add(run);
            let step = if self.arguments.blocks && run.what.pbn().is_some() { 1 } else { run.blocks };
            for n in (0..run.blocks).step_by(step as usize) {
                let part = ExplainedRun { lbn: run.lbn + n, blocks: step, what: run.what.plus(n) };
                self.tell_run(&part, &render::why(run, &others, rule), &others);
            }
        }
        Ok(())
    }

    fn begin(&mut self, rule: &Rule) {
        self.has_begun = true;
        let (file, blocks_min, set_by) = (shown(&self.arguments.file), rule.blocks_min, &rule.set_by);
        if self.arguments.json {
            let (file, set_by) = (json!(file), json!(set_by));
            let alone = rule.is_left_alone;
            println!("{{\"file\": {file}, \"run_blocks_min\": {blocks_min}, \"run_blocks_min_from\": {set_by},");
            println!("\"is_left_alone\": {alone}, \"runs\": [");
        } else {
            match rule.is_left_alone {
                true => println!("{file}: is not deduplicated any more ({set_by})"),
                false => println!("{file}: shares runs of at least {blocks_min} blocks ({set_by})"),
            }
            println!("{:>12}{:>12}{:>14}  why", "block", "blocks", "lies at");
        }
    }

    fn tell_run(&mut self, run: &ExplainedRun, why: &str, others: &Others) {
        if self.arguments.json {
            let mut told = json!(run);
            told["why"] = json!(why);
            told["with"] = json!(others.shown);
            told["more"] = json!(others.more);
            println!("{}{told}", if self.has_told { "," } else { "" });
        } else {
            let at = run.what.pbn().map_or("-".to_owned(), |pbn| pbn.to_string());
            println!("{:>12}{:>12}{at:>14}  {why}", run.lbn, run.blocks);
        }
        self.has_told = true;
    }

    fn end(self) {
        if self.arguments.json {
            println!("],\n\"blocks\": {}}}", json!(self.sums));
        } else {
            println!("{}", self.sums.text());
        }
    }
}
