//! An experiment: a command line of this program whose readings figures share, and its sizes at a scale.

use std::path::{Path, PathBuf};

use crate::peers::corpora_directory;

/// A command line, in words.
pub struct Experiment {
    /// Name of its readings.
    pub name: &'static str,
    /// The words. `{2048M:24M}` stands for the size 2048M times the scale, but at least 24M; the same goes for counts.
    /// `{90,50,10|90,10}` stands for the first list, and below a hundredth of the paper's sizes for the second, which
    /// has what claims need: there only that everything works is to be shown. [`DEVELOPER`] stands for a directory of
    /// this machine with sources: see [`developer_directory`].
    pub words: &'static [&'static str],
    /// Minutes that a repetition at the paper's sizes takes, roughly, on a quiet machine: what the command's limits on
    /// devices allow, added up.
    pub minutes: f64,
}

/// Stands for a directory, and does so on pages too, which name no path of a machine.
const DEVELOPER: &str = "{developer}";

/// Below this scale only what claims need is measured.
const FEW_BELOW: f64 = 0.01;

/// Minutes of a repetition that do not depend on sizes: file systems made and mounted again and again.
const FIXED_MINUTES: f64 = 0.3;

/// How experiments are run.
pub struct Conditions<'a> {
    /// Directory for loop devices.
    pub directory: &'a Path,
    /// The oncefs program.
    pub oncefs: &'a Path,
    /// What sizes are multiplied with.
    pub scale: f64,
    /// Repetitions of each measurement.
    pub repetitions: usize,
    /// Seed of contents and orders.
    pub seed: u64,
}

impl Experiment {
    /// The words at this scale, as they can be typed.
    pub fn words(&self, conditions: &Conditions) -> Vec<String> {
        let given = [format!("--repetitions={}", conditions.repetitions), format!("--seed={}", conditions.seed)];
        self.fixed(conditions).chain(given).collect()
    }

    /// The words for one of the repetitions.
    pub fn words_of(&self, conditions: &Conditions, repetition: usize) -> Vec<String> {
        let first = format!("--first-repetition={repetition}");
        let given = ["--repetitions=1".to_owned(), first, format!("--seed={}", conditions.seed)];
        let directory = developer_directory().display().to_string();
        self.fixed(conditions).map(|word| word.replace(DEVELOPER, &directory)).chain(given).collect()
    }

    fn fixed(&self, conditions: &Conditions) -> impl Iterator<Item = String> {
        self.words
            .iter()
            .map(|word| if word.contains(DEVELOPER) { (*word).to_owned() } else { scaled(word, conditions.scale) })
    }

    /// Minutes that a repetition takes, roughly.
    pub fn expected_minutes(&self, conditions: &Conditions) -> f64 {
        FIXED_MINUTES + self.minutes * conditions.scale
    }
}

/// Files of a developer: the vendored crates of `scripts/corpora` where it made them, otherwise the sources of crates
/// that cargo keeps on this machine, in all their versions.
fn developer_directory() -> PathBuf {
    let made = corpora_directory().map(|corpora| corpora.join("crates")).filter(|crates| crates.is_dir());
    let cargo = || std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map_or_else(PathBuf::new, PathBuf::from).join(".cargo");
    made.unwrap_or_else(|| cargo().unwrap_or_else(home).join("registry/src"))
}

/// The word with its sizes at this scale.
fn scaled(word: &str, scale: f64) -> String {
    let Some((before, rest)) = word.split_once('{') else { return word.to_owned() };
    let (size, after) = rest.split_once('}').expect("a test fills every word");
    if let Some((all, few)) = size.split_once('|') {
        let list = if scale < FEW_BELOW { few } else { all };
        return format!("{before}{list}{}", scaled(after, scale));
    }
    let (full, least) = size.split_once(':').expect("a test fills every word");
    let digits =
        |text: &str| text.trim_end_matches(char::is_alphabetic).parse::<f64>().expect("a test fills every word");
    let unit = full.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = (digits(full) * scale).round().max(digits(least));
    format!("{before}{number}{unit}{}", scaled(after, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_scale_down_to_the_least_and_keep_their_unit() {
        assert_eq!(scaled("--file-size={2048M:24M}", 0.5), "--file-size=1024M");
        assert_eq!(scaled("--file-size={2048M:24M}", 0.001), "--file-size=24M");
        assert_eq!(scaled("a={100:1},b={8K:4K}", 0.25), "a=25,b=4K");
        assert_eq!(scaled("--throttled", 0.25), "--throttled");
        let path = Path::new("/");
        let conditions = Conditions { directory: path, oncefs: path, scale: 0.5, repetitions: 1, seed: 1 };
        let experiment = Experiment { name: "e", words: &["--developer={developer}"], minutes: 0.0 };
        assert_eq!(experiment.words(&conditions)[0], "--developer={developer}");
        assert!(!experiment.words_of(&conditions, 0)[0].contains('{'));
        assert_eq!([0.01, 0.001].map(|scale| scaled("a={3,2,1|3,1}", scale)), ["a=3,2,1", "a=3,1"]);
    }
}
