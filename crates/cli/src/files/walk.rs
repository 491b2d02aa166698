//! Walks everything below a file or directory: directories before their entries, names ascending. Follows no link and
//! enters no other mount, even if names change meanwhile.
//!
//! Directories still to be read are kept by their names, which share the names above them. So memory grows with the
//! number of directories and not with their depth.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::held::{Entry, Held};

/// A place in a tree.
#[derive(Clone, Debug)]
pub struct Place {
    top: Rc<Top>,
    last: Option<Rc<Name>>,
}

#[derive(Debug)]
struct Top {
    path: PathBuf,
    held: Held,
}

#[derive(Debug)]
struct Name {
    above: Option<Rc<Name>>,
    name: OsString,
}

impl Drop for Name {
    /// Drops in a loop, because a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut name) = above.and_then(Rc::into_inner) {
            above = name.above.take();
        }
    }
}

impl Place {
    fn top(path: &Path, held: Held) -> Self {
        Self { top: Rc::new(Top { path: path.to_owned(), held }), last: None }
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        let mut path = self.top.path.clone();
        path.extend(self.names());
        path
    }

    /// Holds the file that is there now.
    pub fn hold(&self) -> io::Result<Held> {
        self.top.held.below(self.names())
    }

    /// Its names below the top of the walk.
    pub fn names(&self) -> Vec<&OsStr> {
        let above = std::iter::successors(self.last.as_deref(), |name| name.above.as_deref());
        let mut names: Vec<&OsStr> = above.map(|name| name.name.as_os_str()).collect();
        names.reverse();
        names
    }

    fn with(&self, name: OsString) -> Self {
        Self { top: self.top.clone(), last: Some(Rc::new(Name { above: self.last.clone(), name })) }
    }

    fn is_in(&self, directory: &Self) -> bool {
        let above = self.last.as_ref().and_then(|name| name.above.as_ref());
        match (above, &directory.last) {
            (Some(above), Some(last)) => Rc::ptr_eq(above, last),
            (None, None) => self.last.is_some(),
            _ => false,
        }
    }

    /// Its last name; at the top of the walk, nothing.
    pub fn name(&self) -> &OsStr {
        self.last.as_deref().map_or_else(|| OsStr::new(""), |name| name.name.as_os_str())
    }
}

/// Takes the entries of a walk.
pub trait Visit {
    /// Takes an entry of a directory. `is_file`: the directory says that it is a regular file. Returns whether it is a
    /// directory, which is then walked.
    fn entry(&mut self, directory: &Held, place: &Place, is_file: bool) -> io::Result<bool>;

    /// A place could not be read.
    fn refused(&mut self, place: &Place, error: io::Error);
}

/// A step of a walk.
pub enum Step<'a> {
    /// A regular file or a directory.
    Found(&'a Held, &'a Metadata),
    /// Something that could not be read.
    Refused(io::Error),
}

/// Walks `top`, which is at `path`, and everything below it. Holds each file and directory.
pub fn walk(path: &Path, top: Held, each: &mut dyn FnMut(&Place, Step)) {
    let top = Place::top(path, top);
    let mut holding = Holding { each };
    match top.hold().and_then(|held| holding.take(&held, &top)) {
        Ok(true) => visit_below(top, &mut holding),
        Ok(false) => {}
        Err(error) => refuse(&top, error, &mut holding),
    }
}

/// Walks everything below the directory `top`, which is at `path`.
pub fn visit(path: &Path, top: Held, visitor: &mut dyn Visit) {
    visit_below(Place::top(path, top), visitor);
}

fn visit_below(top: Place, visitor: &mut dyn Visit) {
    let mut left = vec![top];
    // The directory read last: in a chain of directories, each is opened from its parent.
    let mut read: Option<(Place, Held)> = None;
    while let Some(place) = left.pop() {
        let held = match &read {
            Some((directory, held)) if place.is_in(directory) => held.below([place.name()]),
            _ => place.hold(),
        };
        match held.and_then(|held| Ok((held.entries()?, held))) {
            Ok((entries, held)) => {
                add(&place, entries, &held, &mut left, visitor);
                read = Some((place, held));
            }
            Err(error) => refuse(&place, error, visitor),
        }
    }
}

/// Adds the entries of a directory. Its first subdirectory is walked first.
fn add(directory: &Place, entries: Vec<Entry>, held: &Held, left: &mut Vec<Place>, visitor: &mut dyn Visit) {
    let known = left.len();
    for Entry { name, is_file } in entries {
        let place = directory.with(name);
        match visitor.entry(held, &place, is_file) {
            Ok(true) => left.push(place),
            Ok(false) => {}
            Err(error) => refuse(&place, error, visitor),
        }
    }
    left[known..].reverse();
}

fn refuse(place: &Place, error: io::Error, visitor: &mut dyn Visit) {
    match error.raw_os_error() {
        // Deleted since, or on another mount.
        Some(libc::ENOENT | libc::EXDEV) => {}
        Some(libc::ELOOP | libc::ENOTDIR) => {
            visitor.refused(place, io::Error::other("replaced meanwhile: run the command again"));
        }
        _ => visitor.refused(place, error),
    }
}

/// Holds each file and directory.
struct Holding<'a> {
    each: &'a mut dyn FnMut(&Place, Step),
}

impl Holding<'_> {
    fn take(&mut self, held: &Held, place: &Place) -> io::Result<bool> {
        let about = held.about()?;
        if about.is_dir() || about.is_file() {
            (self.each)(place, Step::Found(held, &about));
        }
        Ok(about.is_dir())
    }
}

impl Visit for Holding<'_> {
    fn entry(&mut self, directory: &Held, place: &Place, _is_file: bool) -> io::Result<bool> {
        self.take(&directory.below([place.name()])?, place)
    }

    fn refused(&mut self, place: &Place, error: io::Error) {
        (self.each)(place, Step::Refused(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_gone_through_and_forgotten() {
        const DEPTH: usize = 600;
        let top = tempfile::tempdir().unwrap();
        let name = "n".repeat(200);
        let mut at = Held::at(top.path()).unwrap();
        for _ in 0..DEPTH {
            at.make_directory(&name);
            at = at.below([OsStr::new(&name)]).unwrap();
        }
        let (mut found, mut last) = (0, None);
        walk(top.path(), Held::at(top.path()).unwrap(), &mut |place, step| {
            assert!(matches!(step, Step::Found(..)));
            found += 1;
            last = Some(place.clone());
        });
        assert_eq!(found, DEPTH + 1);
        let last = last.unwrap();
        assert_eq!(last.path().as_os_str().len(), top.path().as_os_str().len() + DEPTH * (1 + name.len()));
        assert!(last.hold().unwrap().about().unwrap().is_dir());
        let mut chain = None;
        (0..1_000_000).for_each(|_| chain = Some(Rc::new(Name { above: chain.take(), name: OsString::new() })));
        drop(chain);
    }
}
