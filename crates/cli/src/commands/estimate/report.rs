//! The output of `oncefs estimate`, as text and as JSON.

use oncefs_engine::BLOCK_BYTES;
use oncefs_estimate::{Duplicates, Estimate, Estimator, ProfileSaving, RunClass};
use oncefs_toolbox::sizes::exact;
use oncefs_toolbox::{Column, Table};
use serde::Serialize;

use super::largest::{Largest, LargestFile};
use super::rules::ProfileRule;
use super::seen::SEEN_SHARE;
use crate::names::shown;
use crate::size::Size;

/// Least spread that is shown, in percentage points.
const SPREAD_MIN: f64 = 0.1;

/// An estimate with its profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    estimate: Estimate,
    /// The default profile first.
    profiles: Vec<ProfileSaving>,
    /// The files with most duplicates.
    largest_files: Vec<LargestFile>,
    #[serde(flatten)]
    left_out: LeftOut,
}

/// Files that the figures do not count exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Files that could not be read.
    pub refused: u64,
    /// Files that may count several times, because memory was too small to remember them.
    pub repeated: u64,
}

impl Report {
    /// The report of everything that was read.
    pub fn new(estimator: &Estimator, rules: &[ProfileRule], largest: Largest, left_out: LeftOut) -> Self {
        let mut estimate = estimator.estimate();
        // The estimator has the rest of the memory.
        estimate.exact_memory_bytes += estimate.exact_memory_bytes.div_ceil(SEEN_SHARE - 1);
        let saving = |rule: &ProfileRule| {
            let found = estimator.found(&rule.rule);
            ProfileSaving {
                profile: rule.profile.name().to_owned(),
                limit: rule.limit.clone(),
                saved_bytes: (bytes(estimate.read.blocks) as f64 * found.percent / 100.0) as u64,
                found,
            }
        };
        let profiles = rules.iter().map(saving).collect();
        Self { estimate, profiles, largest_files: largest.files(), left_out }
    }

