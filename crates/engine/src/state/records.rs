//! Records (the caller's and the engine's own) that are published but not in the sorted state yet.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// New values by key; None removes.
pub type RecordMap = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Some records in order.
#[derive(Default)]
pub struct Portion {
    /// The records, removals included.
    pub records: RecordMap,
    /// Records after this key may be missing. None: none are.
    pub bound: Option<Vec<u8>>,
}

/// Layers of records: the current group, groups since the last checkpoint, the running checkpoint.
#[derive(Default)]
pub struct Records {
    group: RecordMap,
    dirty: RecordMap,
    frozen: Arc<RecordMap>,
    group_bytes: u64,
    dirty_bytes: u64,
    /// Counts checkpoints: while one writes, the sorted state shows it in part.
    generation: u64,
}

/// The overhead of each record beside its bytes.
const OVERHEAD_BYTES: u64 = 64;

impl Records {
    /// Sets (None: removes) a record in the current group.
    pub fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.group_bytes += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64 + OVERHEAD_BYTES;
        self.group.insert(key, value);
    }

    /// The newest value in memory. None: the sorted state decides. Some(None): it was removed.
    pub fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let layers = [&self.group, &self.dirty, &*self.frozen];
        layers.iter().find_map(|layer| layer.get(key)).cloned()
    }

    /// The newest values in memory with `from <= key < to`, removals included, at most `limit` from each layer. `bound`
    /// is the last key up to which the result is complete.
    pub fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Portion {
        let mut portion = Portion::default();
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        for layer in [&*self.frozen, &self.dirty, &self.group] {
            let part: Vec<_> = layer.range::<[u8], _>(bounds).take(limit).collect();
            if part.len() == limit {
                let last = part.last().map(|(key, _)| (*key).clone());
                portion.bound = [portion.bound, last].into_iter().flatten().min();
            }
            portion.records.extend(part.into_iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        portion
    }

    /// Ends the current group and returns its records for the log.
    pub fn end_group(&mut self) -> RecordMap {
        let group = std::mem::take(&mut self.group);
        self.dirty_bytes += std::mem::take(&mut self.group_bytes);
        self.dirty.extend(group.iter().map(|(key, value)| (key.clone(), value.clone())));
        group
    }

    /// Sets the records of ended groups apart for a checkpoint.
    pub fn freeze(&mut self) -> Arc<RecordMap> {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        assert!(self.group.is_empty(), "a checkpoint begins where a group ends");
        self.dirty_bytes = 0;
        self.generation += 1;
        self.frozen = Arc::new(std::mem::take(&mut self.dirty));
        self.frozen.clone()
    }

    /// The frozen records are in the sorted state.
    pub fn thaw(&mut self) {
        self.frozen = Arc::default();
    }

    /// How many checkpoints began. If it is the same before and after a read of the sorted state, none of the records
    /// published in between has left memory, and that read shows none newer than `range` returned.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of the current group.
    pub fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// Bytes that no checkpoint has taken yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes + self.group_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_layer_wins_and_removals_are_seen() {
        let mut records = Records::default();
        records.put(b"a".to_vec(), Some(vec![1]));
        records.put(b"b".to_vec(), Some(vec![1]));
        records.end_group();
        records.freeze();
        records.put(b"a".to_vec(), None);
        records.end_group();
        records.put(b"c".to_vec(), Some(vec![3]));
        assert_eq!(records.get(b"a"), Some(None));
        assert_eq!(records.get(b"b"), Some(Some(vec![1])));
        assert_eq!(records.get(b"x"), None);
        let range = records.range(b"a", b"c", 9);
        assert_eq!(range.bound, None);
        assert_eq!(
            range.records.into_iter().collect::<Vec<_>>(),
            [(b"a".to_vec(), None), (b"b".to_vec(), Some(vec![1]))]
        );
        records.thaw();
        assert_eq!(records.get(b"b"), None);
    }
}
