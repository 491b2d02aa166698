//! `oncefs explain`: how a file lies in the data area, run by run, whom it shares with, and why.
//!
//! The daemon answers in portions, so nothing here or there grows with the file: what is told is printed and forgotten.

mod render;
mod sharers;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, Explained, ExplainedRun, What, push_run};
use serde::Serialize;
use serde_json::json;

use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::shown;
use crate::size::Size;
use render::Rule;
use sharers::{Others, Whom};

/// Runs whose names are looked for together: each time all maps are gone through.
const RUNS_AT_A_TIME: usize = 16_384;

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
A line for each run: its first block and length in the file, where it lies in the data area, and why: shared and with
whom, stored anew, too short to be shared, not looked at yet, a hole, reserved, bad. Only root may ask. Writes nothing.

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

/// What is told in one line: shared runs that continue each other are one, however many refer to each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Its blocks; of shared ones the most references that one of them has.
    run: ExplainedRun,
    /// References to its blocks but for those of the run itself.
    other_references: u64,
}

fn is_one_line(a: &ExplainedRun, b: &ExplainedRun) -> bool {
    let are_shared = matches!((&a.what, &b.what), (What::Shared { .. }, What::Shared { .. }));
    are_shared && a.lbn + a.blocks == b.lbn && a.what.plus(a.blocks).pbn() == b.what.pbn()
}

fn lines_of(runs: &[ExplainedRun]) -> Vec<Line> {
    let line = |runs: &[ExplainedRun]| {
        let references =
            |run: &ExplainedRun| if let What::Shared { references, .. } = run.what { references } else { 1 };
        let mut run = runs[0].clone();
        run.blocks = runs.iter().map(|run| run.blocks).sum();
        if let What::Shared { references: most, .. } = &mut run.what {
            *most = runs.iter().map(references).max().unwrap_or(*most);
        }
        Line { run, other_references: runs.iter().map(|run| run.blocks * u64::from(references(run) - 1)).sum() }
    };
    runs.chunk_by(is_one_line).map(line).collect()
}

/// Where the last line begins, if there is one before it; else the last run.
fn start_of_last(runs: &[ExplainedRun]) -> usize {
    let last = runs.chunk_by(is_one_line).next_back().map_or(0, <[ExplainedRun]>::len);
    if last < runs.len() { runs.len() - last } else { runs.len().saturating_sub(1) }
}

/// What the runs are, added up, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Sums {
    /// Runs in the data area.
    runs: u64,
    /// Blocks of data.
    data: u64,
    /// Of these, blocks that other places refer to as well.
    shared: u64,
    /// Of these, blocks that only this place refers to.
    own: u64,
    /// Of these, bad blocks.
    bad: u64,
    /// Blocks reserved and not written.
    reserved: u64,
    /// Blocks of holes.
    hole: u64,
    /// Where a run goes on: the next lbn and pbn.
    #[serde(skip)]
    end: Option<(u64, u64)>,
}

impl Sums {
    fn add(&mut self, run: &ExplainedRun) {
        match run.what {
            What::Hole => self.hole += run.blocks,
            What::Reserved => self.reserved += run.blocks,
            What::Shared { .. } => self.shared += run.blocks,
            What::Own { .. } => self.own += run.blocks,
            What::Bad { .. } => self.bad += run.blocks,
            What::Changed => {}
        }
        let Some(pbn) = run.what.pbn() else { return };
        self.data += run.blocks;
        self.runs += u64::from(self.end != Some((run.lbn, pbn)));
        self.end = Some((run.lbn + run.blocks, pbn + run.blocks));
    }

    fn text(&self) -> String {
        let Self { runs, data, shared, own, bad, reserved, hole, .. } = self;
        let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        let size = |blocks: &u64| Size(blocks * BLOCK_BYTES as u64);
        let mut text = format!("in all  {} in {runs}: {} shared, {} its own", size(data), size(shared), size(own));
        for (blocks, what) in [(bad, "bad"), (reserved, "reserved"), (hole, "hole")] {
            if *blocks > 0 {
                text += &format!("; {} {what}", size(blocks));
            }
        }
        text
    }
}

/// Prints runs as they come.
struct Teller<'a> {
    arguments: &'a ExplainArgs,
    whom: Option<Whom<'a>>,
    sums: Sums,
    has_begun: bool,
    has_told: bool,
}

impl<'a> Teller<'a> {
    fn new(daemon: &'a Daemon, arguments: &'a ExplainArgs) -> Self {
        let whom = (!arguments.no_names).then(|| Whom::new(daemon));
        Self { arguments, whom, sums: Sums::default(), has_begun: false, has_told: false }
    }

    fn tell(&mut self, rule: &Rule, runs: &[ExplainedRun]) -> Outcome {
        let lines = lines_of(runs);
        let others = match &mut self.whom {
            Some(whom) => whom.of(rule.map, runs, &lines)?,
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

#[cfg(test)]
mod tests {
    use oncefs_engine::Equal;

    use super::*;

    #[test]
    fn shared_runs_that_continue_each_other_are_told_in_one_line() {
        let shared =
            |lbn, blocks, pbn, references| ExplainedRun { lbn, blocks, what: What::Shared { pbn, references } };
        let hole = ExplainedRun { lbn: 15, blocks: 4, what: What::Hole };
        let runs = [shared(0, 4, 10, 2), shared(4, 1, 14, 5), shared(5, 5, 15, 2), shared(10, 5, 90, 3), hole.clone()];
        let line = |run, other_references| Line { run, other_references };
        let lines = [line(shared(0, 10, 10, 5), 13), line(shared(10, 5, 90, 3), 10), line(hole, 0)];
        assert_eq!(lines_of(&runs), lines);
        assert_eq!([5, 4, 3, 2, 1].map(|count| start_of_last(&runs[..count])), [4, 3, 2, 1, 0]);
        assert_eq!((start_of_last(&runs[3..]), start_of_last(&[])), (1, 0));
    }

    #[test]
    fn the_sums_count_runs_of_the_data_area_and_not_what_is_said_of_them() {
        let own = |pbn| What::Own { pbn, equal: Equal::None, waits: false };
        let mut sums = Sums::default();
        for (lbn, blocks, what) in [
            (0, 4, own(100)),
            (4, 2, What::Shared { pbn: 104, references: 2 }),
            (6, 3, What::Hole),
            (9, 1, own(106)),
            (10, 1, own(50)),
            (11, 1, What::Bad { pbn: 51, home: None, references: 1 }),
            (12, 5, What::Reserved),
        ] {
            sums.add(&ExplainedRun { lbn, blocks, what });
        }
        assert_eq!((sums.runs, sums.data, sums.shared, sums.own, sums.bad), (3, 9, 2, 6, 1));
        let text = "in all  36.0 KiB in 3 runs: 8.00 KiB shared, 24.0 KiB its own; 4.00 KiB bad; 20.0 KiB reserved; \
                    12.0 KiB hole";
        assert_eq!(sums.text(), text);
    }
}