    /// The report as text.
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
        let files = if read.files == 1 { "1 file".to_owned() } else { format!("{} files", read.files) };
        row("read", read.blocks, format!("in blocks of 4 KiB, {files}"));
        row("zeros", read.zero_blocks, "and holes, which take no space".to_owned());
        row("duplicates", self.estimate.duplicates.blocks, how_exact(&self.estimate.duplicates));
        let LeftOut { refused, repeated } = self.left_out;
        if refused > 0 {
            table.row(vec!["left out".to_owned(), refused.to_string(), "could not be read".to_owned()]);
        }
        if repeated > 0 {
            let words = "files, for which there was no memory; each of their names counts".to_owned();
            table.row(vec!["repeated".to_owned(), repeated.to_string(), words]);
        }
        table.plain()
    }

    fn by_profile(&self) -> String {
        let columns = [Column::left(10), Column::right(9), Column::right(7), Column::left(0)];
        let mut table = Table::of(columns).with_head(&["profile", "saves", "", "shares"]);
        for profile in &self.profiles {
            let found = profile.found;
            let mut words = profile.limit.clone();
            if !found.is_of_all_blocks {
                words.insert_str(0, "at most: ");
            } else if found.percent_max >= found.percent_min + SPREAD_MIN {
                words += &format!(" ({:.1} to {:.1} % by chance)", found.percent_min, found.percent_max);
            }
            if found.percent_all_hints >= found.percent + SPREAD_MIN {
                words += &format!("; {:.1} % with hint_sample=1", found.percent_all_hints);
            }
            let (saved, percent) = (Size(profile.saved_bytes).to_string(), format!("{:.1} %", found.percent));
            table.row(vec![profile.profile.clone(), saved, percent, words]);
        }
        if self.profiles.iter().all(|profile| profile.found.is_of_all_blocks) {
            return table.plain();
        }
        let followed = Size(bytes(self.estimate.run_blocks));
        let enough = exact(self.estimate.exact_memory_bytes.next_multiple_of(1 << 20));
        let of_part = format!(
            "Memory had all contents of the first {followed} only, so runs were followed there; --memory {enough} is enough.\n"
        );
        table.plain() + &of_part
    }

    fn by_memory(&self) -> String {
        let memories = &self.estimate.hint_memory;
        if let [memory] = &memories[..] {
            return format!("{} of hints find all of them while they are written\n", Size(memory.bytes));
        }
        let mut table = Table::of([Column::left(10), Column::right(7), Column::left(0)]);
        for (at, memory) in memories.iter().enumerate() {
            let words = if at == 0 { "of the blocks are found while they are written" } else { "" };
            let (hints, found) = (Size(memory.bytes).to_string(), format!("{:.1} %", memory.found_percent));
            table.row(vec![hints, found, words.to_owned()]);
        }
        let head = "By memory for hints. The worker finds later what is missed, if hints are kept on disk too:\n";
        if memories.is_empty() { String::new() } else { head.to_owned() + &table.plain() }
    }

    fn causes(&self) -> String {
        if self.estimate.file_shares.is_empty() {
            return String::new();
        }
        let columns = [Column::left(10), Column::right(9), Column::right(7)];
        let mut runs = Table::of(columns).with_head(&["run length", "runs", "of duplicates"]);
        for class in self.estimate.run_lengths.iter().filter(|class| class.runs > 0) {
            let percent = format!("{:.1} %", class.percent_of_duplicates);
            runs.row(vec![lengths(class), class.runs.to_string(), percent]);
        }
        let shares = self.estimate.file_shares.iter().map(|share| {
            let files = if share.files == 1 { "file" } else { "files" };
            let (part, percent) = (share.duplicates_percent, share.files_percent);
            format!("{part} % of the duplicates are in {} {files} ({percent:.1} % of all)", share.files)
        });
        let shares = shares.map(|line| line + "\n").collect::<String>();
        let mut files = Table::of([Column::right(9), Column::left(0)]);
        for file in &self.largest_files {
            files.row(vec![Size(file.duplicate_bytes).to_string(), shown(&file.path).to_string()]);
        }
        format!("{}\n{shares}Most of them are in:\n{}", runs.plain(), files.plain())
    }

    fn by_compression(&self) -> String {
        let lines = self.estimate.compression.iter().map(|method| {
            format!(
                "{:10}  {:.1} % of what is left (+-{:.1}), {:.1} % of all with deduplication\n",
                method.method, method.percent_of_stored, method.error_points, method.saved_with_dedup_percent
            )
        });
        let lines: String = lines.collect();
        let head = "What compression would save in addition (mount -o compress=later, experimental):\n";
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oncefs_engine::{PieceCost, Tag};
    use oncefs_estimate::Options;
    use serde_json::Value;

    use super::super::rules;
    use super::*;

    /// Programs read these names, so names are added but never removed.
    const NAMES: [&str; 45] = [
        "compressed_contents",
        "compression",
        "compression.error_points",
        "compression.method",
        "compression.percent_of_stored",
        "compression.saved_with_dedup_percent",
        "duplicates",
        "duplicates.blocks",
        "duplicates.error_points",
        "duplicates.percent",
        "duplicates.sample",
        "exact_memory_bytes",
        "file_shares",
        "file_shares.duplicates_percent",
        "file_shares.files",
        "file_shares.files_percent",
        "files_with_duplicates",
        "hint_memory",
        "hint_memory.bytes",
        "hint_memory.found_percent",
        "largest_files",
        "largest_files.duplicate_bytes",
        "largest_files.path",
        "profiles",
        "profiles.is_of_all_blocks",
        "profiles.limit",
        "profiles.percent",
        "profiles.percent_all_hints",
        "profiles.percent_max",
        "profiles.percent_min",
        "profiles.profile",
        "profiles.saved_bytes",
        "read",
        "read.blocks",
        "read.files",
        "read.zero_blocks",
        "refused",
        "repeated",
        "run_blocks",
        "run_lengths",
        "run_lengths.blocks",
        "run_lengths.blocks_max",
        "run_lengths.blocks_min",
        "run_lengths.percent_of_duplicates",
        "run_lengths.runs",
    ];
    /// All others are numbers, lists or objects.
    const TEXTS: [&str; 5] =
        ["compression.method", "largest_files.path", "profiles.limit", "profiles.profile", "profiles.is_of_all_blocks"];

    /// Three files: one, a copy of it with one block of its own, and one of zeros.
    fn report(memory_bytes_max: u64, files: u64) -> Report {
        let rules = rules::of_profiles(PieceCost::EXPECTED);
        let options =
            Options { memory_bytes_max, blocks_expected: 2_000, rules: rules.iter().map(|rule| rule.rule).collect() };
        let (mut estimator, mut largest) = (Estimator::new(&options), Largest::default());
        for file in 0..files {
            estimator.begin_file(1_001);
            for at in 0..1_000 {
                estimator.add(Tag((file / 2 * 1_000 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15)), &[1; BLOCK_BYTES]);
            }
            estimator.add(Tag((file + 1).wrapping_mul(0x1234_5678_9ABC_DEF1)), &[2; BLOCK_BYTES]);
            estimator.add_zeros(3);
            largest.add(estimator.end_file(), &|| format!("/file {file}").into());
        }
        Report::new(&estimator, &rules, largest, LeftOut { refused: 1, repeated: 0 })
    }

    fn collect(value: &Value, path: &str, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    collect(value, &path, names);
                    names.insert(path);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, path, names)),
            Value::String(_) | Value::Bool(_) => assert!(TEXTS.contains(&path), "{path} is {value}"),
            Value::Null => assert_eq!(path, "run_lengths.blocks_max"),
            Value::Number(_) => {}
        }
    }

    #[test]
    fn the_json_keeps_its_names_and_its_numbers_are_numbers() {
        let mut names = BTreeSet::new();
        collect(&serde_json::to_value(report(64 << 20, 2)).unwrap(), "", &mut names);
        let kept: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names, kept);
    }

    #[test]
    fn the_text_says_what_is_saved_and_how_exact_that_is() {
        let text = report(64 << 20, 2).described();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "read 7.82 MiB in blocks of 4 KiB, 2 files",
            "zeros 24.0 KiB and holes, which take no space",
            "duplicates 3.91 MiB 50.0 % of the blocks, exact",
            "left out 1 could not be read",
            "desktop 3.91 MiB 50.0 % while a file reads at most 100 % slower",
            "256 to 4095 1 100.0 %",
            "1.00 MiB of hints find all of them while they are written",
            "50 % of the duplicates are in 1 file (50.0 % of all)",
            "99 % of the duplicates are in 1 file (50.0 % of all)",
            "Most of them are in:",
            "3.91 MiB \"/file 1\"",
        ] {
            assert!(lines.iter().any(|other| other == line), "no line '{line}' in\n{text}");
        }
        assert!(!text.contains("is enough"), "{text}");
        let text = report(1 << 20, 80).described();
        assert!(text.contains("by one content in ") && text.contains("at most: while a file reads"), "{text}");
        assert!(text.contains("--memory ") && text.contains(" is enough"), "{text}");
    }
}
