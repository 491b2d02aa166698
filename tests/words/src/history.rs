//! The history of a checkout: whether a commit is part of it, and how old it is, in commits.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A whole history, as far back as its first commit.
pub struct History {
    root: PathBuf,
}

impl History {
    /// The history of this checkout.
    ///
    /// # Errors
    /// If there is none, or only its end, with what would help.
    pub fn of(root: &Path) -> Result<Self, String> {
        let history = Self { root: root.to_owned() };
        match history.git(&["rev-parse", "--is-shallow-repository"])?.as_str() {
            "false" => Ok(history),
            _ => Err("this clone has only the end of the history; `git fetch --unshallow` brings the rest".to_owned()),
        }
    }

    /// How many commits were made since this one.
    ///
    /// # Errors
    /// If it is no ancestor of the commit that is checked out.
    pub fn age(&self, commit: &str) -> Result<u64, String> {
        self.git(&["merge-base", "--is-ancestor", commit, "HEAD"]).map_err(|_| "is no ancestor of HEAD".to_owned())?;
        let count = self.git(&["rev-list", "--count", &format!("{commit}..HEAD")])?;
        count.parse().map_err(|_| format!("git counted {count:?} commits"))
    }

    fn git(&self, words: &[&str]) -> Result<String, String> {
        // The checkout may belong to another user than the one who tests it.
        let own = ["-c", "safe.directory=*", "-C"];
        let output = Command::new("git").args(own).arg(&self.root).args(words).output();
        let output = output.map_err(|e| format!("cannot start git, which reads the history: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("git cannot read the history of this directory, which a clone has. It says: {said}"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A directory of this test's own, removed when dropped.
    struct Own(PathBuf);

    impl Own {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("oncefs-history-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn git(root: &Path, words: &[&str]) -> String {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").arg("-C").arg(root).args(identity).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A history of three commits on one branch and one on another, and the names of the first and of the other.
    fn made(root: &Path) -> [String; 2] {
        git(root, &["init", "-q"]);
        let commit = |words: &[&str]| {
            git(root, &[&["commit", "-q", "--allow-empty"], words].concat());
            git(root, &["rev-parse", "HEAD"])
        };
        let first = commit(&["-m", "one"]);
        git(root, &["checkout", "-q", "-b", "other"]);
        let other = commit(&["-m", "other"]);
        git(root, &["checkout", "-q", "-b", "more", &first]);
        commit(&["-m", "two"]);
        commit(&["-m", "three"]);
        [first, other]
    }

    #[test]
    fn commits_since_are_counted_and_those_of_other_branches_refused() {
        let own = Own::new("whole");
        let [first, other] = made(&own.0);
        let history = History::of(&own.0).unwrap();
        assert_eq!(history.age(&first), Ok(2));
        assert_eq!(history.age(&first[..7]), Ok(2));
        assert!(history.age(&other).unwrap_err().contains("no ancestor"));
        assert!(history.age("0123456").unwrap_err().contains("no ancestor"));
    }

    #[test]
    fn where_the_history_is_missing_it_is_said_what_to_do() {
        let own = Own::new("shallow");
        let (whole, shallow, none) = (own.0.join("whole"), own.0.join("shallow"), own.0.join("none"));
        [&whole, &none].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        made(&whole);
        let from = format!("file://{}", whole.display());
        git(&whole, &["clone", "-q", "--depth", "1", &from, shallow.to_str().unwrap()]);
        assert!(History::of(&shallow).err().unwrap().contains("--unshallow"));
        // Without a repository of its own it may be in one; a file where git looks for one is none.
        std::fs::write(none.join(".git"), "nothing").unwrap();
        assert!(History::of(&none).err().unwrap().contains("which a clone has"));
    }
}
