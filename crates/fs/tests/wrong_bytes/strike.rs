//! Chooses the places of damage, and damages them.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use oncefs_toolbox::Random;

use super::world::{PAGE, State, World};
use crate::flips::image::{Part, parts_of_tables};
use crate::unreadable_sectors::Unreadable;

const SECTOR: u64 = 512;

/// The damage to a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// One byte is wrong.
    OneByte,
    /// Two bytes are wrong.
    TwoBytes,
    /// A sector cannot be read until it is written.
    Sector,
}

/// The structures of a volume.
pub const STRUCTURES: [&str; 13] = [
    "superblock",
    "log",
    "table",
    "record data",
    "record index",
    "record footer",
    "manifest",
    "CURRENT",
    "copies",
    "list of copies",
    "advice",
    "other files of RocksDB",
    "data",
];

/// The bytes of a structure in `volume`, a copy of the world's volume in this state.
pub fn parts(world: &World, state: State, volume: &Path, structure: &str) -> Vec<Part> {
    if structure.starts_with("record ") {
        return parts_of_tables(volume, structure);
    }
    let files = world.image(state).0.iter().filter(|(name, ..)| structure_of(name) == structure);
    let parts = files.flat_map(|(name, len, pages, _)| {
        let pages = if structure == "log" && state == State::Killed { &world.live_log } else { pages };
        let part = |page: &u64| (volume.join(name), page * PAGE..len.min(&((page + 1) * PAGE)).to_owned());
        pages.iter().map(part).collect::<Vec<_>>()
    });
    parts.collect()
}

fn structure_of(name: &Path) -> &'static str {
    let name = name.to_str().unwrap();
    let file = name.trim_start_matches("records/");
    match name {
        "superblock" => "superblock",
        "log" => "log",
        "table" => "table",
        "data" => "data",
        "hints" | "skipped" => "advice",
        "copies/list" => "list of copies",
        _ if name.starts_with("copies/") => "copies",
        _ if file.starts_with("MANIFEST") => "manifest",
        _ if file == "CURRENT" => "CURRENT",
        _ if name.starts_with("records/") && !name.ends_with(".sst") => "other files of RocksDB",
        _ => "",
    }
}

/// A place: a file and a byte in it.
pub type Spot = (PathBuf, u64);

/// Places for damage. A second wrong byte is near the first or anywhere in the structure, equally often.
pub fn places(parts: &[Part], harm: Harm, random: &mut Random) -> Vec<Spot> {
    let first = anywhere(parts, random);
    let mut places = vec![first.clone()];
    if harm == Harm::TwoBytes {
        let near = |part: &&Part| part.0 == first.0 && part.1.contains(&first.1);
        let part = parts.iter().find(near).unwrap();
        let is_near = random.one_in(2);
        let second = if is_near { beside(&first, &part.1, random) } else { anywhere(parts, random) };
        places.extend((second != first).then_some(second));
    }
    places
}

fn anywhere(parts: &[Part], random: &mut Random) -> Spot {
    let mut at = random.below(parts.iter().map(|(_, part)| part.end - part.start).sum());
    for (path, part) in parts {
        let len = part.end - part.start;
        if at < len {
            return (path.clone(), part.start + at);
        }
        at -= len;
    }
    unreachable!("the number is below the sum")
}

fn beside(first: &Spot, part: &Range<u64>, random: &mut Random) -> Spot {
    let at = (first.1 + 1 + random.below(64)).min(part.end - 1);
    (first.0.clone(), at)
}

/// Damages these places. A sector can be read again once the result is dropped.
pub fn strike(places: &[Spot], harm: Harm, random: &mut Random) -> Option<Unreadable> {
    if harm == Harm::Sector {
        let (path, at) = &places[0];
        let sector = at / SECTOR * SECTOR;
        return Some(Unreadable::at(path, sector..sector + SECTOR));
    }
    for (path, at) in places {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, *at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 + random.below(255) as u8)], *at).unwrap();
    }
    None
}
