//! The secret of a volume, sealed for its cluster with a key that stays outside of it.
//!
//! Whoever may read the objects then does not know the secret, so they cannot craft blocks that are taken for equal.
//! The seal also proves that secret and identity belong together.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

use crate::format::sealed_superblock::{NONCE_BYTES, SEALED_BYTES, SealedSuperblock};
use crate::format::superblock::Superblock;
use crate::hash::Hasher;
use crate::{Error, Result};

/// What `derive_key` of BLAKE3 gets for the id of a key.
const ID_CONTEXT: &str = "oncefs sealing key to its id, version 1";

/// A key with which secrets are sealed, and the file that it is from.
#[derive(Clone)]
pub struct SealingKey {
    bytes: [u8; 32],
    file: String,
}

/// Leaves out the key, which no message may show.
impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey").field("file", &self.file).finish_non_exhaustive()
    }
}

impl SealingKey {
    /// A key of 32 random bytes. `file` is for messages.
    pub fn new(bytes: [u8; 32], file: impl Into<String>) -> Self {
        Self { bytes, file: file.into() }
    }

    /// The file that it is from.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What tells it from other keys, and says nothing about it.
    fn id(&self) -> [u8; 8] {
        *Hasher::derived_key(&self.bytes, ID_CONTEXT).first_chunk().expect("32 bytes")
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(self.bytes))
    }
}

/// A superblock with its secret sealed. `nonce`: random, and never used before with this key.
pub fn seal(superblock: &Superblock, key: &SealingKey, nonce: [u8; NONCE_BYTES], machine: String) -> SealedSuperblock {
    let payload = Payload { msg: &superblock.secret, aad: &superblock.volume_id };
    let sealed = key.cipher().encrypt(&XNonce::from(nonce), payload).expect("32 bytes are not too long");
    let sealed: [u8; SEALED_BYTES] = sealed.try_into().expect("a proof of 16 bytes comes with the secret");
    let superblock = Superblock { secret: [0; 32], ..superblock.clone() };
    SealedSuperblock { superblock, key_id: key.id(), nonce, sealed, machine, key_file: key.file.clone() }
}

/// The superblock with its secret. `key`: what this machine has at `looked_at`; `volume` is for messages.
///
/// # Errors
///
/// [`Error::Invalid`]: the key is missing or another. [`Error::Corrupt`]: the key is right, and what is sealed changed.
pub fn unseal(found: &SealedSuperblock, key: Option<&SealingKey>, looked_at: &str, volume: &str) -> Result<Superblock> {
    let SealedSuperblock { superblock, key_id, nonce, sealed, machine, key_file } = found;
    let way_out = format!(
        "copy {key_file} of the machine {machine} to {looked_at} on this one (mode 0600), or mount with --key-file and \
         a copy of it"
    );
    let Some(key) = key else {
        return Err(Error::Invalid(format!(
            "the secret of {volume} is sealed, and there is no key {looked_at}: {way_out}"
        )));
    };
    if key.id() != *key_id {
        let text = format!("{looked_at} is not the key with which the secret of {volume} is sealed: {way_out}");
        return Err(Error::Invalid(text));
    }
    let payload = Payload { msg: sealed, aad: &superblock.volume_id };
    let secret = key.cipher().decrypt(&XNonce::from(*nonce), payload).ok().and_then(|secret| secret.try_into().ok());
    let changed =
        || Error::corrupt(format!("the sealed secret of {volume}"), "its key does not open it: it was changed");
    Ok(Superblock { secret: secret.ok_or_else(changed)?, ..superblock.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataPlace, Profile};

    fn sample() -> Superblock {
        Superblock {
            volume_id: [1; 16],
            secret: *b"a secret of exactly thirty-two b",
            log_bytes: 64 << 20,
            data: DataPlace::File,
            profile: Profile::Desktop,
            copies: None,
            has_clones: true,
            has_fragments: true,
        }
    }

    fn key(byte: u8) -> SealingKey {
        SealingKey::new([byte; 32], "/etc/oncefs/keys/data/home.key")
    }

    fn sealed() -> SealedSuperblock {
        seal(&sample(), &key(5), [6; NONCE_BYTES], "head".to_owned())
    }

    fn refusal(found: &SealedSuperblock, key: Option<&SealingKey>) -> String {
        unseal(found, key, "/here/home.key", "rados://data/home").unwrap_err().to_string()
    }

    #[test]
    fn a_secret_comes_back_with_its_key_and_is_not_in_what_the_cluster_has() {
        let found = sealed();
        assert_eq!(unseal(&found, Some(&key(5)), "/here", "v").unwrap(), sample());
        let bytes = found.encode().unwrap();
        assert!(!bytes.windows(8).any(|part| sample().secret.windows(8).any(|secret| secret == part)));
        let other = seal(&sample(), &key(5), [7; NONCE_BYTES], "head".to_owned());
        assert_ne!(found.sealed, other.sealed, "each nonce gives another seal");
    }

    /// An implementation from the definitions, in another language, gave the same.
    #[test]
    fn a_sealed_secret_has_its_golden_bytes() {
        let sealed = sealed();
        assert_eq!(sealed.key_id, [188, 142, 39, 41, 76, 151, 26, 165]);
        assert_eq!(sealed.sealed[..16], [161, 113, 17, 87, 82, 46, 134, 17, 36, 79, 67, 101, 232, 42, 36, 32]);
        assert_eq!(sealed.sealed[16..32], [235, 65, 161, 106, 50, 160, 33, 128, 11, 163, 158, 73, 0, 207, 194, 206]);
        assert_eq!(sealed.sealed[32..], [190, 239, 177, 33, 240, 70, 211, 21, 197, 169, 180, 204, 196, 52, 95, 220]);
    }

    #[test]
    fn a_missing_or_wrong_key_says_what_to_copy_from_which_machine() {
        for told in [refusal(&sealed(), None), refusal(&sealed(), Some(&key(9)))] {
            assert!(
                told.contains("copy /etc/oncefs/keys/data/home.key of the machine head to /here/home.key"),
                "{told}"
            );
            assert!(told.contains("--key-file"), "{told}");
        }
        assert!(refusal(&sealed(), None).contains("there is no key /here/home.key"));
        assert!(refusal(&sealed(), Some(&key(9))).contains("is not the key"));
    }

    #[test]
    fn what_was_changed_or_is_of_another_volume_is_not_opened() {
        for bit in 0..SEALED_BYTES * 8 {
            let mut found = sealed();
            found.sealed[bit / 8] ^= 1 << (bit % 8);
            assert!(refusal(&found, Some(&key(5))).contains("it was changed"), "bit {bit}");
        }
        let mut found = sealed();
        found.superblock.volume_id = [2; 16];
        assert!(refusal(&found, Some(&key(5))).contains("it was changed"));
    }

    #[test]
    fn no_message_shows_the_key() {
        let shown = format!("{:?}", SealingKey::new(*b"a key that has thirty-two bytes.", "/etc/k"));
        assert!(shown.contains("/etc/k") && !shown.contains("97, 32"), "{shown}");
    }
}
