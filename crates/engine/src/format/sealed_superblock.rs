//! The superblock as a cluster has it: without the secret, which lies sealed beside it, and with the name of the key.

use super::superblock::{self, Superblock};
use super::{at, checksum, padded};
use crate::{Error, Result};

/// Size of the content in bytes.
pub const BYTES: usize = 4528;
/// Size of a nonce.
pub const NONCE_BYTES: usize = 24;
/// Size of a sealed secret: the secret, and the proof that nobody changed it.
pub const SEALED_BYTES: usize = 48;
const MAGIC: &[u8; 16] = b"oncefs sealed\n\0\0";
/// The only version: XChaCha20-Poly1305.
const VERSION: u32 = 1;
const VERSION_AT: usize = 16;
const KEY_ID_AT: usize = 24;
const NONCE_AT: usize = 32;
const SEALED_AT: usize = 56;
const MACHINE_AT: usize = 104;
const KEY_FILE_AT: usize = 168;
const SUPERBLOCK_AT: usize = 424;
const CHECKSUM_AT: usize = 4520;
const SEED: u64 = 0x7365_616C;
const _: () = assert!(SUPERBLOCK_AT + superblock::BYTES == CHECKSUM_AT && CHECKSUM_AT + 8 == BYTES);
const _: () = assert!(KEY_ID_AT + 8 == NONCE_AT && NONCE_AT + NONCE_BYTES == SEALED_AT);
const _: () = assert!(SEALED_AT + SEALED_BYTES == MACHINE_AT);

/// A superblock whose secret is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSuperblock {
    /// The superblock. Its secret is all zeros.
    pub superblock: Superblock,
    /// What tells the key from others.
    pub key_id: [u8; 8],
    /// The nonce with which the secret was sealed.
    pub nonce: [u8; NONCE_BYTES],
    /// The sealed secret.
    pub sealed: [u8; SEALED_BYTES],
    /// The machine that sealed it, for messages. At most 64 bytes are kept.
    pub machine: String,
    /// The file of the key on that machine, for messages. At most 256 bytes are kept.
    pub key_file: String,
}

impl SealedSuperblock {
    /// The content of the object.
    ///
    /// # Errors
    ///
    /// As [`Superblock::encode`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        assert_eq!(self.superblock.secret, [0; 32], "a secret goes to a cluster only sealed");
        let mut bytes = vec![0; BYTES];
        bytes[..VERSION_AT].copy_from_slice(MAGIC);
        bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[KEY_ID_AT..NONCE_AT].copy_from_slice(&self.key_id);
        bytes[NONCE_AT..SEALED_AT].copy_from_slice(&self.nonce);
        bytes[SEALED_AT..MACHINE_AT].copy_from_slice(&self.sealed);
        padded::put(&mut bytes[MACHINE_AT..KEY_FILE_AT], &self.machine);
        padded::put(&mut bytes[KEY_FILE_AT..SUPERBLOCK_AT], &self.key_file);
        bytes[SUPERBLOCK_AT..CHECKSUM_AT].copy_from_slice(&self.superblock.encode()?);
        let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes the content of an object; messages name `volume`. None: the object is empty, because a crash came
    /// before its first content.
    ///
    /// # Errors
    ///
    /// [`Error::NewerFormat`] or [`Error::Corrupt`].
    pub fn decode(bytes: &[u8], volume: &str) -> Result<Option<Self>> {
        let damaged = |detail: &str| Error::corrupt(format!("the superblock of {volume} in its cluster"), detail);
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() < KEY_ID_AT || &bytes[..VERSION_AT] != MAGIC {
            return Err(damaged("it is none"));
        }
        let version = at::u32(bytes, VERSION_AT);
        if version > VERSION {
            return Err(Error::NewerFormat { found: version, known: VERSION });
        }
        if bytes.len() != BYTES {
            return Err(damaged("its length is wrong"));
        }
        if at::u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT], SEED) {
            return Err(damaged("its checksum does not match"));
        }
        let superblock = Superblock::decode(&bytes[SUPERBLOCK_AT..CHECKSUM_AT], volume)?;
        if superblock.secret != [0; 32] {
            return Err(damaged("it has a secret that is not sealed"));
        }
        Ok(Some(Self {
            superblock,
            key_id: bytes[KEY_ID_AT..NONCE_AT].try_into().expect("eight bytes"),
            nonce: bytes[NONCE_AT..SEALED_AT].try_into().expect("twenty-four bytes"),
            sealed: bytes[SEALED_AT..MACHINE_AT].try_into().expect("forty-eight bytes"),
            machine: padded::text(&bytes[MACHINE_AT..KEY_FILE_AT]),
            key_file: padded::text(&bytes[KEY_FILE_AT..SUPERBLOCK_AT]),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataPlace, ObjectAccess, Profile};

    fn sample() -> SealedSuperblock {
        let access = ObjectAccess::parse("rados://data/home?id=oncefs&records=100000").unwrap();
        let superblock = Superblock {
            volume_id: [1; 16],
            secret: [0; 32],
            log_bytes: 64 << 20,
            data: DataPlace::Objects(access),
            profile: Profile::Desktop,
            copies: None,
            has_clones: true,
            has_fragments: true,
        };
        SealedSuperblock {
            superblock,
            key_id: [2; 8],
            nonce: [3; NONCE_BYTES],
            sealed: [4; SEALED_BYTES],
            machine: "head".to_owned(),
            key_file: "/etc/oncefs/keys/data/home.key".to_owned(),
        }
    }

    #[test]
    fn a_sealed_superblock_has_its_golden_bytes_and_comes_back() {
        let bytes = sample().encode().unwrap();
        assert_eq!(&bytes[..24], b"oncefs sealed\n\0\0\x01\0\0\0\0\0\0\0");
        assert_eq!(bytes[24..32], [2; 8]);
        assert_eq!(bytes[32..56], [3; 24]);
        assert_eq!(bytes[56..104], [4; 48]);
        assert_eq!(&bytes[104..109], b"head\0");
        assert_eq!(&bytes[168..199], b"/etc/oncefs/keys/data/home.key\0");
        assert_eq!(&bytes[424..440], b"oncefs volume\n\0\0");
        assert_eq!(bytes[464..496], [0; 32], "the place of the secret");
        assert_eq!(SealedSuperblock::decode(&bytes, "v").unwrap(), Some(sample()));
        assert_eq!(SealedSuperblock::decode(&[], "v").unwrap(), None);
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_damage() {
        let good = sample().encode().unwrap();
        for bit in 0..BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let is_of_version = (VERSION_AT..VERSION_AT + 4).contains(&(bit / 8));
            match SealedSuperblock::decode(&bad, "v") {
                Err(Error::Corrupt { .. }) => {}
                Err(Error::NewerFormat { .. }) if is_of_version => {}
                other => panic!("bit {bit}: {other:?}"),
            }
        }
        for len in 1..BYTES {
            assert!(SealedSuperblock::decode(&good[..len], "v").is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_newer_version_and_an_open_secret_are_refused() {
        let changed = |from: usize, new: &[u8]| {
            let mut bytes = sample().encode().unwrap();
            bytes[from..from + new.len()].copy_from_slice(new);
            let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
            bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
            SealedSuperblock::decode(&bytes, "v")
        };
        assert!(matches!(changed(VERSION_AT, &[2]), Err(Error::NewerFormat { found: 2, known: 1 })));
        let open = Superblock { secret: [7; 32], ..sample().superblock }.encode().unwrap();
        let refused = changed(SUPERBLOCK_AT, &open).unwrap_err().to_string();
        assert!(refused.contains("not sealed"), "{refused}");
    }
}
