//! The partners of the files that share most: one search of all maps for their longest shared runs, like that of
//! `explain`.

use std::cmp::Reverse;

use oncefs_engine::BLOCK_BYTES;

use super::sharing::SharingFile;
use crate::commands::explain::lines::lines_of;
use crate::commands::explain::sharers::{Asking, Other, Others, Sharers};
use crate::control::target::Daemon;
use crate::failure::Outcome;
use crate::names::shown;

/// Most partners that are named.
const PARTNERS_MAX: usize = 4;

/// A file and the files that it shares with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// One of its names, for messages.
    pub name: String,
    /// Bytes of its data.
    pub held: u64,
    /// Of these, bytes in blocks that other places refer to as well.
    pub shared: u64,
    /// The files that have most of its longest runs: names and bytes.
    pub partners: Vec<(String, u64)>,
    /// Whether there are further partners.
    pub has_more: bool,
}

/// Finds the partners of some files.
pub fn find(daemon: &Daemon, files: Vec<SharingFile>) -> Outcome<Vec<Sharing>> {
    let lines: Vec<_> = files.iter().map(|file| lines_of(&file.runs)).collect();
    let asking: Vec<Asking> =
        files.iter().zip(&lines).map(|(file, lines)| Asking { map: file.map, runs: &file.runs, lines }).collect();
    let others = Sharers::new(daemon).of_files(&asking)?;
    Ok(files.iter().zip(others).map(|(file, others)| sharing(file, &others)).collect())
}

fn sharing(file: &SharingFile, others: &[Others]) -> Sharing {
    let mut partners: Vec<(String, u64)> = Vec::new();
    for other in others.iter().flat_map(|others| &others.shown) {
        let (name, bytes) = (name_of(other), other.blocks * BLOCK_BYTES as u64);
        match partners.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += bytes,
            None => partners.push((name, bytes)),
        }
    }
    partners.sort_by_key(|(_, bytes)| Reverse(*bytes));
    let has_more = partners.len() > PARTNERS_MAX || others.iter().any(|others| others.more > 0);
    partners.truncate(PARTNERS_MAX);
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let (held, shared) = (bytes(file.held_blocks), bytes(file.shared_blocks));
    Sharing { name: file.name.clone(), held, shared, partners, has_more }
}

fn name_of(other: &Other) -> String {
    match other.paths.first() {
        _ if other.is_itself => "itself".to_owned(),
        Some(path) => shown(path).to_string(),
        None => "a file without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;

    #[test]
    fn what_a_partner_has_of_several_runs_is_added_up() {
        let other = |path: &str, blocks, is_itself| Other {
            paths: vec![Name::from(path.as_bytes())],
            more_paths: 0,
            is_itself,
            lbn: 0,
            first: 0,
            blocks,
        };
        let lines = [
            Others { shown: vec![other("/b", 5, false), other("/a", 4, false)], more: 0 },
            Others { shown: vec![other("/a", 3, false), other("/own", 2, true)], more: 1 },
        ];
        let file = SharingFile { name: "/own".into(), map: 1, held_blocks: 20, shared_blocks: 14, runs: vec![] };
        let found = sharing(&file, &lines);
        let partners: Vec<(&str, u64)> = found.partners.iter().map(|(name, bytes)| (&**name, bytes / 4096)).collect();
        assert_eq!(partners, [("/a", 7), ("/b", 5), ("itself", 2)]);
        assert!(found.has_more);
    }
}
