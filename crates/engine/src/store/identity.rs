//! The part of the interface that tells volumes apart: a volume's identity, and keys from its secret.

use std::sync::Arc;

use crate::hash::{Hasher, TAG_SECRET_BYTES};
use crate::objects::held_lease::HeldLease;
use crate::{Error, Result, Store};

impl Store {
    /// The volume's identity, which never changes.
    pub fn volume_id(&self) -> [u8; 16] {
        self.volume_id
    }

    /// The lease of a volume in objects, without which no request may be answered. `None`: no other machine can take the
    /// volume over.
    pub fn lease(&self) -> Option<Arc<HeldLease>> {
        self.hold.as_ref().and_then(|hold| hold.lease())
    }

    /// Lets another machine open a volume in objects, although this value lives on: ends the lease, and gives up the lock
    /// in the cluster. The caller has closed the volume without an error, answers no request any more, and has none under
    /// way. Without a lease there is nothing to give up.
    ///
    /// # Errors
    ///
    /// The lease is lost, or what was to be noted in the cluster, or unlocked there, was not: the next head may wait.
    ///
    /// A crash before or in it leaves the lock, and the next head waits for the end of the lease; the lock without the
    /// lease's last record does not occur, because that record comes first.
    pub fn let_go(&self) -> Result<()> {
        let (Some(hold), Some(lease)) = (&self.hold, self.lease()) else { return Ok(()) };
        if lease.end().is_some() {
            return Err(Error::io("giving up the volume", std::io::Error::other("its lease was lost before")));
        }
        // The next head does not fence this process.
        self.volume.base.health.end();
        hold.let_go()
    }

    /// The secret of tags, for [`crate::tag_with`]. It tells nothing about fingerprints.
    pub fn tag_secret(&self) -> [u8; TAG_SECRET_BYTES] {
        *self.volume.base.hasher.tag_secret()
    }

    /// A key for the purpose that `context` names, derived from the volume's secret. Other contexts and other volumes
    /// have other keys, and the secret cannot be derived from any of them.
    pub fn derived_key(&self, context: &str) -> [u8; 32] {
        Hasher::derived_key(&self.secret, context)
    }
}
