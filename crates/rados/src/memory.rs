//! The twin of a cluster in memory, for tests. It keeps what a cluster promises and nothing more: after a crash each
//! object is as some change left it that was not awaited yet, whatever other objects are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{
    Change, Error, Guard, Hold, KeyChange, KeyLookUp, KeyScan, KeyedObjects, Objects, Pending, PoolSpace, Portion,
    Read, Result, SCANNED_KEYS_MAX, Standbys, WhenFull,
};

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Content {
    /// The room that it takes in the pool, about.
    fn len(&self) -> usize {
        self.bytes.len() + self.keys.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }

    fn change_keys(&mut self, changes: &[KeyChange<'_>]) {
        for change in changes {
            match change {
                KeyChange::Set { key, value } => drop(self.keys.insert(key.to_vec(), value.to_vec())),
                KeyChange::Remove { key } => drop(self.keys.remove(*key)),
                KeyChange::RemoveRange { from, to } => self.keys.retain(|key, _| key[..] < **from || key[..] >= **to),
            }
        }
    }
}

/// None: the object is missing.
type State = Option<Arc<Content>>;

/// An object: as it survives any crash, and as each change since left it.
#[derive(Default)]
struct Object {
    durable: State,
    later: Vec<(u64, State)>,
}

impl Object {
    fn now(&self) -> &State {
        self.later.last().map_or(&self.durable, |(_, state)| state)
    }
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Object>,
    changes: u64,
    is_full: bool,
    space: Option<PoolSpace>,
    is_fenced: bool,
    is_gone: bool,
    awaited: u64,
    waiting: BTreeSet<String>,
}

/// Objects in memory.
#[derive(Clone, Default)]
pub struct MemoryObjects(Arc<Mutex<Inner>>);

impl MemoryObjects {
    /// Objects after a crash. `choose` gets an object and how many of its changes were not awaited, and returns how
    /// many of these survive.
    pub fn after_crash(&self, mut choose: impl FnMut(&str, usize) -> usize) -> Self {
        let inner = self.0.lock();
        let survive = |(name, object): (&String, &Object)| {
            let durable = match choose(name, object.later.len()) {
                0 => &object.durable,
                count => &object.later[count - 1].1,
            };
            (name.clone(), Object { durable: durable.clone(), later: Vec::new() })
        };
        let objects = inner.objects.iter().map(survive).collect();
        Self(Arc::new(Mutex::new(Inner { objects, ..Inner::default() })))
    }

    /// Whether the pool has room for new data.
    pub fn set_full(&self, is_full: bool) {
        self.0.lock().is_full = is_full;
    }

    /// What the cluster says of the pool's space. At first it says nothing.
    pub fn set_space(&self, space: Option<PoolSpace>) {
        self.0.lock().space = space;
    }

    /// Refuses every change from now on, as for a client that is blocklisted.
    pub fn fence(&self) {
        self.0.lock().is_fenced = true;
    }

    /// Deletes the pool with all objects.
    pub fn delete_pool(&self) {
        let mut inner = self.0.lock();
        inner.objects.clear();
        inner.is_gone = true;
    }

    /// Changes that were awaited so far.
    pub fn awaited(&self) -> u64 {
        self.0.lock().awaited
    }
}

impl Inner {
    fn check_pool(&self) -> Result<()> {
        if self.is_gone { Err(Error::Gone("of the twin".to_owned())) } else { Ok(()) }
    }

    /// Applies a change, and returns its number.
    fn apply(&mut self, name: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Result<u64> {
        if self.is_fenced {
            return Err(Error::Fenced);
        }
        self.check_pool()?;
        let object = self.objects.entry(name.to_owned()).or_default();
        let before = object.now().clone();
        if let Some(guard) = guard {
            let found = before.as_ref().and_then(|content| content.attributes.get(guard.name));
            if found.map(Vec::as_slice) != Some(guard.value) {
                return Err(Error::Guarded(name.to_owned()));
            }
        }
        let after = changed(name, before.as_deref(), change)?;
        let len = |state: Option<&Content>| state.map_or(0, |content| content.len() + 1);
        if self.is_full && full == WhenFull::Fails && len(after.as_ref()) > len(before.as_deref()) {
            return Err(Error::Full);
        }
        self.changes += 1;
        object.later.push((self.changes, after.map(Arc::new)));
        Ok(self.changes)
    }
}

fn changed(name: &str, before: Option<&Content>, change: Change<'_>) -> Result<Option<Content>> {
    let content = || before.cloned().unwrap_or_default();
    Ok(match change {
        Change::Create { .. } if before.is_some() => return Err(Error::Exists(name.to_owned())),
        Change::Create { bytes } | Change::WriteFull { bytes } => Some(Content { bytes: bytes.to_vec(), ..content() }),
        Change::Write { at, bytes } => {
            let mut content = content();
            let (from, end) = (at as usize, at as usize + bytes.len());
            content.bytes.resize(content.bytes.len().max(end), 0);
            content.bytes[from..end].copy_from_slice(bytes);
            Some(content)
        }
        Change::Zero { .. } if before.is_none() => None,
        Change::Zero { at, len } => {
            let mut content = content();
            let (from, end) = (at as usize, (at + len) as usize);
            match end >= content.bytes.len() {
                true => content.bytes.truncate(from),
                false => content.bytes[from..end].fill(0),
            }
            Some(content)
        }
        Change::Remove if before.is_none() => return Err(Error::NotFound(name.to_owned())),
        Change::Remove => None,
        Change::Keys { .. } if before.is_none() => return Err(Error::NotFound(name.to_owned())),
        Change::Keys { changes, attribute } => {
            let mut content = content();
            content.change_keys(changes);
            content.attributes.extend(attribute.map(|Guard { name, value }| (name.to_owned(), value.to_vec())));
            Some(content)
        }
        Change::SetAttribute { guard: Guard { name, value } } => {
            let mut content = content();
            content.attributes.insert(name.to_owned(), value.to_vec());
            Some(content)
        }
    })
}

struct Changing {
    objects: MemoryObjects,
    object: String,
    begun: Result<u64>,
}

impl Pending for Changing {
    fn wait(&self) -> Result<()> {
        let number = self.begun.clone()?;
        let mut inner = self.objects.0.lock();
        inner.check_pool()?;
        inner.awaited += 1;
        let object = inner.objects.get_mut(&self.object).expect("a change made it");
        // An object whose last change is durable has all changes before it.
        let done = object.later.partition_point(|(later, _)| *later <= number);
        if let Some((_, state)) = object.later.drain(..done).next_back() {
            object.durable = state;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Objects for MemoryObjects {
    fn read_all(&self, reads: &mut [Read<'_>]) {
        let inner = self.0.lock();
        for read in reads {
            read.result = inner.check_pool();
            read.bytes.fill(0);
            let content = inner.objects.get(&read.object).and_then(|object| object.now().clone());
            let there = content.iter().flat_map(|content| content.bytes.get(read.at as usize..)).next();
            let there = there.unwrap_or_default();
            let len = there.len().min(read.bytes.len());
            read.bytes[..len].copy_from_slice(&there[..len]);
        }
    }

    fn begin(&self, object: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Box<dyn Pending> {
        let begun = self.0.lock().apply(object, change, guard, full);
        Box::new(Changing { objects: self.clone(), object: object.to_owned(), begun })
    }

    fn sizes(&self, objects: &[String]) -> Result<Vec<Option<u64>>> {
        let inner = self.0.lock();
        inner.check_pool()?;
        let size = |name: &String| Some(inner.objects.get(name)?.now().as_ref()?.bytes.len() as u64);
        Ok(objects.iter().map(size).collect())
    }

    fn names(&self) -> Result<Vec<String>> {
        let inner = self.0.lock();
        inner.check_pool()?;
        let there = inner.objects.iter().filter(|(_, object)| object.now().is_some());
        Ok(there.map(|(name, _)| name.clone()).collect())
    }

    fn hold(&self, _place: &str, _succeeds: Option<&str>) -> Result<Hold> {
        Ok(Hold::of_nothing())
    }

    fn holder(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn has_room(&self) -> Result<bool> {
        Ok(!self.0.lock().is_full)
    }

    fn space(&self) -> Result<Option<PoolSpace>> {
        Ok(self.0.lock().space)
    }
}

impl Standbys for MemoryObjects {
    /// For longer than any test takes.
    fn announce(&self, place: &str, _lasts: Duration) -> Result<()> {
        self.0.lock().waiting.insert(place.to_owned());
        Ok(())
    }

    fn withdraw(&self, place: &str) -> Result<()> {
        self.0.lock().waiting.remove(place);
        Ok(())
    }

    fn waiting(&self) -> Result<Vec<String>> {
        Ok(self.0.lock().waiting.iter().cloned().collect())
    }
}

impl Inner {
    fn content(&self, object: &str) -> Result<Arc<Content>> {
        self.check_pool()?;
        let content = self.objects.get(object).and_then(|object| object.now().clone());
        content.ok_or_else(|| Error::NotFound(object.to_owned()))
    }
}

impl KeyedObjects for MemoryObjects {
    fn scan_all(&self, scans: &mut [KeyScan<'_>]) {
        let inner = self.0.lock();
        for scan in scans {
            scan.result = inner.content(&scan.object).map(|content| {
                let mut rest = content.keys.range(scan.from.to_vec()..);
                let limit = scan.limit.min(SCANNED_KEYS_MAX);
                let pairs = rest.by_ref().take(limit).map(|(key, value)| (key.clone(), value.clone())).collect();
                Portion { pairs, has_more: rest.next().is_some() }
            });
        }
    }

    fn look_up_all(&self, look_ups: &mut [KeyLookUp<'_>]) {
        let inner = self.0.lock();
        for look_up in look_ups {
            look_up.result = inner.content(&look_up.object).map(|content| {
                let mut keys = look_up.keys.clone();
                keys.sort_unstable();
                keys.iter().filter_map(|key| Some((key.to_vec(), content.keys.get(*key)?.clone()))).collect()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(objects: &MemoryObjects, name: &str, at: u64, byte: u8) -> Box<dyn Pending> {
        objects.begin(name, Change::Write { at, bytes: &[byte; 4] }, None, WhenFull::Fails)
    }

    fn content(objects: &MemoryObjects, name: &str) -> Option<Vec<u8>> {
        objects.content(name, 64).unwrap()
    }

    #[test]
    fn a_crash_leaves_a_prefix_of_the_changes_of_each_object() {
        let objects = MemoryObjects::default();
        begin(&objects, "a", 0, 1).wait().unwrap();
        let _unawaited = [begin(&objects, "a", 0, 2), begin(&objects, "a", 4, 3), begin(&objects, "b", 0, 4)];
        let after = |a, b| {
            let crashed = objects.after_crash(|name, count| {
                assert_eq!(count, if name == "a" { 2 } else { 1 });
                if name == "a" { a } else { b }
            });
            (content(&crashed, "a"), content(&crashed, "b"))
        };
        assert_eq!(after(0, 1), (Some(vec![1; 4]), Some(vec![4; 4])));
        assert_eq!(after(1, 0), (Some(vec![2; 4]), None));
        assert_eq!(after(2, 0).0.unwrap(), [2, 2, 2, 2, 3, 3, 3, 3]);
    }

    #[test]
    fn what_was_awaited_survives_with_the_changes_before_it() {
        let objects = MemoryObjects::default();
        let _first = begin(&objects, "a", 0, 1);
        begin(&objects, "a", 4, 2).wait().unwrap();
        let crashed = objects.after_crash(|_, count| {
            assert_eq!(count, 0);
            0
        });
        assert_eq!(content(&crashed, "a").unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn a_full_pool_takes_what_does_not_grow_and_what_uses_the_reserve() {
        let objects = MemoryObjects::default();
        begin(&objects, "a", 0, 1).wait().unwrap();
        objects.set_full(true);
        assert!(!objects.has_room().unwrap());
        assert_eq!(begin(&objects, "b", 0, 1).wait(), Err(Error::Full));
        begin(&objects, "a", 0, 2).wait().unwrap();
        let change = Change::Write { at: 0, bytes: &[1; 4] };
        objects.begin("b", change, None, WhenFull::UsesReserve).wait().unwrap();
        objects.change("a", Change::Remove).unwrap();
        assert_eq!(objects.names().unwrap(), ["b"]);
    }
}
