//! Single hints by recency: plain LRU, the baseline to compare group eviction with.
//!
//! Owns the hints, their order of use and their bound. An array of nodes, linked by index twice:
//! into chains by the tag's leading bits, and into one list from the least to the most recently
//! used. A hint takes 36 to 45 bytes, four times what it takes in a group.

use crate::hints::{HOLDERS_MAX, Hint, Inserted};
use crate::{Pbn, Tag};

/// No node.
const NONE: u32 = u32::MAX;
/// Chains of an empty store; they double when there is one node for each.
const CHAINS_MIN: usize = 256;
const NODE_BYTES: u64 = size_of::<Node>() as u64;

struct Node {
    hint: Hint,
    /// Next node of the same chain.
    next: u32,
    older: u32,
    newer: u32,
}

/// Hints by recency, bounded in bytes.
///
/// Invariants, asserted by [`SingleHints::check`]:
/// 1. Every node is in the chain that its tag names, once, and no hint is there twice.
/// 2. The list from `oldest` to `newest` has every node once and reads the same backwards.
/// 3. `bytes` is at most `bytes_max`.
/// 4. At most [`HOLDERS_MAX`] nodes agree in their tag.
/// 5. Evicted hints are kept only when that was asked for.
pub(crate) struct SingleHints {
    nodes: Vec<Node>,
    chains: Vec<u32>,
    oldest: u32,
    newest: u32,
    bytes_max: u64,
    keep_evicted: bool,
    evicted: Vec<Hint>,
}

fn bytes_of(nodes: usize, chains: usize) -> u64 {
    nodes as u64 * NODE_BYTES + chains as u64 * size_of::<u32>() as u64
}

/// The node that a link leads to.
fn linked(link: u32) -> Option<u32> {
    (link != NONE).then_some(link)
}

impl SingleHints {
    pub(crate) fn new(bytes_max: u64, keep_evicted: bool) -> Self {
        let room = bytes_max >= bytes_of(1, CHAINS_MIN);
        let chains = if room { vec![NONE; CHAINS_MIN] } else { Vec::new() };
        let (oldest, newest) = (NONE, NONE);
        Self { nodes: Vec::new(), chains, oldest, newest, bytes_max, keep_evicted, evicted: Vec::new() }
    }

    pub(crate) fn lookup(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        let found = self.holders(Hint::new(tag, Pbn(0)).tag);
        let before = pbns.len();
        for node in found {
            pbns.push(self.node(node).hint.pbn);
            self.unlink(node);
            self.link_newest(node);
        }
        pbns[before..].sort_unstable();
    }

    pub(crate) fn peek(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        let before = pbns.len();
        pbns.extend(self.holders(Hint::new(tag, Pbn(0)).tag).into_iter().map(|node| self.node(node).hint.pbn));
        pbns[before..].sort_unstable();
    }

    pub(crate) fn insert(&mut self, tag: Tag, pbn: Pbn) -> Inserted {
        let hint = Hint::new(tag, pbn);
        let holders = self.holders(hint.tag);
        let known = holders.iter().any(|&node| self.node(node).hint == hint);
        if self.chains.is_empty() || known || holders.len() >= HOLDERS_MAX {
            return Inserted::default();
        }
        let evicted = self.reserve_one();
        let node = self.nodes.len() as u32;
        let chain = self.chain_of(hint.tag);
        self.nodes.push(Node { hint, next: self.chains[chain], older: NONE, newer: NONE });
        self.chains[chain] = node;
        self.link_newest(node);
        Inserted { added: true, evicted }
    }

    pub(crate) fn remove(&mut self, tag: Tag, pbn: Pbn) -> bool {
        let hint = Hint::new(tag, pbn);
        let holders = self.holders(hint.tag);
        let Some(&node) = holders.iter().find(|&&node| self.node(node).hint == hint) else { return false };
        self.take(node);
        true
    }

    pub(crate) fn take_evicted(&mut self) -> Vec<Hint> {
        std::mem::take(&mut self.evicted)
    }

