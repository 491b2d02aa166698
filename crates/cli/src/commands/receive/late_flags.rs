//! The flags that forbid changes: noted as their files arrive, and set when the whole tree is there.
//!
//! They are noted in a file beside the tree, because a stream may have any number of them. Each note is the flags in
//! hexadecimal, a space, the path below the top, and a zero.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;

use oncefs_stream::{Flags, TreePath};

use crate::files::flags;
use crate::files::held::Held;

/// The notes of one tree.
pub struct LateFlags {
    file: File,
}

impl LateFlags {
    /// The notes in a file that is open for reading and writing. A note that a crash cut short is cut off: its entry
    /// arrived after the last saved position, so it comes again.
    pub fn of(mut file: File) -> io::Result<Self> {
        let mut end = 0;
        each(&mut file, &mut |note, _, _| {
            end += note as u64;
            Ok(())
        })?;
        file.set_len(end)?;
        Ok(Self { file })
    }

    /// Notes the flags of an entry that has arrived. A second note of the same entry does no harm.
    pub fn note(&mut self, path: &TreePath, flags: Flags) -> io::Result<()> {
        if flags.forbidding().is_empty() {
            return Ok(());
        }
        let names: Vec<&[u8]> = path.names().iter().map(|name| name.bytes()).collect();
        let mut note = format!("{:x} ", flags.bits()).into_bytes();
        note.extend(names.join(&b'/'));
        note.push(0);
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(&note)
    }

    /// Sets the flags of all entries that are there, but not those of the top, which must be given its name first.
    /// Returns the flags of the top.
    pub fn set(&mut self, top: &Held) -> io::Result<Flags> {
        let mut of_top = Flags::default();
        each(&mut self.file, &mut |_, path, flags| match path.is_empty() {
            true => {
                of_top = flags;
                Ok(())
            }
            false => set(top, path, flags),
        })?;
        Ok(of_top)
    }

    /// Takes all flags away again, so that the tree can be changed and removed.
    pub fn unset(&mut self, top: &Held) -> io::Result<()> {
        each(&mut self.file, &mut |_, path, flags| set(top, path, flags.permitting()))
    }
}

fn set(top: &Held, path: &[u8], flags: Flags) -> io::Result<()> {
    match top.below(path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(OsStr::from_bytes)) {
        Ok(held) => flags::set(&held, flags),
        // It arrived after the last saved position, and was gone when the stream went on.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Takes the length, the path and the flags of a note.
type Take<'a> = dyn FnMut(usize, &[u8], Flags) -> io::Result<()> + 'a;

/// Calls `take` with the length, the path and the flags of each whole note.
fn each(file: &mut File, take: &mut Take<'_>) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let (mut reader, mut note) = (BufReader::new(file), Vec::new());
    loop {
        note.clear();
        reader.read_until(0, &mut note)?;
        let Some(text) = note.strip_suffix(&[0]) else { return Ok(()) };
        let (flags, path) = parse(text).ok_or_else(|| io::Error::other("the notes of flags are damaged"))?;
        take(note.len(), path, flags)?;
    }
}

fn parse(note: &[u8]) -> Option<(Flags, &[u8])> {
    let space = note.iter().position(|byte| *byte == b' ')?;
    let bits = u32::from_str_radix(std::str::from_utf8(&note[..space]).ok()?, 16).ok()?;
    Some((Flags::carried(bits), &note[space + 1..]))
}

#[cfg(test)]
mod tests {
    use oncefs_stream::Name;

    use super::*;

    fn noted(file: &mut File) -> Vec<(Vec<u8>, Flags)> {
        let mut all = Vec::new();
        each(file, &mut |_, path, flags| {
            all.push((path.to_vec(), flags));
            Ok(())
        })
        .unwrap();
        all
    }

    #[test]
    fn notes_come_back_and_one_that_was_cut_short_is_left_out() {
        let mut path = TreePath::default();
        let mut late = LateFlags::of(tempfile::tempfile().unwrap()).unwrap();
        late.note(&path, Flags::APPEND_ONLY).unwrap();
        late.note(&path, Flags::carried(0xC0)).unwrap();
        path.push(Name::new(b"a dir").unwrap());
        path.push(Name::new(b"b\xff\n").unwrap());
        late.note(&path, Flags::IMMUTABLE).unwrap();
        let expected = [(b"".to_vec(), Flags::APPEND_ONLY), (b"a dir/b\xff\n".to_vec(), Flags::IMMUTABLE)];
        assert_eq!(noted(&mut late.file), expected, "only flags that forbid changes are noted");
        late.file.write_all(b"10 cut sho").unwrap();
        let mut late = LateFlags::of(late.file).unwrap();
        late.note(&path, Flags::APPEND_ONLY).unwrap();
        assert_eq!(noted(&mut late.file)[1..], [expected[1].clone(), (expected[1].0.clone(), Flags::APPEND_ONLY)]);
        late.file.write_all(b"nonsense\0").unwrap();
        assert!(LateFlags::of(late.file).is_err());
    }
}
