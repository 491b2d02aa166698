//! What `oncefs estimate` says, as text and as JSON.

use oncefs_engine::BLOCK_BYTES;
use oncefs_estimate::{Duplicates, Estimate, Estimator, ProfileSaving, RunClass};
use oncefs_toolbox::{Column, Table};
use serde::Serialize;

use super::rules::ProfileRule;
use crate::size::Size;

/// An estimate with its profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    estimate: Estimate,
    /// The default profile first.
    profiles: Vec<ProfileSaving>,
    /// What could not be read.
    refused: u64,
}

impl Report {
    /// Of everything that was read.
    pub fn new(estimator: &Estimator, rules: &[ProfileRule], refused: u64) -> Self {
        let estimate = estimator.estimate();
        let saving = |(at, rule): (usize, &ProfileRule)| {
            let found = estimator.found(at);
            ProfileSaving {
                profile: rule.profile.name().to_owned(),
                limit: rule.limit.clone(),
                saved_bytes: (bytes(estimate.read.blocks) as f64 * found.percent / 100.0) as u64,
                found,
            }
        };
        let profiles = rules.iter().enumerate().map(saving).collect();
        Self { estimate, profiles, refused }
    }

    /// As people read it.
    pub fn described(&self) -> String {
        let parts = [self.read(), self.by_profile(), self.by_memory(), self.causes(), self.by_compression()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn read(&self) -> String {
        let read = self.estimate.read;
        let mut table = Table::of([Column::left(10), Column::right(9), Column::left(0)]);
        let mut row = |name: &str, blocks: u64, words: String| {
            table.row(vec![name.to_owned(), Size(bytes(blocks)).to_string(), words]);
        };
        let files = if read.files == 1 { "file".to_owned() } else { format!("{} files", read.files) };
        let files = if read.files == 1 { format!("1 {files}") } else { files };
        row("read", read.blocks, format!("in blocks of 4 KiB, {files}"));
        row("zeros", read.zero_blocks, "and holes, which take no place".to_owned());
        row("duplicates", self.estimate.duplicates.blocks, how_exact(&self.estimate.duplicates));
        if self.refused > 0 {
            table.row(vec!["left out".to_owned(), self.refused.to_string(), "could not be read".to_owned()]);
        }
        table.plain()
    }

    fn by_profile(&self) -> String {
        let columns = [Column::left(10), Column::right(9), Column::right(7), Column::left(0)];
        let mut table = Table::of(columns).with_head(&["profile", "saves", "", "shares"]);
        for profile in &self.profiles {
            let found = profile.found;
            let mut words = profile.limit.clone();
            if found.percent_max > found.percent_min {
                words += &format!(" ({:.1} to {:.1} %, by which blocks)", found.percent_min, found.percent_max);
            }
            let (saved, percent) = (Size(profile.saved_bytes).to_string(), format!("{:.1} %", found.percent));
            table.row(vec![profile.profile.clone(), saved, percent, words]);
        }
        let of_part = "The limits of the profiles are known of the part for which memory had every content.\n";
        let is_exact = self.profiles.iter().all(|profile| profile.found.is_of_all_blocks);
        table.plain() + if is_exact { "" } else { of_part }
    }

    fn by_memory(&self) -> String {
        if self.estimate.hint_memory.is_empty() {
            return String::new();
        }
        let mut table = Table::of([Column::left(10), Column::right(7)]).with_head(&["hints in", "found"]);
        for memory in &self.estimate.hint_memory {
            table.row(vec![Size(memory.bytes).to_string(), format!("{:.1} %", memory.found_percent)]);
        }
        let rest = "of the blocks while they are written; the worker finds the rest where hints are kept on disk\n";
        table.plain() + rest
    }

    fn causes(&self) -> String {
        let classes = self.estimate.run_lengths.iter().filter(|class| class.runs > 0);
        let columns = [Column::left(10), Column::right(9), Column::right(7)];
        let mut table = Table::of(columns).with_head(&["run length", "runs", "of duplicates"]);
        for class in classes {
            let percent = format!("{:.1} %", class.percent_of_duplicates);
            table.row(vec![lengths(class), class.runs.to_string(), percent]);
        }
        let shares = self.estimate.file_shares.iter().map(|share| {
            let (duplicates, files) = (share.duplicates_percent, share.files_percent);
            format!("{duplicates} % of the duplicates are in {files:.1} % of the files ({})\n", share.files)
        });
        let shares: String = shares.collect();
        if shares.is_empty() { shares } else { table.plain() + &shares }
    }

    fn by_compression(&self) -> String {
        let lines = self.estimate.compression.iter().map(|method| {
            format!(
                "{:10}  {:.1} % of what is left (+-{:.1}), {:.1} % of all with deduplication\n",
                method.method, method.percent_of_stored, method.error_points, method.saved_with_dedup_percent
            )
        });
        let lines: String = lines.collect();
        let head = "What a later version would save by compression too; this one does not compress:\n";
        if lines.is_empty() { lines } else { head.to_owned() + &lines }
    }
}

fn bytes(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES as u64
}

fn how_exact(duplicates: &Duplicates) -> String {
    let percent = duplicates.percent;
    match duplicates.sample {
        1 => format!("{percent:.1} % of the blocks, exact"),
        sample => {
            format!("{percent:.1} % of the blocks, +-{:.2}, by one content in {sample}", duplicates.error_points)
        }
    }
}

fn lengths(class: &RunClass) -> String {
    match class.blocks_max {
        Some(max) if max == class.blocks_min => format!("{max}"),
        Some(max) => format!("{} to {max}", class.blocks_min),
        None => format!("{} up", class.blocks_min),
    }
}
