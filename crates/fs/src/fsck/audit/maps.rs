//! The third part of an audit: files, their maps and the policies of these, in the order of maps.

use oncefs_engine::format::{file_policy, keys};
use oncefs_engine::{BLOCK_BYTES, Blocks, Compress, FilePolicy, MapId, PolicyOverride, Sorted};

use crate::format::inode::{self, InodeRecord};
use crate::fsck::audit::records::Records;
use crate::fsck::audit::{Audit, NamePhase};
use crate::fsck::fault::{Count, Fault};
use crate::{Ino, Result};

/// Maps with their numbers of blocks (None: a part is damaged), collected while maps are visited.
type Visited = Vec<(MapId, Option<Blocks>)>;

/// Maps collected before they are compared. Bounds memory, and keeps the store's locks apart from the audit's reads.
const COLLECTED_MAX: usize = 4096;

/// Most parts of 1 MiB with holes in one file. With more, the places of lost content are not known.
const LOST_PARTS_MAX: usize = 65_536;

/// Files by map, with the policies to compare them with.
struct Owners<'a> {
    files: Sorted<4>,
    policies: Records<'a>,
    compared: u64,
}

/// The number of a slowdown of 0 %, above those of all runs.
const SLOWDOWN: u64 = 1_000;

/// A policy as a number, so that it can be sorted with its file. 0 is the default policy.
pub fn number_of(policy: &FilePolicy) -> u64 {
    let policy_override = match policy.policy_override {
        None => 0,
        Some(PolicyOverride::Off) => 1,
        Some(PolicyOverride::Inline) => 2,
        Some(PolicyOverride::Later) => 3,
        Some(PolicyOverride::Selective) => 4,
        Some(PolicyOverride::Run(blocks)) => 4 + u64::from(blocks),
        Some(PolicyOverride::Slowdown(None)) => SLOWDOWN - 1,
        Some(PolicyOverride::Slowdown(Some(slowdown))) => SLOWDOWN + u64::from(slowdown.0),
    };
    let compress = match policy.compress {
        None => 0,
        Some(Compress::Off) => 1,
        Some(Compress::Later) => 2,
        Some(Compress::Inline) => 3,
        Some(Compress::Auto) => 4,
    };
    policy_override << 16 | compress << 8 | u64::from(policy.rank.number()) << 1 | u64::from(policy.is_update_heavy)
}

impl Audit<'_> {
    /// Checks (8) and (11).
    pub fn maps(&mut self) -> Result<()> {
        let (store, (first, _)) = (self.store, keys::all_file_policies());
        let files = std::mem::take(&mut self.owners).sorted()?;
        let mut owners = Owners { files, policies: Records::of(store, first[0]), compared: 0 };
        let mut visited = Visited::new();
        let mut failed = None;
        store.for_each_map(&mut |map, blocks| {
            visited.push((map, blocks));
            if visited.len() == COLLECTED_MAX && failed.is_none() {
                failed = self.compare(std::mem::take(&mut visited), &mut owners).err();
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        self.compare(visited, &mut owners)?;
        self.compare(vec![(MapId(u64::MAX), Some(Blocks(0)))], &mut owners)?;
        self.policies_below(u64::MAX, &mut owners.policies)
    }

    /// Compares maps with blocks, ascending, with the files that own them. Files of maps in between must be empty.
    fn compare(&mut self, visited: Visited, owners: &mut Owners<'_>) -> Result<()> {
        debug_assert!(visited.len() <= COLLECTED_MAX, "{} maps in a batch of {COLLECTED_MAX}", visited.len());
        debug_assert!(visited.is_sorted_by_key(|(map, _)| map.0), "{} maps are not in order", visited.len());
        for (map, blocks) in visited {
            let mut first = None;
            while let Some([of, ino, counted, policy]) = owners.files.peek()?.filter(|[of, ..]| *of <= map.0) {
                owners.files.pop()?;
                owners.compared += 1;
                (self.progress)(NamePhase::Maps, owners.compared, self.owners_count);
                self.policy(MapId(of), Ino(ino), policy, &mut owners.policies)?;
                let before = first.replace((of, ino)).filter(|(other, _)| *other == of);
                if let Some((_, other)) = before {
                    (self.found)(Fault::SharedMap { ino: Ino(ino), other: Ino(other), map: MapId(of) });
                    first = before;
                }
                let blocks_found = if of == map.0 { blocks } else { Some(Blocks(0)) };
                if let Some(found) = blocks_found {
                    self.blocks((Ino(ino), MapId(of)), counted, found.0)?;
                }
            }
            if first.is_none_or(|(of, _)| of != map.0) && map.0 != u64::MAX {
                (self.found)(Fault::UnownedMap { map, blocks });
            }
        }
        Ok(())
    }

    /// Checks (8) for the blocks of one file. Fewer than it had are content that was lost in its holes.
    fn blocks(&mut self, (ino, map): (Ino, MapId), counted: u64, found: u64) -> Result<()> {
        let lost = Blocks(counted.saturating_sub(found));
        let parts = if lost.0 > 0 { self.parts_of_lost(ino, map, lost)? } else { Vec::new() };
        if parts.is_empty() {
            self.expect(ino, Count::Blocks, counted, found);
        } else {
            (self.found)(Fault::LostContent { ino, map, lost, parts });
        }
        Ok(())
    }

    /// The parts that may have held a file's lost blocks: those without a record. If these are too few, also the holes
    /// of other parts, some blocks of which the log may have restored.
    fn parts_of_lost(&mut self, ino: Ino, map: MapId, lost: Blocks) -> Result<Vec<u64>> {
        let Some(bytes) = self.store.get(&inode::key(ino))? else { return Ok(Vec::new()) };
        let Ok(InodeRecord { size, .. }) = InodeRecord::decode(ino, &bytes) else { return Ok(Vec::new()) };
        let blocks = Blocks(size.div_ceil(BLOCK_BYTES as u64));
        let Some(mut parts) = self.store.parts_with_holes(map, blocks, LOST_PARTS_MAX)? else { return Ok(Vec::new()) };
        let empty: u64 = parts.iter().filter(|part| part.is_empty).map(|part| part.holes.0).sum();
        if empty >= lost.0 {
            parts.retain(|part| part.is_empty);
        }
        Ok(parts.iter().map(|part| part.part).collect())
    }

    /// Checks (11) for one file. The second file of a map finds no policy left, and is a fault of its own.
    fn policy(&mut self, map: MapId, ino: Ino, expected: u64, policies: &mut Records<'_>) -> Result<()> {
        self.policies_below(map.0, policies)?;
        let has_record = policies.peek()?.is_some_and(|(key, _)| keys::parse_file_policy(key) == Some(map));
        let record = if has_record { policies.pop()? } else { None };
        let stored = match record {
            Some((_, value)) => file_policy::decode(map, &value).map(|policy| number_of(&policy)),
            None => Some(number_of(&FilePolicy::default())),
        };
        if stored != Some(expected) {
            (self.found)(Fault::Policy { ino, map });
        }
        Ok(())
    }

    /// Checks (11) for maps below this one: a policy left there belongs to no file.
    fn policies_below(&mut self, map: u64, policies: &mut Records<'_>) -> Result<()> {
        while let Some((key, _)) = policies.peek()? {
            let of = keys::parse_file_policy(key);
            if of.is_some_and(|of| of.0 >= map) {
                break;
            }
            policies.pop()?;
            // A malformed key is left to the engine's audit.
            if let Some(map) = of {
                (self.found)(Fault::UnownedPolicy { map });
            }
        }
        Ok(())
    }
}
