//! A directory whose files are created, replaced, renamed, truncated, cloned and deleted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Lost, Witness};
use crate::{BLOCK, Random, fill, sys};

/// Names in use at most.
const NAMES: u64 = 40;
/// Streams that contents are cut from, at blocks: files overlap, and most blocks are shared.
const STREAMS: u64 = 12;
const STREAM_BLOCKS: u64 = 128;
const SMALL_MAX: u64 = 60_000;
const LARGE_MAX: u64 = 2 << 20;
/// Changes between two barriers at most.
const CHANGES_MAX: u64 = 6;
/// Under this name files grow before they get their own; what it holds after a crash is nobody's promise.
const BESIDE: &str = "beside";

/// What a file holds: a piece of a stream, from a block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    stream: u64,
    at: u64,
    len: u64,
}

impl Content {
    fn random(random: &mut Random) -> Self {
        let len_max = if random.one_in(12) { LARGE_MAX } else { SMALL_MAX };
        let len = 1 + random.below(len_max);
        Content { stream: 5000 + random.below(STREAMS), at: random.below(STREAM_BLOCKS) * BLOCK, len }
    }

    fn bytes(self) -> Vec<u8> {
        let mut out = vec![0; self.len as usize];
        fill(self.stream, self.at, &mut out);
        out
    }
}

type State = BTreeMap<String, Content>;

/// Every change is one system call on a name, so a crash leaves one of the states from the last barrier on.
pub struct Names {
    dir: PathBuf,
    /// The acknowledged state, then one for each change since. Never empty.
    states: Vec<State>,
    barriers: u64,
}

impl Names {
    /// Makes the directory, empty and durable.
    pub fn new(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir(&dir)?;
        File::open(&dir)?.sync_all()?;
        Ok(Names { dir, states: vec![State::new()], barriers: 0 })
    }

    fn now(&self) -> &State {
        self.states.last().expect("never empty")
    }

    fn acknowledge(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.barriers += 1;
    }

    fn any_name(random: &mut Random) -> String {
        format!("name-{}", random.below(NAMES))
    }

    fn existing(&self, random: &mut Random) -> Option<(String, Content)> {
        let number = random.below(self.now().len().max(1) as u64) as usize;
        self.now().iter().nth(number).map(|(name, content)| (name.clone(), *content))
    }

    fn change(&mut self, random: &mut Random) -> io::Result<()> {
        let Some((name, content)) = self.existing(random) else { return self.create(random) };
        match random.below(8) {
            0..3 => self.create(random),
            3 => self.rename(&name, &Self::any_name(random)),
            4 => self.delete(&name),
            5 => self.truncate(&name, random.below(content.len + 1)),
            _ => self.clone_file(&name, content, random),
        }
    }

    fn create(&mut self, random: &mut Random) -> io::Result<()> {
        let content = Content::random(random);
        let mut file = File::create(self.dir.join(BESIDE))?;
        file.write_all(&content.bytes())?;
        file.sync_all()?;
        self.acknowledge();
        self.put_in_place(content, &Self::any_name(random))
    }

    /// From a random block of the file on. The kernel passes it on at once, so the next barrier makes it durable.
    fn clone_file(&mut self, name: &str, from: Content, random: &mut Random) -> io::Result<()> {
        let skip = random.below(from.len / BLOCK + 1) * BLOCK;
        let content = Content { at: from.at + skip, len: from.len - skip, ..from };
        let (source, copy) = (File::open(self.dir.join(name))?, File::create(self.dir.join(BESIDE))?);
        sys::copy_range_all(&source, skip, &copy, 0, content.len)?;
        self.put_in_place(content, &Self::any_name(random))
    }

