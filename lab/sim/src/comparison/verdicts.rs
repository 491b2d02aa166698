//! What was aimed for, and whether it was reached.

use super::{Comparison, MemoryPoint, TwinResult};
use crate::design_choice::DesignChoice;
use oncefs_toolbox::Table;

/// Of LRU's duplicates, in-line, that eviction of groups has to find: SmartDedup's figure 8 loses 3 % at most.
const OF_LRU_MIN: f64 = 0.97;
/// Disk-level I/Os that it has to save: the paper saves 87 % on average.
const SAVED_MIN: f64 = 0.80;
/// What oncefs is held against in the sweep.
const RIVALS: [DesignChoice; 3] = [DesignChoice::Caftl, DesignChoice::CaftlAll, DesignChoice::Dmdedup];

impl Comparison {
    /// One row per aim: the worst case among all twins, and in how many cases it was met.
    pub fn verdicts_table(&self) -> Table {
        let mut table = Table::new(&["aim", "paper", "worst", "met"]);
        for (choice, name) in [(DesignChoice::OncefsGroups, "G-LRU"), (DesignChoice::Oncefs, "cold of groups")] {
            let lru = |result: &TwinResult, memory| *result.outcome(DesignChoice::OncefsSingles, memory);
            let of_lru = self.at_shares(|result, memory| {
                result.outcome(choice, memory).found_inline as f64 / lru(result, memory).found_inline.max(1) as f64
            });
            let saved = |now: u64, before: u64| 1.0 - now as f64 / before.max(1) as f64;
            let evictions = self.at_shares(|result, memory| {
                saved(result.outcome(choice, memory).eviction_ios, lru(result, memory).eviction_ios)
            });
            let all = self.at_shares(|result, memory| {
                saved(result.outcome(choice, memory).disk_ios(), lru(result, memory).disk_ios())
            });
            table.row(verdict(&format!("{name}: 97 % of LRU's duplicates in-line"), "97 %", &of_lru, OF_LRU_MIN));
            table.row(verdict(&format!("{name}: 80 % fewer I/Os of eviction"), "87 % mean", &evictions, SAVED_MIN));
            table.row(verdict(&format!("{name}: 80 % fewer I/Os in all"), "-", &all, SAVED_MIN));
        }
        let levels = self.at_first_memory(|result, memory| {
            let two = result.outcome(DesignChoice::Oncefs, memory).found() as f64;
            two / result.outcome(DesignChoice::OncefsInline, memory).found().max(1) as f64
        });
        table.row(verdict("two levels find more than one, least memory", "181 %", &levels, 1.0));
        for rival in RIVALS {
            let name = rival.name();
            let (all, inline) =
                (self.against(DesignChoice::Oncefs, rival), self.against(DesignChoice::OncefsInline, rival));
            table.row(verdict(&format!("oncefs never finds fewer than {name}"), "-", &all, 1.0));
            table.row(verdict(
                &format!("... its memory level alone, in-line, than {name}"),
                paper_against(rival),
                &inline,
                1.0,
            ));
        }
        table
    }

    fn at_shares(&self, figure: impl Fn(&TwinResult, MemoryPoint) -> f64) -> Vec<f64> {
        let memories = || self.options.percents.iter().map(|share| MemoryPoint::Percent(*share));
        self.twins
            .iter()
            .flat_map(|result| memories().map(|memory| figure(result, memory)).collect::<Vec<_>>())
            .collect()
    }

    fn at_first_memory(&self, figure: impl Fn(&TwinResult, MemoryPoint) -> f64) -> Vec<f64> {
        let first = self.options.megabytes.iter().min().map(|megabytes| MemoryPoint::Megabytes(*megabytes));
        first.map_or(Vec::new(), |memory| self.twins.iter().map(|result| figure(result, memory)).collect())
    }

    /// Found by a design over found by a rival, for all twins and memories of the sweep.
    fn against(&self, choice: DesignChoice, rival: DesignChoice) -> Vec<f64> {
        let mut ratios = Vec::new();
        for result in &self.twins {
            for megabytes in &self.options.megabytes {
                let found = |choice| result.outcome(choice, MemoryPoint::Megabytes(*megabytes)).found() as f64;
                ratios.push(found(choice) / found(rival).max(1.0));
            }
        }
        ratios
    }
}

/// Most by which the paper's in-line duplicates exceed a rival's.
fn paper_against(rival: DesignChoice) -> &'static str {
    match rival {
        DesignChoice::Dmdedup => "up to 136 %",
        _ => "142 %",
    }
}

fn verdict(aim: &str, paper: &str, figures: &[f64], least: f64) -> Vec<String> {
    let worst = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let met = figures.iter().filter(|figure| **figure >= least).count();
    vec![aim.to_owned(), paper.to_owned(), format!("{:.1} %", 100.0 * worst), format!("{met} of {}", figures.len())]
}
