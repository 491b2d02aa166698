//! Single hints by recency: iDedup's cache of dedup metadata (section 4.1), an LRU in memory only.
//!
//! Owns the hints, their order of use and their bound. The nodes are in one array and linked by index, which takes half
//! of a pointer: into chains by tag, and into one list from the least to the most recently used. A chain is ascending,
//! so the holders of one content are adjacent in the order of their pbns (the paper's dup-tree). A hint is deleted by
//! tag and pbn, and the block table knows both. So it needs no table by pbn (the paper's DBN hash table) and no link
//! for one. A full store takes [`SINGLE_HINT_BYTES`] per hint. The paper's takes 64 and its tables.

use crate::hints::{HINT_PBN_BITS, HOLDERS_MAX, Hint, Inserted, TAG_BITS_KEPT};
use crate::{Pbn, Tag};

/// No node.
const NONE: u32 = u32::MAX;
/// Initial number of chains; it doubles when there is one node for each.
const CHAINS_MIN: usize = 256;
/// Bytes of a tag, and of a pbn, in a node.
const HALF_KEY_BYTES: usize = 5;
const _: () = assert!(TAG_BITS_KEPT as usize == 8 * HALF_KEY_BYTES && HINT_PBN_BITS as usize <= 8 * HALF_KEY_BYTES);

/// Memory of a hint in a full store, in bytes: its node and the head of a chain.
pub const SINGLE_HINT_BYTES: u64 = (size_of::<Node>() + size_of::<u32>()) as u64;
const _: () = assert!(SINGLE_HINT_BYTES == 28);

/// Tag and pbn, big-endian: sorts in the order of hints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    tag: [u8; HALF_KEY_BYTES],
    pbn: [u8; HALF_KEY_BYTES],
}

impl Key {
    fn of(tag: Tag, pbn: Pbn) -> Self {
        let tag = *tag.0.to_be_bytes().first_chunk().expect("a tag has 8 bytes");
        Self { tag, pbn: *pbn.0.to_be_bytes().last_chunk().expect("a pbn has 8 bytes") }
    }

    fn tag(&self) -> Tag {
        let mut bytes = [0; 8];
        bytes[..HALF_KEY_BYTES].copy_from_slice(&self.tag);
        Tag(u64::from_be_bytes(bytes))
    }

    fn pbn(&self) -> Pbn {
        let mut bytes = [0; 8];
        bytes[8 - HALF_KEY_BYTES..].copy_from_slice(&self.pbn);
        Pbn(u64::from_be_bytes(bytes))
    }

    fn hint(&self) -> Hint {
        Hint { tag: self.tag(), pbn: self.pbn() }
    }
}

struct Node {
    key: Key,
    /// Next node of the same chain.
    next: u32,
    older: u32,
    newer: u32,
}

/// Hints by recency, bounded in bytes.
///
/// Invariants, asserted by [`SingleHints::check`]:
/// 1. Every node is in the chain that its tag names, once, and chains ascend by tag and pbn.
/// 2. The list from `oldest` to `newest` has every node once and reads the same backwards.
/// 3. At most `nodes_max` nodes exist. They and the chains take at most `bytes_max`.
/// 4. At most [`HOLDERS_MAX`] nodes agree in their tag.
/// 5. Evicted hints are kept only if the options ask for it.
pub(crate) struct SingleHints {
    nodes: Vec<Node>,
    /// The first node of each chain.
    chains: Vec<u32>,
    oldest: u32,
    newest: u32,
    bytes_max: u64,
    nodes_max: usize,
    keep_evicted: bool,
    evicted: Vec<Hint>,
}

/// The node that a link leads to.
fn linked(link: u32) -> Option<u32> {
    (link != NONE).then_some(link)
}

fn nodes_max(bytes_max: u64) -> usize {
    (bytes_max / SINGLE_HINT_BYTES).min(u64::from(NONE)) as usize
}

impl SingleHints {
    pub(crate) fn new(bytes_max: u64, keep_evicted: bool) -> Self {
        Self {
            nodes: Vec::new(),
            chains: Vec::new(),
            oldest: NONE,
            newest: NONE,
            bytes_max,
            nodes_max: nodes_max(bytes_max),
            keep_evicted,
            evicted: Vec::new(),
        }
    }

