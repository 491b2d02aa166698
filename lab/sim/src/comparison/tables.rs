//! The tables of `docs/results/older/sim-smartdedup.md`, each with the paper's figure where there is one.

use super::runs::{EVICTIONS, SWEPT};
use super::{Comparison, MemoryPoint, Run, TwinResult};
use crate::design_choice::DesignChoice;
use oncefs_toolbox::Table;

/// Duplicates in percent of the writes that SmartDedup states without and with the disk level: trace, whether with 1 MB
/// (else with more, it does not say how much), and both figures.
const PAPER_LEVELS: [(usize, bool, f64, f64); 2] = [(1, true, 6.7, 12.1), (2, false, 36.7, 43.1)];

fn percent(value: f64) -> String {
    format!("{value:.2}")
}

impl Comparison {
    /// The twins beside the rows of Table 1.
    pub fn twins_table(&self) -> Table {
        let head =
            ["trace", "blocks", "duplicates %", "paper", "overwrites %", "paper", "findable %", "contents at most"];
        let mut table = Table::new(&head);
        for result in &self.twins {
            let truth = &result.truth;
            let overwrites = truth.written - truth.places_ever;
            table.row(vec![
                result.twin.trace.to_string(),
                truth.written.to_string(),
                percent(result.percent(truth.repeated)),
                percent(result.twin.duplicates_percent),
                percent(result.percent(overwrites)),
                percent(100.0 * result.twin.overwrites()),
                percent(result.percent(truth.duplicates)),
                truth.contents_max.to_string(),
            ]);
        }
        table
    }

    /// Eviction of groups beside eviction of single hints, with as many hints in memory.
    pub fn evictions_table(&self) -> Table {
        let head = [
            "trace",
            "memory",
            "eviction",
            "hints",
            "in-line %",
            "of LRU's %",
            "all found %",
            "eviction I/Os",
            "saved %",
            "disk I/Os",
            "saved %",
            "B/demoted",
        ];
        let mut table = Table::new(&head);
        for result in &self.twins {
            for share in &self.options.percents {
                EVICTIONS.iter().for_each(|choice| table.row(eviction_row(result, *share, *choice)));
            }
        }
        table
    }

    /// What each design finds in-line over the sweep of memory; of oncefs also all that it finds.
    pub fn sweep_table(&self, result: &TwinResult) -> Table {
        let names = SWEPT.iter().map(|choice| choice.name());
        let head: Vec<&str> = ["MB", "findable", "oncefs, all"].into_iter().chain(names).collect();
        let mut table = Table::new(&head);
        for megabytes in &self.options.megabytes {
            let memory = MemoryPoint::Megabytes(*megabytes);
            let all = result.outcome(DesignChoice::Oncefs, memory).found();
            let mut row = vec![megabytes.to_string()];
            row.extend([result.truth.duplicates, all].map(|blocks| percent(result.percent(blocks))));
            row.extend(SWEPT.map(|choice| percent(result.percent(result.outcome(choice, memory).found_inline))));
            table.row(row);
        }
        table
    }

    /// Two levels beside one.
    pub fn levels_table(&self) -> Table {
        let head = [
            "trace",
            "MB",
            "one level %",
            "two, in-line %",
            "two, all %",
            "findable %",
            "paper: one",
            "paper: two",
            "one saves, of exact %",
            "two save, of exact %",
        ];
        let mut table = Table::new(&head);
        for result in &self.twins {
            let paper = PAPER_LEVELS.iter().find(|(trace, ..)| *trace == result.twin.trace);
            let ends = [self.options.megabytes.first(), self.options.megabytes.last()];
            for (at, megabytes) in ends.into_iter().flatten().enumerate() {
                let memory = MemoryPoint::Megabytes(*megabytes);
                let two = result.outcome(DesignChoice::Oncefs, memory);
                let one = result.outcome(DesignChoice::OncefsInline, memory);
                let blocks = [one.found_inline, two.found_inline, two.found(), result.truth.duplicates];
                let stated = paper.filter(|(_, is_least, ..)| *is_least == (at == 0));
                let stated =
                    stated.map_or(["-".to_owned(), "-".to_owned()], |(_, _, one, two)| [percent(*one), percent(*two)]);
                let mut row = vec![result.twin.trace.to_string(), megabytes.to_string()];
                row.extend(blocks.map(|blocks| percent(result.percent(blocks))));
                row.extend(stated);
                row.extend([one, two].map(|outcome| percent(result.truth.percent_saved(outcome.stored))));
                table.row(row);
            }
        }
        table
    }

