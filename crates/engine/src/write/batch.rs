//! The blocks of one write as they pass through the steps, and the decisions about each.

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::FilePieces;

use crate::format::fragment::FragmentPlace;
use crate::format::keys::LEAF_BLOCKS;
use crate::write::under_way::Announced;
use crate::{BLOCK_BYTES, EffectivePolicy, Fingerprint, Lbn, Pbn, Tag, WriteMode};

/// The outcome for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All zero: a hole, or still reserved.
    Zero,
    /// A hint says that this pbn holds it; to be confirmed.
    Candidate(Pbn),
    /// As `Candidate`, but the request that has placed it is not published yet.
    Awaited(Pbn),
    /// The pbn holds it: a reference is taken.
    Share(Pbn),
    /// Equal to an earlier block of the batch.
    Twin(usize),
    /// Stored anew, with its pbn once it is placed. A block with an entry in `fragments` has the number of its
    /// fragment.
    Anew(Option<Pbn>),
}

/// The blocks of one write.
pub struct Batch<'a> {
    /// Where in the file the first block belongs.
    pub first: Lbn,
    /// How the file is deduplicated, looked up once for the request.
    pub policy: EffectivePolicy,
    /// Whether a program waits for it.
    pub write_mode: WriteMode,
    /// Whether the map's lock is held while it is decided: then no more is read than has to be.
    pub is_map_locked: bool,
    /// Whole blocks.
    pub bytes: &'a [u8],
    /// A tag for each block.
    pub tags: Vec<Tag>,
    /// Whether every block that is stored gets a fingerprint, not only those with a candidate.
    pub fingerprints_all: bool,
    /// Fingerprints as far as computed.
    pub fingerprints: Vec<Option<Fingerprint>>,
    /// Decisions.
    pub outcomes: Vec<Outcome>,
    /// Shares whose stored block had no fingerprint. It gets the one computed here.
    pub completed: Vec<usize>,
    /// New blocks whose content is kept in memory for now.
    pub staged: Vec<Pbn>,
    /// Blocks stored anew although other blocks hold their content, because their run is too short.
    pub refused: Vec<usize>,
    /// Blocks stored in memory whose run may go on with the file's next request: the last ones of this request.
    pub open: Vec<usize>,
    /// Non-zero blocks at places of the file that had none, as far as the file's account does not include them yet.
    pub added: u64,
    /// What the file's account includes already because of this request: blocks at places that had none, and pieces.
    pub in_account: FilePieces,
    /// New blocks that other requests may find already.
    pub announced: Vec<Announced>,
    /// Blocks claimed for the placed blocks and packs.
    pub claimed: u64,
    /// Placed blocks, and blocks of packs, that needed no claim, because they replace reserved ones.
    pub from_reserved: u64,
    /// Blocks that are stored compressed, each with the place of its fragment.
    pub fragments: HashMap<usize, FragmentPlace>,
    /// Blocks that were to be compressed and do not shrink.
    pub incompressible: Vec<usize>,
    /// Blocks equal to the map's present content, as last looked up. They need no work.
    pub unchanged: HashSet<usize>,
}

impl<'a> Batch<'a> {
    /// Cuts whole blocks into a batch; nothing is decided yet.
    pub fn new(first: Lbn, bytes: &'a [u8], policy: EffectivePolicy, write_mode: WriteMode) -> Self {
        assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "{} bytes are not whole blocks", bytes.len());
        let blocks = bytes.len() / BLOCK_BYTES;
        Self {
            first,
            policy,
            write_mode,
            is_map_locked: false,
            bytes,
            tags: vec![Tag::default(); blocks],
            fingerprints_all: false,
            fingerprints: vec![None; blocks],
            outcomes: vec![Outcome::Anew(None); blocks],
            completed: Vec::new(),
            staged: Vec::new(),
            refused: Vec::new(),
            open: Vec::new(),
            added: 0,
            in_account: FilePieces::default(),
            announced: Vec::new(),
            claimed: 0,
            from_reserved: 0,
            fragments: HashMap::new(),
            incompressible: Vec::new(),
            unchanged: HashSet::new(),
        }
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// The leaves of its map that it changes.
    pub fn leaves(&self) -> impl Iterator<Item = u64> + use<> {
        self.first.0 / LEAF_BLOCKS..(self.first.0 + self.len() as u64).div_ceil(LEAF_BLOCKS)
    }

    /// The content of a block.
    pub fn block(&self, index: usize) -> &'a [u8] {
        debug_assert!(index < self.len(), "block {index} of {}", self.len());
        &self.bytes[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES]
    }

    /// Indexes of the blocks whose outcome passes `test`.
    pub fn indexes(&self, test: impl Fn(Outcome) -> bool) -> Vec<usize> {
        (0..self.len()).filter(|index| test(self.outcomes[*index])).collect()
    }

    /// The pbns that may hold blocks of it.
    pub fn candidates(&self) -> impl Iterator<Item = Pbn> + '_ {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Candidate(pbn) => Some(*pbn),
            _ => None,
        })
    }

    /// Candidates that are confirmed later: each of these pbns becomes `Awaited`.
    pub fn set_aside(&mut self, pbns: &HashSet<Pbn>) {
        for outcome in &mut self.outcomes {
            match *outcome {
                Outcome::Candidate(pbn) if pbns.contains(&pbn) => *outcome = Outcome::Awaited(pbn),
                _ => {}
            }
        }
    }

    /// Candidates that are not confirmed: blocks with these pbns are stored anew.
    pub fn pass_over(&mut self, pbns: &HashSet<Pbn>) {
        for outcome in &mut self.outcomes {
            if matches!(outcome, Outcome::Candidate(pbn) if pbns.contains(pbn)) {
                *outcome = Outcome::Anew(None);
            }
        }
    }

    /// What was set aside is a candidate again.
    pub fn take_up(&mut self) {
        for outcome in &mut self.outcomes {
            if let Outcome::Awaited(pbn) = *outcome {
                *outcome = Outcome::Candidate(pbn);
            }
        }
    }

    /// The pbn that holds a block once everything is decided and placed. None for a zero block.
    pub fn pbn(&self, index: usize) -> Option<Pbn> {
        match self.outcomes[index] {
            Outcome::Zero => None,
            Outcome::Share(pbn) | Outcome::Anew(Some(pbn)) => Some(pbn),
            Outcome::Twin(earlier) => self.pbn(earlier),
            undecided => panic!("block {index} is published as {undecided:?}"),
        }
    }

    /// Whether none of its places held data before.
    pub fn is_all_added(&self) -> bool {
        self.outcomes.iter().filter(|outcome| **outcome != Outcome::Zero).count() as u64 == self.added
    }

    /// The ranges of the data area that hold the blocks stored anew.
    pub fn own_runs(&self) -> Vec<(Pbn, u64)> {
        let mut runs: Vec<(Pbn, u64)> = Vec::new();
        for outcome in &self.outcomes {
            let Outcome::Anew(Some(pbn)) = outcome else { continue };
            match runs.last_mut() {
                Some((first, blocks)) if first.plus(*blocks) == *pbn => *blocks += 1,
                _ => runs.push((*pbn, 1)),
            }
        }
        runs
    }
}