    pub(crate) fn lookup(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        let mut link = self.first_holder(tag);
        while let Some(node) = linked(link).filter(|node| self.is_of(*node, tag)) {
            pbns.push(self.node(node).key.pbn());
            self.unlink(node);
            self.link_newest(node);
            link = self.node(node).next;
        }
    }

    pub(crate) fn peek(&self, tag: Tag, pbns: &mut Vec<Pbn>) {
        pbns.extend(self.holders(tag).map(|node| self.node(node).key.pbn()));
    }

    pub(crate) fn insert(&mut self, tag: Tag, pbn: Pbn) -> Inserted {
        let key = Key::of(tag, pbn);
        let is_known = self.holders(tag).any(|node| self.node(node).key == key);
        if self.nodes_max == 0 || is_known || self.holders(tag).count() >= HOLDERS_MAX {
            return Inserted::default();
        }
        let evicted = self.make_room();
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { key, next: NONE, older: NONE, newer: NONE });
        self.link_into_chain(node);
        self.link_newest(node);
        Inserted { added: true, evicted }
    }

    pub(crate) fn remove(&mut self, tag: Tag, pbn: Pbn) -> bool {
        let key = Key::of(tag, pbn);
        let found = self.holders(tag).find(|node| self.node(*node).key == key);
        found.map(|node| self.take(node)).is_some()
    }

    pub(crate) fn take_evicted(&mut self) -> Vec<Hint> {
        std::mem::take(&mut self.evicted)
    }

    /// All hints in one batch, because the only order of single hints is that of their use.
    pub(crate) fn drain_next(&mut self) -> Vec<Hint> {
        let mut hints: Vec<Hint> = self.nodes.iter().map(|node| node.key.hint()).collect();
        hints.sort_unstable();
        let kept = self.take_evicted();
        self.clear();
        self.evicted = kept;
        hints
    }

    /// Evicts the least recently used hints until the rest fit.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: u64) -> usize {
        (self.bytes_max, self.nodes_max) = (bytes_max, nodes_max(bytes_max));
        let evicted = self.nodes.len().saturating_sub(self.nodes_max);
        (0..evicted).for_each(|_| self.evict_oldest());
        self.nodes.shrink_to(self.nodes_max);
        if self.chains.len() > self.nodes_max {
            self.rechain(self.nodes_max);
        }
        evicted
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node>() + self.chains.capacity() * size_of::<u32>()) as u64
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bytes_max, self.keep_evicted);
    }

    pub(crate) fn check(&self) {
        let mut chained = 0;
        for (chain, &first) in self.chains.iter().enumerate() {
            let nodes: Vec<u32> = self.chain_from(first).collect();
            assert!(nodes.is_sorted_by(|a, b| self.node(*a).key < self.node(*b).key), "invariant 1: chain {chain}");
            let named = nodes.iter().map(|node| self.chain_of(self.node(*node).key.tag()));
            assert!(named.eq(nodes.iter().map(|_| chain)), "invariant 1: chain {chain}");
            let agree = nodes.chunk_by(|a, b| self.node(*a).key.tag == self.node(*b).key.tag);
            assert!(agree.map(<[u32]>::len).all(|holders| holders <= HOLDERS_MAX), "invariant 4: chain {chain}");
            chained += nodes.len();
        }
        assert_eq!(chained, self.nodes.len(), "invariant 1");
        let mut older = NONE;
        for node in self.in_order_of_use() {
            assert_eq!(self.node(node).older, older, "invariant 2: node {node}");
            older = node;
        }
        assert_eq!((older, self.in_order_of_use().count()), (self.newest, self.nodes.len()), "invariant 2");
        let counts = [self.nodes.len(), self.nodes.capacity(), self.chains.capacity()];
        assert!(
            counts.iter().all(|count| *count <= self.nodes_max),
            "invariant 3: {counts:?} above {}",
            self.nodes_max
        );
        assert!(self.bytes() <= self.bytes_max, "invariant 3: {} bytes", self.bytes());
        assert!(self.keep_evicted || self.evicted.is_empty(), "invariant 5");
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// The chain of a tag; at least one exists. Chains divide the tags evenly.
    fn chain_of(&self, tag: Tag) -> usize {
        let leading = tag.0 >> 32;
        ((leading * self.chains.len() as u64) >> 32) as usize
    }

    fn chain_from(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(linked(first), |&node| linked(self.node(node).next))
    }

    fn in_order_of_use(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(linked(self.oldest), |&node| linked(self.node(node).newer))
    }

    fn is_of(&self, node: u32, tag: Tag) -> bool {
        self.node(node).key.tag == Key::of(tag, Pbn(0)).tag
    }

    /// The first node in the tag's chain at or after the tag, or [`NONE`].
    fn first_holder(&self, tag: Tag) -> u32 {
        if self.chains.is_empty() {
            return NONE;
        }
        let first = Key::of(tag, Pbn(0));
        let mut chain = self.chain_from(self.chains[self.chain_of(tag)]);
        chain.find(|node| self.node(*node).key >= first).unwrap_or(NONE)
    }

    /// The nodes of a tag, by ascending pbn.
    fn holders(&self, tag: Tag) -> impl Iterator<Item = u32> {
        self.chain_from(self.first_holder(tag)).take_while(move |node| self.is_of(*node, tag))
    }

    /// Makes room for one more node; returns how many hints were evicted for it.
    fn make_room(&mut self) -> usize {
        let held = self.nodes.len();
        if held == self.nodes_max {
            self.evict_oldest();
            return 1;
        }
        if held == self.nodes.capacity() {
            let grown = (held + (held / 8).max(CHAINS_MIN)).min(self.nodes_max);
            self.nodes.reserve_exact(grown - held);
        }
        if held >= self.chains.len() {
            self.rechain((2 * held).max(CHAINS_MIN).min(self.nodes_max));
        }
        0
    }

    fn evict_oldest(&mut self) {
        let hint = self.take(self.oldest);
        self.evicted.extend(Some(hint).filter(|_| self.keep_evicted));
    }

    fn rechain(&mut self, chains: usize) {
        self.chains = vec![NONE; chains];
        (0..self.nodes.len() as u32).for_each(|node| self.link_into_chain(node));
    }

    /// Puts a node into its place in its chain.
    fn link_into_chain(&mut self, node: u32) {
        let key = self.node(node).key;
        let chain = self.chain_of(key.tag());
        let before = self.chain_from(self.chains[chain]).take_while(|before| self.node(*before).key < key).last();
        let link = match before {
            Some(before) => &mut self.nodes[before as usize].next,
            None => &mut self.chains[chain],
        };
        let next = std::mem::replace(link, node);
        self.nodes[node as usize].next = next;
    }

    /// Removes a node from chain, list and array. The last node moves into its place.
    fn take(&mut self, node: u32) -> Hint {
        let next = self.node(node).next;
        self.redirect_chain(node, next);
        self.unlink(node);
        let last = self.nodes.len() as u32 - 1;
        if last != node {
            self.redirect_chain(last, node);
            let (older, newer) = (self.node(last).older, self.node(last).newer);
            self.set_neighbours(older, newer, node, node);
        }
        self.nodes.swap_remove(node as usize).key.hint()
    }

    /// Redirects the link to a node in its chain.
    fn redirect_chain(&mut self, node: u32, to: u32) {
        let chain = self.chain_of(self.node(node).key.tag());
        let before = self.chain_from(self.chains[chain]).find(|&before| self.node(before).next == node);
        match before {
            Some(before) => self.nodes[before as usize].next = to,
            None => self.chains[chain] = to,
        }
    }

    fn unlink(&mut self, node: u32) {
        let (older, newer) = (self.node(node).older, self.node(node).newer);
        self.set_neighbours(older, newer, newer, older);
    }

    /// Sets the newer neighbour of `older` and the older neighbour of `newer`. At an end of the list, sets that end of
    /// the list.
    fn set_neighbours(&mut self, older: u32, newer: u32, newer_of_older: u32, older_of_newer: u32) {
        match older {
            NONE => self.oldest = newer_of_older,
            _ => self.nodes[older as usize].newer = newer_of_older,
        }
        match newer {
            NONE => self.newest = older_of_newer,
            _ => self.nodes[newer as usize].older = older_of_newer,
        }
    }

    fn link_newest(&mut self, node: u32) {
        let older = std::mem::replace(&mut self.newest, node);
        self.nodes[node as usize].older = older;
        self.nodes[node as usize].newer = NONE;
        match older {
            NONE => self.oldest = node,
            _ => self.nodes[older as usize].newer = node,
        }
    }
}

#[cfg(test)]
mod tests;
