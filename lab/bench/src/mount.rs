//! A mount to be compared with others, with a fresh volume every time.

use crate::content::Content;
use crate::failure::{During, Failure, Result};
use crate::files::{self, open};
use crate::machine;
use crate::measure::Latencies;
use crate::pieces::Part;
use crate::side::{Bench, Side, SideSpec};

/// A mount by its name in the tables and its options.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: String,
}

impl Mount {
    /// A mount that shares runs of at least `run_blocks_min` blocks while they are written.
    pub fn in_line(run_blocks_min: &str) -> Mount {
        let options = format!("run_blocks_min={run_blocks_min},inline=all,worker=off");
        Mount { name: run_blocks_min.to_owned(), options }
    }

    /// A profile as it is, by its name.
    pub fn in_profile(profile: &str) -> Mount {
        Mount { name: profile.to_owned(), options: format!("profile={profile}") }
    }

    /// A mount that shares nothing.
    pub fn off(name: &str) -> Mount {
        Mount { name: name.to_owned(), options: "inline=off,worker=off".to_owned() }
    }

    /// Makes a device with a volume and mounts it. Dropping the side removes everything.
    pub fn begin(&self, bench: &Bench) -> Result<Side> {
        machine::drop_caches()?;
        let spec: SideSpec = format!("oncefs=-o {}", self.options).parse().map_err(Failure::new)?;
        let mut side = Side::create(bench, &spec, &self.name, 0)?;
        side.format()?;
        side.mount()?;
        Ok(side)
    }
}

/// The items with their numbers; every repetition begins with a different one.
pub fn rotated<T>(items: &[T], repetition: usize) -> impl Iterator<Item = (usize, &T)> {
    let count = items.len();
    (0..count).map(move |turn| (turn + repetition) % count).map(|index| (index, &items[index]))
}

/// Writes a file from its beginning, 4 KiB at a time, then fsync.
pub fn write(side: &Side, content: &Content, part: &Part) -> Result<()> {
    let file = open(&side.root().join(&part.name), true)?;
    let places: Vec<usize> = (0..part.indexes.len()).collect();
    files::write_some(&file, content, part.indexes.clone(), &places, &mut Latencies::with_capacity(places.len()))
}

/// Compares every byte of a file.
pub fn verify(side: &Side, content: &Content, part: &Part) -> Result<()> {
    let first = part.indexes.start;
    files::verify(&side.root().join(&part.name), part.indexes.len(), |place| (content, first + place))
        .during(|| format!("mounted with {}", side.label()))
}
