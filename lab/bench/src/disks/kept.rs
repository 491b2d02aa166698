//! What was measured so far, in a file, so that a run that was ended goes on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::part::Part;
use crate::failure::{During, Failure, Result};
use crate::measure::Row;

/// One scenario of a part in one repetition, on all sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The part.
    pub part: Part,
    /// The scenario's place in it.
    pub scenario: usize,
    /// The repetition, from 0.
    pub repetition: usize,
}

/// All rounds that were measured.
pub struct Kept {
    file: Option<PathBuf>,
    content: Content,
}

#[derive(Serialize, Deserialize)]
struct Content {
    conditions: String,
    commit: String,
    rounds: Vec<(Round, Vec<Row>)>,
}

impl Kept {
    /// Reads what the file has, if there is one. Refuses readings of other conditions or of another commit.
    pub fn open(file: Option<&Path>, conditions: String, commit: &str) -> Result<Kept> {
        let empty = Content { conditions, commit: commit.to_owned(), rounds: Vec::new() };
        let Some(path) = file else { return Ok(Kept { file: None, content: empty }) };
        let during = || format!("cannot read {}", path.display());
        let content = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => empty,
            Err(error) => return Err(error).during(during),
            Ok(bytes) => {
                let found: Content = serde_json::from_slice(&bytes).during(during)?;
                if (&found.conditions, &found.commit) != (&empty.conditions, &empty.commit) {
                    let text = "has readings of other arguments or of another commit: name another file with --keep";
                    return Err(Failure::new(format!("{} {text}", path.display())));
                }
                found
            }
        };
        Ok(Kept { file: Some(path.to_owned()), content })
    }

    /// Whether a round was measured.
    pub fn has(&self, round: Round) -> bool {
        self.content.rounds.iter().any(|(kept, _)| *kept == round)
    }

    /// Adds the readings of a round. The file has all or none of them, however the run ends.
    pub fn add(&mut self, round: Round, rows: Vec<Row>) -> Result<()> {
        self.content.rounds.push((round, rows));
        let Some(file) = &self.file else { return Ok(()) };
        let during = || format!("cannot write {}", file.display());
        let new = file.with_extension("new");
        let bytes = serde_json::to_vec(&self.content).during(during)?;
        fs::write(&new, bytes).and_then(|()| fs::rename(&new, file)).during(during)
    }

    /// All readings.
    pub fn rows(&self) -> Vec<Row> {
        self.content.rounds.iter().flat_map(|(_, rows)| rows.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::row;

    #[test]
    fn a_run_goes_on_with_what_the_one_before_kept_and_mixes_no_commits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kept.json");
        let open = |conditions: &str, commit| Kept::open(Some(&file), conditions.to_owned(), commit);
        let round = |repetition| Round { part: Part::Trees, scenario: 1, repetition };
        let mut kept = open("64M", "abc").unwrap();
        kept.add(round(0), vec![row("tree-copy", "disk", 0, 1.5)]).unwrap();
        let kept = open("64M", "abc").unwrap();
        assert_eq!([0, 1].map(|repetition| kept.has(round(repetition))), [true, false]);
        assert_eq!(kept.rows().iter().map(|row| (&row.side[..], row.seconds)).collect::<Vec<_>>(), [("disk", 1.5)]);
        assert!(open("64M", "abd").is_err() && open("65M", "abc").is_err());
        assert!(!Kept::open(None, "65M".to_owned(), "abd").unwrap().has(round(0)));
    }
}