    /// Index pages read and written per thousand blocks, beside Dmdedup's tree on disk with as much memory.
    pub fn tree_table(&self) -> Table {
        let head = [
            "trace",
            "memory",
            "Dmdedup reads",
            "writes",
            "found %",
            "oncefs reads",
            "writes",
            "found %",
            "refused hints",
        ];
        let mut table = Table::new(&head);
        for result in &self.twins {
            for share in &self.options.percents {
                let memory = MemoryPoint::Percent(*share);
                let mut row = vec![result.twin.trace.to_string(), format!("{share} %")];
                for choice in [DesignChoice::DmdedupTree, DesignChoice::Oncefs] {
                    let outcome = result.outcome(choice, memory);
                    let per_thousand = |pages: u64| format!("{:.1}", pages as f64 * 1e3 / result.truth.written as f64);
                    row.extend([per_thousand(outcome.disk_reads), per_thousand(outcome.disk_writes)]);
                    row.push(percent(result.percent(outcome.found())));
                }
                row.push(result.outcome(DesignChoice::Oncefs, memory).refused.to_string());
                table.row(row);
            }
        }
        table
    }

    /// Extents and duplicates by the shortest run worth sharing.
    pub fn runs_table(&self) -> Table {
        let mut table =
            Table::new(&["trace", "run_blocks_min", "in-line %", "all found %", "extents", "of those without dedup"]);
        let Some(memory) = self.options.percents.iter().max().map(|share| MemoryPoint::Percent(*share)) else {
            return table;
        };
        for result in &self.twins {
            let without = result.outcome(DesignChoice::None, memory).extents;
            let runs =
                result.outcomes.iter().filter(|(run, _)| run.choice == DesignChoice::Oncefs && run.memory == memory);
            for (Run { run_blocks_min, .. }, outcome) in runs {
                table.row(vec![
                    result.twin.trace.to_string(),
                    run_blocks_min.to_string(),
                    percent(result.percent(outcome.found_inline)),
                    percent(result.percent(outcome.found())),
                    outcome.extents.to_string(),
                    percent(outcome.extents as f64 / without as f64),
                ]);
            }
        }
        table
    }
}

fn eviction_row(result: &TwinResult, share: u64, choice: DesignChoice) -> Vec<String> {
    let memory = MemoryPoint::Percent(share);
    let (lru, outcome) = (result.outcome(DesignChoice::OncefsSingles, memory), result.outcome(choice, memory));
    let saved = |now: u64, before: u64| percent(100.0 * (1.0 - now as f64 / before.max(1) as f64));
    vec![
        result.twin.trace.to_string(),
        format!("{share} %"),
        eviction_name(choice).to_owned(),
        outcome.entries.to_string(),
        percent(result.percent(outcome.found_inline)),
        percent(100.0 * outcome.found_inline as f64 / lru.found_inline.max(1) as f64),
        percent(result.percent(outcome.found())),
        outcome.eviction_ios.to_string(),
        saved(outcome.eviction_ios, lru.eviction_ios),
        outcome.disk_ios().to_string(),
        saved(outcome.disk_ios(), lru.disk_ios()),
        format!("{:.0}", outcome.bytes_per_demoted()),
    ]
}

/// As the paper calls it.
pub(super) fn eviction_name(choice: DesignChoice) -> &'static str {
    match choice {
        DesignChoice::OncefsSingles => "LRU",
        DesignChoice::OncefsGroups => "G-LRU",
        _ => "cold of groups",
    }
}
