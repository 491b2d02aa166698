//! The part of the interface for volumes whose superblock lies in a cluster.

use std::path::Path;

use crate::volume::cluster_superblock::{self, ClusterName, Localized};
use crate::volume::head_watch::HeadWatch;
use crate::volume::seal::SealingKey;
use crate::volume::superblock_file;
use crate::{DataPlace, ObjectAccess, Result, Store, Unfinished};

impl Store {
    /// Makes the directory of a volume on this machine agree with the superblock in its cluster: makes it if it is
    /// missing or that of another volume, and replaces an older superblock. Volumes whose records lie in their directory
    /// stay as they are. Nothing of the volume is opened.
    ///
    /// # Errors
    ///
    /// - [`crate::Error::Invalid`]: there is no such volume, or the key is missing or another; the message says what to
    ///   do.
    /// - [`crate::Error::InTheWay`]: the directory has something that is not advice.
    /// - [`crate::Error::InUse`]: another process has the volume open that the directory is of.
    /// - [`crate::Error::Corrupt`], [`crate::Error::NewerFormat`]: the superblock in the cluster cannot be used.
    /// - [`crate::Error::Io`], [`crate::Error::NoSpace`], [`crate::Error::Exposed`]: the cluster cannot be reached, or
    ///   the directory cannot be used.
    pub fn localize(directory: &Path, name: ClusterName<'_>) -> Result<Localized> {
        cluster_superblock::localize(directory, name)
    }

    /// Where the objects of a volume are. None: it has none.
    ///
    /// # Errors
    ///
    /// As [`Store::profile_of`].
    pub fn access_of(volume: &Path) -> Result<Option<ObjectAccess>> {
        Ok(match superblock_file::read(volume)?.data {
            DataPlace::Objects(access) => Some(access),
            DataPlace::File | DataPlace::Device(_) => None,
        })
    }

    /// Watches from outside who has a volume in objects, and who waits for it.
    ///
    /// # Errors
    ///
    /// As [`Store::profile_of`]; [`crate::Error::Invalid`]: no other machine can have the volume;
    /// [`crate::Error::Io`]: the cluster cannot be reached.
    pub fn watch_head(volume: &Path) -> Result<HeadWatch> {
        HeadWatch::of(volume)
    }

    /// Whether a volume has its records in objects and no superblock there, because an early version made it. Asks the
    /// cluster.
    ///
    /// # Errors
    ///
    /// As [`Store::profile_of`], and [`crate::Error::Io`]: the cluster cannot be reached.
    pub fn wants_superblock_in_cluster(volume: &Path) -> Result<bool> {
        cluster_superblock::is_wanted(volume)
    }

    /// Puts the superblock of a volume that nobody has open into its cluster, with the secret sealed by `key`. From then
    /// on other machines can open the volume. Does nothing for a volume whose records lie in its directory.
    ///
    /// `nonce` must be random.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn publish_superblock(volume: &Path, key: &SealingKey, nonce: [u8; 24]) -> Result<()> {
        cluster_superblock::publish(volume, key, nonce)
    }

    /// Like [`Unfinished::finish`]. Then publishes the superblock, as [`Store::publish_superblock`]. No store of the
    /// volume may be open.
    ///
    /// # Errors
    ///
    /// As both.
    pub fn finish_in_cluster(unfinished: Unfinished, key: &SealingKey, nonce: [u8; 24]) -> Result<()> {
        cluster_superblock::finish(unfinished, key, nonce)
    }
}
