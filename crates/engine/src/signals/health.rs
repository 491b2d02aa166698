//! Whether a volume takes changes, and if not, why.

use crate::sync::{LockRank, Mutex};
use crate::{Error, Result};

/// Tells whether changes are possible. They are not on a volume that was opened read-only, nor on one that failed.
pub struct Health {
    is_read_only: bool,
    failure: Mutex<Option<String>>,
}

impl Health {
    /// A sound volume, opened read-only or not.
    pub fn new(is_read_only: bool) -> Self {
        Self { is_read_only, failure: Mutex::new(LockRank::Leaf, None) }
    }

    /// Whether the volume was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Refuses changes to a volume that cannot take them.
    pub fn usable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::ReadOnly("it was opened read-only".to_owned()));
        }
        match self.failure() {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly(why)),
        }
    }

    /// Why the volume became read-only.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Makes the volume read-only until it is opened again. The first reason stays.
    pub fn fail(&self, error: &Error) {
        let mut failure = self.failure.lock();
        if failure.is_none() {
            log::error!("the volume is read-only from now on: {error}; unmount, fix the cause, mount again");
            *failure = Some(error.to_string());
        }
    }

    /// Refuses all changes from now on: the volume was closed.
    pub fn end(&self) {
        self.failure.lock().get_or_insert_with(|| "it was closed".to_owned());
    }

    /// Logs a failure of background work. On a failed volume all of it fails, and `fail` has logged the reason.
    pub fn tell(&self, what: &str, error: &Error) {
        if self.failure().is_none() {
            log::error!("{what}: {error}");
        }
    }
}