    fn put_in_place(&mut self, content: Content, name: &str) -> io::Result<()> {
        let mut after = self.now().clone();
        after.insert(name.to_owned(), content);
        self.states.push(after);
        fs::rename(self.dir.join(BESIDE), self.dir.join(name))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut after = self.now().clone();
        let content = after.remove(from).expect("an existing name");
        after.insert(to.to_owned(), content);
        self.states.push(after);
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn delete(&mut self, name: &str) -> io::Result<()> {
        let mut after = self.now().clone();
        after.remove(name);
        self.states.push(after);
        fs::remove_file(self.dir.join(name))
    }

    fn truncate(&mut self, name: &str, len: u64) -> io::Result<()> {
        let mut after = self.now().clone();
        after.get_mut(name).expect("an existing name").len = len;
        self.states.push(after);
        File::options().write(true).open(self.dir.join(name))?.set_len(len)
    }
}

type Found = BTreeMap<String, Vec<u8>>;

fn read_all(dir: &Path) -> io::Result<Found> {
    let mut found = Found::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().into_string().expect("names are ASCII");
        if name != BESIDE {
            found.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(found)
}

/// How what was found differs from a state, if it does.
fn difference(found: &Found, state: &State) -> Option<String> {
    if let Some(name) = found.keys().find(|name| !state.contains_key(*name)) {
        return Some(format!("{name} is there and should not be"));
    }
    state.iter().find_map(|(name, content)| match found.get(name) {
        None => Some(format!("{name} is missing")),
        Some(bytes) if bytes.len() as u64 != content.len => {
            Some(format!("{name} has {} bytes instead of {}", bytes.len(), content.len))
        }
        Some(bytes) => {
            let at = bytes.iter().zip(content.bytes()).position(|(found, wanted)| *found != wanted);
            at.map(|at| format!("{name} of {} bytes differs at {at}", content.len))
        }
    })
}

impl Witness for Names {
    fn step(&mut self, random: &mut Random) -> io::Result<()> {
        for _ in 0..1 + random.below(CHANGES_MAX) {
            self.change(random)?;
        }
        File::open(&self.dir)?.sync_all()?;
        self.acknowledge();
        Ok(())
    }

    fn verify(&mut self) -> Result<u64, Lost> {
        let found = read_all(&self.dir).map_err(|error| Lost(format!("{}: {error}", self.dir.display())))?;
        let differences: Vec<_> = self.states.iter().map(|state| difference(&found, state)).collect();
        let Some(number) = differences.iter().rposition(Option::is_none) else {
            let all: Vec<String> = differences.into_iter().flatten().collect();
            return Err(Lost(format!("{}: no state from the last barrier on: {}", self.dir.display(), all.join("; "))));
        };
        self.states = vec![self.states.swap_remove(number)];
        Ok(found.values().map(|bytes| bytes.len() as u64).sum())
    }

    fn barriers(&self) -> u64 {
        self.barriers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_some_work() -> (tempfile::TempDir, Names) {
        let scratch = tempfile::tempdir().unwrap();
        let mut names = Names::new(scratch.path().join("dir")).unwrap();
        let mut random = Random::new(3);
        for _ in 0..30 {
            names.step(&mut random).unwrap();
        }
        assert!(names.verify().unwrap() > 0);
        (scratch, names)
    }

    #[test]
    fn a_lost_name_a_name_come_back_and_a_wrong_byte_are_seen() {
        let (_scratch, mut names) = after_some_work();
        let (name, _) = names.existing(&mut Random::new(1)).unwrap();
        let (path, aside) = (names.dir.join(&name), names.dir.join("name-aside"));
        fs::rename(&path, &aside).unwrap();
        names.verify().unwrap_err();
        fs::copy(&aside, &path).unwrap();
        names.verify().unwrap_err();
        fs::remove_file(&aside).unwrap();
        names.verify().unwrap();
        let mut content = fs::read(&path).unwrap();
        *content.last_mut().unwrap() ^= 1;
        fs::write(&path, content).unwrap();
        names.verify().unwrap_err();
    }

    #[test]
    fn a_crash_may_lose_the_last_changes_but_none_before_another() {
        let (_scratch, mut names) = after_some_work();
        let mut random = Random::new(2);
        let (first, _) = names.existing(&mut random).unwrap();
        names.delete(&first).unwrap();
        let (second, content) = names.existing(&mut random).unwrap();
        names.delete(&second).unwrap();
        fs::write(names.dir.join(&second), content.bytes()).unwrap();
        assert_eq!(names.states.len(), 3);
        let (all, now) = (names.states.clone(), names.verify());
        now.expect("the second deletion was not acknowledged");
        names.states = all;
        fs::remove_file(names.dir.join(&second)).unwrap();
        fs::write(names.dir.join(&first), names.states[0][&first].bytes()).unwrap();
        names.verify().expect_err("the first deletion came before the second");
    }
}
