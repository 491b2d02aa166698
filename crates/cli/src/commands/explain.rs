//! `oncefs explain`: a file's extents, the files it shares them with, and why.
//!
//! The daemon answers in portions and each is printed at once, so memory does not grow with the file.

pub mod lines;
mod render;
pub mod sharers;
mod sums;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, Explained, ExplainedRun, push_run};
use oncefs_toolbox::{Column, Table};
use serde_json::json;

use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::in_mount::InMount;
use crate::names::{self, Name, shown};
use lines::{Line, lines_of, start_of_last};
use render::Rule;
use sharers::{Others, Sharers};
use sums::Sums;

/// Runs whose names are searched together, because each search reads all maps.
const RUNS_AT_A_TIME: usize = 16_384;

/// Most rows to collect before they are printed.
const ROWS_MAX: usize = 256;

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints a line for each run: its first block and length in the file, its address in the data area, and why it is there:
shared (and with which files), stored anew, too short to share, not yet compared, a hole, reserved or bad. Needs root.
Changes nothing.

Examples:
  oncefs explain /mnt/disk.img
  oncefs explain /mnt/disk.img --blocks             a line for each block
  oncefs explain /mnt/disk.img --no-names           without searching all files for names
  oncefs explain /mnt/disk.img --json")]
pub struct ExplainArgs {
    /// A file inside a mount
    pub file: PathBuf,
    /// A line for each block
    #[arg(long, conflicts_with = "json")]
    pub blocks: bool,
    /// Do not search for the names of the files that share
    #[arg(long)]
    pub no_names: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints a file's runs.
pub fn run(arguments: ExplainArgs) -> Outcome {
    let file = InMount::find(&arguments.file, "give a file in one")?;
    let daemon = Daemon::of(&file.mount)?;
    let inode = written_out(&file)?;
    let mut printer = Printer::new(&daemon, &arguments);
    let (mut runs, mut next) = (Vec::new(), Some(0));
    while let Some(lbn) = next {
        let portion: Explained = daemon.ask(Request::Explain { inode, lbn })?;
        let rule = Rule {
            map: portion.map,
            blocks_min: portion.run_blocks_min,
            set_by: portion.run_blocks_min_from,
            budget: portion.budget,
            is_left_alone: portion.is_left_alone,
        };
        next = portion.next;
        portion.runs.into_iter().for_each(|run| push_run(&mut runs, run));
        if runs.len() >= RUNS_AT_A_TIME || next.is_none() {
            // The last line may continue in the next portion.
            let open = next.map_or(Vec::new(), |_| runs.split_off(start_of_last(&runs)));
            printer.print(&rule, &runs)?;
            runs = open;
        }
    }
    printer.end();
    Ok(())
}

/// Writes the file's dirty pages back. Returns its inode number.
fn written_out(file: &InMount) -> Outcome<u64> {
    let doing = || format!("cannot read {}", shown(&file.path));
    let about = file.held.about().or_fail_doing(exit::FAILED, doing())?;
    if !about.is_file() {
        return Err(Failure::new(exit::FAILED, format!("{} is not a regular file: give one", shown(&file.path))));
    }
    file.held.open().and_then(|file| file.sync_all()).or_fail_doing(exit::FAILED, doing())?;
    Ok(about.ino())
}

/// Prints runs as they arrive.
struct Printer<'a> {
    arguments: &'a ExplainArgs,
    sharers: Option<Sharers<'a>>,
    sums: Sums,
    /// Rows that are not printed yet.
    table: Table,
    rows: usize,
    has_begun: bool,
    has_printed: bool,
}

impl<'a> Printer<'a> {
    fn new(daemon: &'a Daemon, arguments: &'a ExplainArgs) -> Self {
        let sharers = (!arguments.no_names).then(|| Sharers::new(daemon));
        let table = Table::of([Column::right(12), Column::right(10), Column::right(12), Column::left(0)])
            .with_head(&["block", "blocks", "address", "why"]);
        Self { arguments, sharers, sums: Sums::default(), table, rows: 0, has_begun: false, has_printed: false }
    }

    fn print(&mut self, rule: &Rule, runs: &[ExplainedRun]) -> Outcome {
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
                let part = run.part(n, step);
                let why = render::why(run, &others, rule) + &render::compressed(&part);
                self.print_run(&part, &why, &others);
            }
        }
        if !self.arguments.json {
            self.print_rows();
        }
        Ok(())
    }

    fn begin(&mut self, rule: &Rule) {
        self.has_begun = true;
        let (file, blocks_min, set_by) = (shown(&self.arguments.file), rule.blocks_min, &rule.set_by);
        if self.arguments.json {
            let file = names::json_line(&Name::from(self.arguments.file.as_path()));
            let set_by = names::json_line(set_by);
            let alone = rule.is_left_alone;
            say!("{{\"file\": {file}, \"run_blocks_min\": {blocks_min}, \"run_blocks_min_from\": {set_by},");
            let budget = names::json_line(&rule.budget);
            say!("\"is_left_alone\": {alone}, \"budget\": {budget}, \"runs\": [");
        } else {
            match (rule.is_left_alone, &rule.budget) {
                (true, _) => say!("{file}: is not deduplicated ({set_by})"),
                (false, None) => say!("{file}: shares runs of at least {blocks_min} blocks ({set_by})"),
                (false, Some(budget)) => say!("{file}: {} ({set_by})", render::budget(budget)),
            }
        }
    }

    fn print_run(&mut self, run: &ExplainedRun, why: &str, others: &Others) {
        if self.arguments.json {
            let mut json = json!(run);
            json["why"] = json!(why);
            json["with"] = json!(others.shown);
            json["more"] = json!(others.more);
            say!("{}{}", if self.has_printed { "," } else { "" }, names::json_line(&json));
        } else {
            let place = run.compressed.as_ref().map(|compressed| compressed.at / BLOCK_BYTES as u64);
            let at = place.or(run.what.pbn()).map_or("-".to_owned(), |at| at.to_string());
            self.table.row(vec![run.lbn.to_string(), run.blocks.to_string(), at, why.to_owned()]);
            self.rows += 1;
            if self.rows == ROWS_MAX {
                self.print_rows();
            }
        }
        self.has_printed = true;
    }

    /// A file may have millions of runs, so rows are printed in batches.
    fn print_rows(&mut self) {
        put!("{}", self.table.take_plain());
        self.rows = 0;
    }

    fn end(self) {
        if self.arguments.json {
            say!("],\n\"blocks\": {}}}", names::json_line(&self.sums));
        } else {
            say!("{}", self.sums.text());
        }
    }
}
