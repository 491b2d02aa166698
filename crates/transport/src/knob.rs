//! One of the kernel's global knobs, turned while something is mounted and then turned back.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A knob with another value until dropped. The file lock keeps two processes from restoring each other's value.
#[derive(Debug)]
pub struct Knob {
    path: PathBuf,
    file: File,
    previous: String,
}

impl Knob {
    /// Turns the knob to what `wanted` makes of its value. None: it is there already.
    ///
    /// # Errors
    /// There is no such knob, or this process may not turn it.
    pub fn turn(path: &Path, wanted: impl Fn(&str) -> Option<String>) -> io::Result<Option<Self>> {
        if wanted(&value(&mut File::open(path)?)?).is_none() {
            return Ok(None);
        }
        let mut file = File::options().read(true).write(true).open(path)?;
        // SAFETY: flock on a descriptor that is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Somebody may have turned it meanwhile, and will turn it back: so it is turned all the same.
        let previous = value(&mut file)?;
        if let Some(wanted) = wanted(&previous) {
            turn_to(&mut file, &wanted)?;
        }
        Ok(Some(Self { path: path.to_owned(), file, previous }))
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Err(e) = turn_to(&mut self.file, &self.previous) {
            log::warn!("cannot set {} back to {}: {e}", self.path.display(), self.previous);
        }
    }
}

fn value(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn turn_to(file: &mut File, value: &str) -> io::Result<()> {
    file.rewind()?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_has_its_value_while_held_and_the_old_one_after() {
        let knob = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(knob.path(), "N\n").unwrap();
        let read = || std::fs::read_to_string(knob.path()).unwrap();
        let wanted = |now: &str| (now != "Y").then(|| "Y".to_owned());
        let held = Knob::turn(knob.path(), wanted).unwrap().expect("it was off");
        assert_eq!(read().trim(), "Y");
        assert!(Knob::turn(knob.path(), wanted).unwrap().is_none(), "it is on");
        drop(held);
        assert_eq!(read().trim(), "N");
        assert!(Knob::turn(Path::new("/nonexistent"), wanted).is_err());
    }
}
