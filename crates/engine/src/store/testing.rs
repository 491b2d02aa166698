//! Volumes for tests, the crash explorer and the fuzzer: on any devices, without threads, driven by hand. Only in
//! builds with the feature `testing`.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Store, facts};
#[cfg(doc)]
use crate::Error;
use crate::sync::{AtomicBool, LockRank, Mutex};
use crate::volume::backend::{Backend, TestHooks};
use crate::volume::files;
use crate::volume::open::{recover, settings_of};
use crate::volume::steps::BackgroundStep;
use crate::{Blocks, OpenOptions, Profile, Result};

impl Store {
    /// Makes an empty volume of `data` blocks on a medium whose devices hold zeros.
    ///
    /// `data` counts the label, which takes block 0. The devices of `medium` must have the sizes that go with it; see
    /// [`Backend::in_memory`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::NoSpace`] or [`Error::Corrupt`] if the data area or the record store cannot be written.
    pub fn format_on(backend: &Backend, data: Blocks) -> Result<()> {
        files::make_on(backend, data)
    }

    /// Opens a volume on a medium, recovers its last commit and starts no thread: nothing happens except the caller's
    /// actions, commits and [`BackgroundStep`]s included.
    ///
    /// Between two commits at most an eighth of the log may be published, and [`Store::barrier`] is never answered: use
    /// [`Store::commit`].
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`]: a setting in `options` is unknown or out of its range.
    /// - [`Error::Corrupt`]: the checkpoint, the log or the block table is missing, damaged, too short or belongs to
    ///   another volume.
    /// - [`Error::Io`], [`Error::NoSpace`]: a device or the record store failed.
    pub fn open_on(backend: Backend, options: &OpenOptions) -> Result<Arc<Store>> {
        Self::open_driven(backend, options, TestHooks::default())
    }

    /// Like [`Store::open_on`], with a driver that commits between the publications of one operation, or that splits
    /// changes of ranges into several groups sooner.
    pub fn open_driven(mut backend: Backend, options: &OpenOptions, driver: TestHooks) -> Result<Arc<Store>> {
        let (volume_id, secret, hold) = (backend.volume_id, backend.secret, backend.hold.take());
        let settings = settings_of(options, Profile::default(), None)?;
        let volume = Arc::new(recover(backend, options, settings, driver)?);
        Ok(Arc::new(Self {
            volume,
            volume_id,
            secret,
            path: PathBuf::new(),
            threads: Mutex::new(LockRank::Thread, None),
            is_closed: AtomicBool::new(false),
            // It has no superblock.
            allows_clones: Mutex::new(LockRank::Tuning, true),
            facts: facts(options, Profile::default()),
            hold,
        }))
    }

    /// Runs once a step that a background thread runs repeatedly. Returns whether there was something to do.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume takes no changes.
    /// - [`Error::Io`], [`Error::Corrupt`], [`Error::NoSpace`]: the step failed. After a failed checkpoint the volume
    ///   is read-only.
    pub fn run(&self, step: BackgroundStep) -> Result<bool> {
        self.volume.run(step)
    }
}
