//! The third part of an audit: files, their maps and what the engine is told of them, in the order of maps.

use oncefs_engine::format::{file_policy, keys};
use oncefs_engine::{Blocks, FilePolicy, MapId, PolicyOverride, Sorted};

use crate::fsck::audit::records::Records;
use crate::fsck::audit::{Audit, NamePhase};
use crate::fsck::fault::{Count, Fault};
use crate::{Ino, Result};

/// How many maps without a file are reported as a group of their own inodes would be: kept while maps are visited.
type Visited = Vec<(MapId, Option<Blocks>)>;

/// Maps gathered before they are compared: bounds memory, and keeps the store's locks apart from ours.
const GATHERED_MAX: usize = 4096;

/// Files by map, with what is compared with them.
struct Owners<'a> {
    files: Sorted<4>,
    policies: Records<'a>,
    compared: u64,
}

/// A number for each policy, so that it can be sorted along; 0 for one that says nothing.
pub fn number_of(policy: &FilePolicy) -> u64 {
    let policy_override = match policy.policy_override {
        None => 0,
        Some(PolicyOverride::Off) => 1,
        Some(PolicyOverride::Inline) => 2,
        Some(PolicyOverride::Later) => 3,
        Some(PolicyOverride::Selective) => 4,
        Some(PolicyOverride::Run(blocks)) => 4 + u64::from(blocks),
    };
    policy_override << 8 | u64::from(policy.rank.number()) << 1 | u64::from(policy.is_update_heavy)
}

impl Audit<'_> {
    /// (8), (11)
    pub fn maps(&mut self) -> Result<()> {
        let (store, (first, _)) = (self.store, keys::all_file_policies());
        let files = std::mem::take(&mut self.owners).sorted()?;
        let mut owners = Owners { files, policies: Records::of(store, first[0]), compared: 0 };
        let mut visited = Visited::new();
        let mut failed = None;
        store.for_each_map(&mut |map, blocks| {
            visited.push((map, blocks));
            if visited.len() == GATHERED_MAX && failed.is_none() {
                failed = self.compare(std::mem::take(&mut visited), &mut owners).err();
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        self.compare(visited, &mut owners)?;
        self.compare(vec![(MapId(u64::MAX), Some(Blocks(0)))], &mut owners)?;
        self.policies_below(u64::MAX, &mut owners.policies)
    }

    /// Maps that hold something, ascending, with the files that say they are theirs. Owners of maps in between have
    /// empty ones.
    fn compare(&mut self, visited: Visited, owners: &mut Owners<'_>) -> Result<()> {
        for (map, blocks) in visited {
            let mut first = None;
            while let Some([of, ino, counted, said]) = owners.files.peek()?.filter(|[of, ..]| *of <= map.0) {
                owners.files.pop()?;
                owners.compared += 1;
                (self.progress)(NamePhase::Maps, owners.compared, self.owners_count);
                self.policy(MapId(of), Ino(ino), said, &mut owners.policies)?;
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

    /// (11) for one file. One that shares its map, which is another fault, finds nothing told of it.
    fn policy(&mut self, map: MapId, ino: Ino, said: u64, policies: &mut Records<'_>) -> Result<()> {
        self.policies_below(map.0, policies)?;
        let is_told = policies.peek()?.is_some_and(|(key, _)| keys::parse_file_policy(key) == Some(map));
        let told = if is_told { policies.pop()? } else { None };
        let told = told.map_or(Some(0), |(_, value)| file_policy::decode(map, &value).map(|told| number_of(&told)));
        if told != Some(said) {
            (self.found)(Fault::Policy { ino, map });
        }
        Ok(())
    }

    /// (11) for what is told of maps before this one, of which files say nothing.
    fn policies_below(&mut self, map: u64, policies: &mut Records<'_>) -> Result<()> {
        while let Some((key, _)) = policies.peek()? {
            let told = keys::parse_file_policy(key);
            if told.is_some_and(|told| told.0 >= map) {
                break;
            }
            policies.pop()?;
            // A key of another form is the engine's to find.
            if let Some(map) = told {
                (self.found)(Fault::NobodysPolicy { map });
            }
        }
        Ok(())
    }
}
