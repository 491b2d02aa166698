//! The number of a head, by which changes of objects are guarded: an object with a later epoch takes no change of an
//! earlier one.

use oncefs_rados::{Change, Error, Guard, Objects, Pending, WhenFull};

/// The attribute of a guarded object.
const ATTRIBUTE: &str = "epoch";

/// The epoch of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The value of the attribute.
    pub fn bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The guard with that value.
    pub fn guard(bytes: &[u8; 8]) -> Guard<'_> {
        Guard { name: ATTRIBUTE, value: bytes }
    }

    /// Begins this epoch in each object, and makes those that are missing. From then on none takes a change that an
    /// earlier epoch guards, also one that is under way already.
    ///
    /// # Errors
    ///
    /// What a change may fail with. Some objects may have the new epoch then.
    pub fn begin_in(self, objects: &dyn Objects, names: &[String]) -> Result<(), Error> {
        let bytes = self.bytes();
        let change = Change::SetAttribute { guard: Self::guard(&bytes) };
        // In the reserve: a volume of a full pool can be opened, so that files can be deleted.
        let begun: Vec<_> = names.iter().map(|name| objects.begin(name, change, None, WhenFull::UsesReserve)).collect();
        land(&begun)
    }
}

/// Waits for all changes, also after one failed: the caller frees the lock after an error, and none may be under way
/// then.
pub fn land(begun: &[Box<dyn Pending>]) -> Result<(), Error> {
    let results: Vec<_> = begun.iter().map(|change| change.wait()).collect();
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    struct Waited(Arc<AtomicU32>, Result<(), Error>);

    impl Pending for Waited {
        fn wait(&self) -> Result<(), Error> {
            self.0.fetch_add(1, Relaxed);
            self.1.clone()
        }

        fn is_done(&self) -> bool {
            false
        }
    }

    #[test]
    fn all_changes_are_awaited_before_the_first_error_returns() {
        let waited = Arc::new(AtomicU32::new(0));
        let begun = [Ok(()), Err(Error::Full), Err(Error::Fenced), Ok(())]
            .map(|result| -> Box<dyn Pending> { Box::new(Waited(waited.clone(), result)) });
        assert_eq!(land(&begun), Err(Error::Full));
        assert_eq!(waited.load(Relaxed), 4);
    }
}
