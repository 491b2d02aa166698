//! Measures figures 12 to 14 and table 6: real files, most of them cold.
//!
//! The paper's users worked for two weeks. Here the shares of table 6 are made: files written long ago, some of them read
//! sequentially and some at random, and a few files written last.

use std::path::Path;

use serde::Serialize;

use super::args::SelectiveArgs;
use super::cases::{Case, Saved, Use, prepare};
use super::corpus::{Corpus, Tree};
use super::counter::Counted;
use super::reading::{Distribution, Pattern, Reads};
use super::user::User;
use crate::content::Random;
use crate::failure::{Result, tell};
use crate::mount::rotated;
use crate::side::Bench;

/// Longer than the paper's 2 weeks after which a file is cold.
const DAYS: u32 = 20;

/// The result of one mount in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// Whose files.
    pub user: User,
    /// The mount.
    pub case: Case,
    /// From 0 on.
    pub repetition: usize,
    /// What it saved.
    pub saved: Saved,
    /// Response times of all files, each read sequentially.
    pub all: Distribution,
    /// Response times of those that were read sequentially before: rank 1.
    pub sequential: Distribution,
}

/// All readings, and what the counter found in the files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// By user.
    pub counted: Vec<(User, Counted)>,
    /// In the order in which they were taken.
    pub readings: Vec<Reading>,
}

/// Measures the files of one user on every mount.
pub fn measure(args: &SelectiveArgs, bench: &Bench, user: User, directory: &Path, results: &mut Results) -> Result<()> {
    let tree = Tree::below(directory, args.size(), args.shared.seed)?;
    for (repetition, seed) in args.rounds().iter() {
        let usage = usage(user, tree.files(), args, seed);
        let reads = all_sequentially(tree.files(), seed);
        for (_, case) in rotated(&args.cases, repetition) {
            tell(&format!("{}, repetition {}: {}", user.describe(), repetition + 1, case.describe()));
            let mut prepared = prepare(&args.memory, bench, *case, &tree, &usage)?;
            if !results.counted.iter().any(|(counted, _)| *counted == user) {
                results.counted.push((user, Counted::of(prepared.side.root(), &tree)?));
            }
            let responses = prepared.read_cold(&reads, &tree)?;
            let is_of_rank_1 = |file| usage.reads.files.contains(&(file, Pattern::Sequential));
            results.readings.push(Reading {
                user,
                case: *case,
                repetition,
                saved: prepared.saved.clone(),
                all: responses.figures(|_| true),
                sequential: responses.figures(is_of_rank_1),
            });
            prepared.finish(&tree)?;
        }
    }
    Ok(())
}

/// Which files are read how, and which are written last, so that the ranks have the paper's shares.
fn usage(user: User, files: usize, args: &SelectiveArgs, seed: u64) -> Use {
    let [late, sequential, random, _] = user.rank_permilles().map(|permille| files * permille / 1000);
    let late_from = files - late;
    let chosen = Random::new(seed).permutation(late_from).into_iter().take(sequential + random);
    let pattern = |index| if index < sequential { Pattern::Sequential } else { Pattern::Random };
    let files = chosen.enumerate().map(|(index, file)| (file, pattern(index))).collect();
    Use { days: DAYS, late_from, reads: Reads { files, random_blocks_max: args.random_blocks_max, seed } }
}

fn all_sequentially(files: usize, seed: u64) -> Reads {
    Reads::mixed(files, 100, 0, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_used_in_the_shares_of_table_6() {
        let args = SelectiveArgs::of_tests();
        let usage = usage(User::Desktop, 10_000, &args, 7);
        assert_eq!(usage.late_from, 10_000 - 280);
        let with = |wanted| usage.reads.files.iter().filter(|(_, pattern)| *pattern == wanted).count();
        assert_eq!((with(Pattern::Sequential), with(Pattern::Random)), (590, 410));
        assert!(usage.reads.files.iter().all(|(file, _)| *file < usage.late_from));
    }
}
