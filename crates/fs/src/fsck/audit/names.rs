//! The first part of an audit: all names, in the order of their directories.

use crate::format::dirent::{self, Dirent, Names, Place};
use crate::fsck::audit::records::Records;
use crate::fsck::audit::{Audit, NamePhase};
use crate::fsck::fault::Fault;
use crate::{FileKind, Ino, Result};

/// A name in the form in which it is sorted: directory, place, kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameOf {
    pub parent: Ino,
    pub place: Place,
    pub kind: FileKind,
}

impl NameOf {
    /// The item to sort, with the inode that the name points to. The low eight bits of a place are zero, which leaves room
    /// for the kind.
    fn item(self, ino: Ino) -> [u64; 3] {
        debug_assert_eq!(self.place.number() & 0xFF, 0, "inode {}: place {:#x}", ino.0, self.place.number());
        [ino.0, self.parent.0, self.place.number() | u64::from(self.kind.mode_bits() >> 12)]
    }

    /// The inode and the name in an item.
    pub fn of_item([ino, parent, place]: [u64; 3]) -> (Ino, Self) {
        let kind = FileKind::from_mode(((place & 0xFF) as u32) << 12).expect("`item` stored the bits of a kind");
        (Ino(ino), Self { parent: Ino(parent), place: Place::of_cookie(place), kind })
    }
}

impl Audit<'_> {
    /// Checks (2) for places. Passes the names on for comparison with inodes.
    pub fn names(&mut self) -> Result<()> {
        let mut records = Records::of(self.store, b'd');
        let mut directory = [0; 3];
        while let Some(parent) = records.next_ino()? {
            let Some((key, value)) = records.pop()? else { break };
            if directory[0] != parent.0 {
                self.end_directory(directory)?;
                directory = [parent.0, 0, 0];
                (self.progress)(NamePhase::Names, parent.0, self.lease);
            }
            let place = dirent::parse_key(&key).expect("`next_ino` found a well-formed key").1;
            match Names::decode(parent, &value) {
                Ok(names) => self.names_at(parent, place, &names, &mut directory)?,
                Err(error) => (self.found)(Fault::Record { key, error: error.to_string() }),
            }
        }
        std::mem::take(&mut records.unknown).into_iter().for_each(|key| (self.found)(Fault::Key { key }));
        self.end_directory(directory)
    }

    fn names_at(&mut self, parent: Ino, place: Place, names: &Names, directory: &mut [u64; 3]) -> Result<()> {
        if names.has_overflowed() {
            self.passed.push([parent.0, place.number(), names.passed().into()])?;
        }
        for Dirent { ino, kind, name, .. } in names.iter() {
            self.place_of(parent, place, name)?;
            directory[1] += 1;
            directory[2] += u64::from(*kind == FileKind::Directory);
            self.targets.push(NameOf { parent, place, kind: *kind }.item(*ino))?;
        }
        Ok(())
    }

    /// Checks that a name is at one of its places. The places before it should count it.
    fn place_of(&mut self, parent: Ino, at: Place, name: &[u8]) -> Result<()> {
        let mut passed = Vec::new();
        for place in self.placement.places(parent, name) {
            if place == at {
                for place in passed {
                    self.passed.push([parent.0, place, 0])?;
                }
                return Ok(());
            }
            passed.push(place.number());
        }
        (self.found)(Fault::Place { parent, place: at.number(), name: name.to_vec() });
        Ok(())
    }

    /// Checks (2) for counts of names that passed a place.
    pub fn passed(&mut self) -> Result<()> {
        let mut sorted = std::mem::take(&mut self.passed).sorted()?;
        while let Some([parent, place, _]) = sorted.peek()? {
            let (mut stored, mut found) = (0, 0_u64);
            while let Some([_, _, count]) = sorted.peek()?.filter(|item| item[..2] == [parent, place]) {
                sorted.pop()?;
                found += u64::from(count == 0);
                stored = stored.max(count as u32);
            }
            let found = u32::try_from(found).expect("inode numbers and memory end before 2^32 names pass a place");
            if stored != found {
                (self.found)(Fault::Passed { parent: Ino(parent), place, stored, found });
            }
        }
        Ok(())
    }

    fn end_directory(&mut self, directory: [u64; 3]) -> Result<()> {
        if directory[1] > 0 {
            self.directories.push(directory)?;
        }
        Ok(())
    }
}
