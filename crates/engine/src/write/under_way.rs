//! Requests under way: the blocks that they have placed and not published yet. They have hints already, so another
//! request that writes the same content finds them. It waits for their publication before it confirms them, and so equal
//! blocks that are written at the same time are stored once.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::base::part;
use crate::hints::levels::HintLevels;
use crate::space::allocator::Run;
use crate::sync::{Condvar, LockRank, Mutex, assert_may_wait_for_requests};
use crate::{Pbn, Tag};

part! {
    /// The blocks that requests have placed and not published yet.
    ///
    /// No two requests wait for each other: a request looks up before it places, and waits only for blocks that were
    /// placed before its own look-up.
    pub struct UnderWay {
        base: ; hint_levels: HintLevels
    } own {
        requests: Mutex<Requests> = Mutex::new(LockRank::Leaf, Requests::default()),
        ended: Condvar = Condvar::default()
    }
}

#[derive(Default)]
struct Requests {
    /// How many were announced so far.
    announced: u64,
    placed: Vec<Placed>,
}

/// The blocks of one request.
struct Placed {
    request: u64,
    /// Whether they get fingerprints, which confirm them without a read.
    are_fingerprinted: bool,
    /// In ascending order.
    runs: Vec<Run>,
}

impl Placed {
    fn has(&self, pbn: Pbn) -> bool {
        let after = self.runs.partition_point(|run| run.pbn <= pbn);
        after > 0 && pbn.0 - self.runs[after - 1].pbn.0 < self.runs[after - 1].blocks
    }
}

/// Placed blocks of a request, until they are published or given up. Its end wakes those that wait for them.
pub struct Announced {
    under_way: Arc<UnderWay>,
    request: u64,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.under_way.requests.lock().placed.retain(|placed| placed.request != self.request);
        self.under_way.ended.notify_all();
    }
}

/// The requests that another one may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// All of them.
    All,
    /// Those whose blocks get fingerprints. It would not compare the others' blocks.
    Fingerprinted,
    /// None: it holds the lock of its map, which one of them may need.
    None,
}

/// The candidates of a request that other requests have placed and not published.
#[derive(Default)]
pub struct Found {
    /// Those to confirm once they are published.
    pub awaited: HashSet<Pbn>,
    /// The others, which are stored anew. Their hints are not stale.
    pub passed_over: HashSet<Pbn>,
    /// The requests that have placed `awaited`.
    pub requests: AwaitedRequests,
}

/// Requests whose blocks a batch may share.
#[derive(Default)]
pub struct AwaitedRequests(Vec<u64>);

impl AwaitedRequests {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl UnderWay {
    /// Announces blocks that are placed in `runs`, and gives them hints.
    pub fn announce(self: &Arc<Self>, blocks: &[(Tag, Pbn)], mut runs: Vec<Run>, are_fingerprinted: bool) -> Announced {
        runs.sort_unstable_by_key(|run| run.pbn);
        let request = {
            let mut requests = self.requests.lock();
            requests.announced += 1;
            let request = requests.announced;
            requests.placed.push(Placed { request, are_fingerprinted, runs });
            request
        };
        self.hint_levels.update_hints(&[], blocks);
        Announced { under_way: self.clone(), request }
    }

    /// Takes away the hints of announced blocks that are not published.
    pub fn withdraw(&self, blocks: &[(Tag, Pbn)]) {
        self.hint_levels.update_hints(blocks, &[]);
    }

    /// Which of these pbns other requests have placed and not published, for a request that awaits such ones.
    pub fn find(&self, pbns: impl Iterator<Item = Pbn>, awaits: Awaits) -> Found {
        let requests = self.requests.lock();
        let mut found = Found::default();
        for pbn in pbns {
            let Some(placed) = requests.placed.iter().find(|placed| placed.has(pbn)) else { continue };
            if awaits == Awaits::All || (awaits == Awaits::Fingerprinted && placed.are_fingerprinted) {
                found.awaited.insert(pbn);
                found.requests.0.push(placed.request);
            } else {
                found.passed_over.insert(pbn);
            }
        }
        found.requests.0.sort_unstable();
        found.requests.0.dedup();
        found
    }

    /// Waits until these requests have published their blocks or failed. The caller holds no lock that a publication
    /// needs, that of a map included.
    pub fn wait(&self, awaited: &AwaitedRequests) {
        assert_may_wait_for_requests();
        let mut requests = self.requests.lock();
        while requests.placed.iter().any(|placed| awaited.0.contains(&placed.request)) {
            self.ended.wait(&mut requests);
        }
    }
}