    /// All hints in one portion, since single hints have no order but that of their use.
    pub(crate) fn drain_next(&mut self) -> Vec<Hint> {
        let mut hints: Vec<Hint> = self.nodes.iter().map(|node| node.hint).collect();
        hints.sort_unstable();
        let kept = self.take_evicted();
        self.clear();
        self.evicted = kept;
        hints
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: u64) -> usize {
        let order: Vec<Hint> = self.in_order_of_use().map(|node| self.node(node).hint).collect();
        let mut kept = self.take_evicted();
        *self = Self::new(bytes_max, self.keep_evicted);
        let mut evicted: usize = order.iter().map(|hint| self.insert(hint.tag, hint.pbn).evicted).sum();
        if self.chains.is_empty() {
            evicted = order.len();
            self.evicted.extend(order.into_iter().filter(|_| self.keep_evicted));
        }
        self.evicted.append(&mut kept);
        evicted
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        bytes_of(self.nodes.capacity(), self.chains.len())
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bytes_max, self.keep_evicted);
    }

    pub(crate) fn check(&self) {
        let chained: usize = self.chains.iter().map(|&first| self.chain_from(first).count()).sum();
        assert_eq!(chained, self.nodes.len(), "invariant 1");
        for (place, node) in self.nodes.iter().enumerate() {
            let holders = self.holders(node.hint.tag);
            assert!(holders.contains(&(place as u32)), "invariant 1: node {place}");
            let twins = holders.iter().filter(|&&holder| self.node(holder).hint == node.hint);
            assert_eq!(twins.count(), 1, "invariant 1: {:?}", node.hint);
            assert!(holders.len() <= HOLDERS_MAX, "invariant 4: {:?}", node.hint);
        }
        let mut older = NONE;
        for node in self.in_order_of_use() {
            assert_eq!(self.node(node).older, older, "invariant 2: node {node}");
            older = node;
        }
        assert_eq!((older, self.in_order_of_use().count()), (self.newest, self.nodes.len()), "invariant 2");
        assert!(self.bytes() <= self.bytes_max || self.chains.is_empty(), "invariant 3: {} bytes", self.bytes());
        assert!(self.keep_evicted || self.evicted.is_empty(), "invariant 5");
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn chain_of(&self, tag: Tag) -> usize {
        (tag.0 >> (u64::BITS - self.chains.len().ilog2())) as usize
    }

    fn chain_from(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(linked(first), |&node| linked(self.node(node).next))
    }

    fn in_order_of_use(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(linked(self.oldest), |&node| linked(self.node(node).newer))
    }

    /// The nodes of a tag.
    fn holders(&self, tag: Tag) -> Vec<u32> {
        if self.chains.is_empty() {
            return Vec::new();
        }
        let first = self.chains[self.chain_of(tag)];
        self.chain_from(first).filter(|&node| self.node(node).hint.tag == tag).collect()
    }

    /// Makes room for one more node; how many hints were evicted for it.
    fn reserve_one(&mut self) -> usize {
        if self.nodes.len() < self.nodes.capacity() {
            return 0;
        }
        let grown = self.nodes.len() + (self.nodes.len() / 8).max(1);
        let chains = if grown > self.chains.len() { 2 * self.chains.len() } else { self.chains.len() };
        if bytes_of(grown, chains) <= self.bytes_max && grown < NONE as usize {
            self.nodes.reserve_exact(grown - self.nodes.len());
            self.rechain(chains);
            return 0;
        }
        let hint = self.take(self.oldest);
        self.evicted.extend(Some(hint).filter(|_| self.keep_evicted));
        1
    }

    fn rechain(&mut self, chains: usize) {
        if chains == self.chains.len() {
            return;
        }
        self.chains = vec![NONE; chains];
        for node in 0..self.nodes.len() {
            let chain = self.chain_of(self.nodes[node].hint.tag);
            self.nodes[node].next = std::mem::replace(&mut self.chains[chain], node as u32);
        }
    }

    /// Takes a node out of chain, list and array; the last node moves into its place.
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
        self.nodes.swap_remove(node as usize).hint
    }

    /// Lets what points at a node in its chain point elsewhere.
    fn redirect_chain(&mut self, node: u32, to: u32) {
        let chain = self.chain_of(self.node(node).hint.tag);
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

    /// Sets what `older` has as its newer and what `newer` has as its older neighbour; at an end
    /// of the list, what the list begins or ends with.
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
