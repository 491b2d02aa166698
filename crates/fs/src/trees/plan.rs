//! The plan of a copy's next step: some names of a directory with all that belongs to their inodes, read without a
//! lock.

use crate::attributes::policy::Overrides;
use crate::format::inode::{self, InodeRecord};
use crate::format::{symlink, xattr};
use crate::trees::snapshot::SNAPSHOT_ATTRIBUTE;
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// Attributes copied along with their inode. More are copied after it.
const ATTRIBUTES_ALONG_MAX: u32 = 8;
/// Bytes of attributes copied along with their inode.
const ATTRIBUTE_BYTES_ALONG_MAX: usize = 2 << 10;

/// Names of attributes with their values.
pub(super) type NamedValues = Vec<(Vec<u8>, Vec<u8>)>;

/// A name in a directory.
pub(super) struct Listed {
    pub name: Vec<u8>,
    pub ino: Ino,
    pub kind: FileKind,
    pub cookie: u64,
}

/// An inode to copy.
pub(super) struct Planned {
    pub source: Ino,
    /// The source's record, as it was read.
    pub record: InodeRecord,
    /// Of a symbolic link.
    pub target: Option<Vec<u8>>,
    pub attributes: NamedValues,
    /// Whether there are more attributes than fit in here, and none of them is here.
    pub has_more_attributes: bool,
}

impl Planned {
    /// The overrides of policies among the attributes.
    pub fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::default();
        self.attributes.iter().for_each(|(name, value)| overrides.take_in(name, Some(value)));
        overrides
    }

    /// About the bytes that its records take in a publication.
    pub fn bytes(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(|(name, value)| 32 + name.len() + value.len()).sum();
        200 + self.target.as_ref().map_or(0, Vec::len) + attributes
    }

    /// Whether the content is copied after the inode was made.
    pub fn has_content(&self) -> bool {
        self.record.kind == FileKind::Regular && self.record.blocks > 0
    }

    /// Whether other names may stand for the same inode.
    pub fn has_other_names(&self) -> bool {
        !self.record.is_directory() && self.record.nlink > 1
    }
}

impl FileSystem {
    /// The names of a directory after a cookie. Fewer than `names_max`: these are all.
    pub(super) fn names_after(&self, directory: Ino, cookie: u64, names_max: usize) -> Result<Vec<Listed>> {
        let mut names = Vec::new();
        self.list_names(directory, cookie, &mut |entry| {
            names.push(Listed { name: entry.name.to_vec(), ino: entry.ino, kind: entry.kind, cookie: entry.cookie });
            names.len() < names_max
        })?;
        Ok(names)
    }

    /// Reads an inode that is to be copied. None: it was deleted meanwhile.
    pub(super) fn plan_copy(&self, ino: Ino, kind: FileKind) -> Result<Option<Planned>> {
        let record = match kind {
            // The copy of its content uses the inode too, so it is read once.
            FileKind::Regular => match self.inode(ino) {
                Err(Error::Stale) => return Ok(None),
                inode => inode?.lock().clone(),
            },
            // The store has the newest record, and the cache is for inodes in use.
            _ => match self.store.get(&inode::key(ino))? {
                Some(bytes) => InodeRecord::decode(ino, &bytes)?,
                None => return Ok(None),
            },
        };
        let mut target = None;
        if record.kind == FileKind::Symlink {
            match self.store.get(&symlink::key(ino))? {
                Some(bytes) => target = Some(symlink::decode(ino, &bytes)?),
                None if self.store.get(&inode::key(ino))?.is_none() => return Ok(None),
                None => {
                    let detail = "its target is missing; run oncefs fsck";
                    return Err(Error::corrupt(format!("symbolic link {}", ino.0), detail));
                }
            }
        }
        let along = self.attributes_along(ino, record.xattrs)?;
        let has_more_attributes = along.is_none();
        Ok(Some(Planned { source: ino, record, target, attributes: along.unwrap_or_default(), has_more_attributes }))
    }

    /// The attributes of an inode. None: they are too many, or too large.
    fn attributes_along(&self, ino: Ino, count: u32) -> Result<Option<NamedValues>> {
        if count == 0 {
            return Ok(Some(Vec::new()));
        }
        if count > ATTRIBUTES_ALONG_MAX {
            return Ok(None);
        }
        let (from, to) = xattr::range(ino);
        let records = self.store.scan(&from, &to, ATTRIBUTES_ALONG_MAX as usize + 1)?;
        let bytes: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
        if records.len() > ATTRIBUTES_ALONG_MAX as usize || bytes > ATTRIBUTE_BYTES_ALONG_MAX {
            return Ok(None);
        }
        records
            .iter()
            .filter_map(|(key, value)| copied_attribute(ino, key, value).transpose())
            .collect::<Result<_>>()
            .map(Some)
    }
}

/// The name and the value of an attribute that is copied. None: it belongs to the snapshot itself.
pub(super) fn copied_attribute(ino: Ino, key: &[u8], value: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Some((_, name)) = xattr::parse_key(key) else { return Ok(None) };
    if name == SNAPSHOT_ATTRIBUTE {
        return Ok(None);
    }
    Ok(Some((name.to_vec(), xattr::decode(ino, value)?)))
}
