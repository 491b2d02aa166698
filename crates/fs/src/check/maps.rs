//! The third part of an audit: files and their maps, in the order of maps.

use oncefs_engine::{Blocks, MapId, Sorted};

use super::fault::{Count, Fault};
use super::{Audit, NamePhase};
use crate::{Ino, Result};

/// How many maps without a file are reported as a group of their own inodes would be: kept while maps are visited.
type Visited = Vec<(MapId, Option<Blocks>)>;

/// Maps gathered before they are compared: bounds memory, and keeps the store's locks apart from ours.
const GATHERED_MAX: usize = 4096;

impl Audit<'_> {
    /// (8)
    pub fn maps(&mut self) -> Result<()> {
        let mut owners = std::mem::take(&mut self.owners).sorted()?;
        let mut visited = Visited::new();
        let (mut failed, mut compared) = (None, 0);
        let store = self.store;
        store.for_each_map(&mut |map, blocks| {
            visited.push((map, blocks));
            if visited.len() == GATHERED_MAX && failed.is_none() {
                failed = self.compare(std::mem::take(&mut visited), &mut owners, &mut compared).err();
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        self.compare(visited, &mut owners, &mut compared)?;
        self.compare(vec![(MapId(u64::MAX), Some(Blocks(0)))], &mut owners, &mut compared)
    }

    /// Maps that hold something, ascending, with the files that say they are theirs. Owners of maps in between have
    /// empty ones.
    fn compare(&mut self, visited: Visited, owners: &mut Sorted<3>, compared: &mut u64) -> Result<()> {
        for (map, blocks) in visited {
            let mut first = None;
            while let Some([of, ino, counted]) = owners.peek()?.filter(|[of, ..]| *of <= map.0) {
                owners.pop()?;
                *compared += 1;
                (self.progress)(NamePhase::Maps, *compared, self.owners_count);
                let before = first.replace((of, ino)).filter(|(other, _)| *other == of);
                if let Some((_, other)) = before {
                    (self.found)(Fault::SharedMap { ino: Ino(ino), other: Ino(other), map: MapId(of) });
                    first = before;
                }
                let held = if of == map.0 { blocks } else { Some(Blocks(0)) };
                if let Some(held) = held {
                    self.expect(Ino(ino), Count::Blocks, counted, held.0);
                }
            }
            if first.is_none_or(|(of, _)| of != map.0) && map.0 != u64::MAX {
                (self.found)(Fault::NobodysMap { map, blocks });
            }
        }
        Ok(())
    }
}
