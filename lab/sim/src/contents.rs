//! What files hold at the end of a trace.

use std::collections::BTreeMap;

use crate::trace::{Content, Event, Recording, Source};

/// A file, and what it holds. Blocks of zeros are holes, and not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileContents {
    /// Its number.
    pub file: u64,
    /// Blocks that follow one another, ascending, with the lbn of the first.
    pub stretches: Vec<(u64, Vec<Content>)>,
}

impl FileContents {
    /// Blocks that it holds.
    pub fn blocks(&self) -> u64 {
        self.stretches.iter().map(|(_, contents)| contents.len() as u64).sum()
    }

    /// The lbn after its last block.
    pub fn end(&self) -> u64 {
        self.stretches.last().map_or(0, |(first, contents)| first + contents.len() as u64)
    }
}

/// All files that hold something, in the order of their last writes.
pub(crate) fn contents_of(recording: &Recording) -> Vec<FileContents> {
    let mut held = BTreeMap::new();
    let mut last_writes = BTreeMap::new();
    let mut source = recording.replay();
    for at in 0_u64.. {
        match source.next().expect("a recording has no bad line") {
            None => break,
            Some(Event::Read(_)) => (),
            Some(Event::Write(write)) => {
                last_writes.insert(write.place.file, at);
                held.extend(write.blocks());
            }
        }
    }
    held.retain(|_, content| *content != Content::ZERO);
    let mut files: BTreeMap<u64, FileContents> = BTreeMap::new();
    for (place, content) in held {
        let file = files.entry(place.file).or_insert_with(|| FileContents { file: place.file, stretches: Vec::new() });
        if file.end() != place.lbn || file.stretches.is_empty() {
            file.stretches.push((place.lbn, Vec::new()));
        }
        let stretch = file.stretches.last_mut().expect("there is one now");
        stretch.1.push(content);
    }
    let mut files: Vec<FileContents> = files.into_values().collect();
    files.sort_by_key(|file| last_writes[&file.file]);
    files
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::{Place, Write};

    #[test]
    fn what_is_overwritten_is_gone_zeros_are_holes_and_the_last_written_file_comes_last() {
        let [one, two, three] = [1, 2, 3].map(Content::numbered);
        let mut recording = Recording::default();
        let mut write = |file, lbn, contents: &[Content]| {
            let place = Place { file, lbn };
            recording.push(&Event::Write(Write { time: Duration::ZERO, place, contents }));
        };
        write(7, 0, &[one, two, three, three]);
        write(9, 5, &[one]);
        write(4, 0, &[Content::ZERO]);
        write(7, 1, &[Content::ZERO]);
        write(7, 2, &[one]);
        let files = contents_of(&recording);
        assert_eq!(
            files,
            [
                FileContents { file: 9, stretches: vec![(5, vec![one])] },
                FileContents { file: 7, stretches: vec![(0, vec![one]), (2, vec![one, three])] },
            ]
        );
        assert_eq!((files[1].blocks(), files[1].end()), (3, 4));
    }
}
