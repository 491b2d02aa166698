//! Where a page's figures come from: the command, the commit, the program, the day, the machine and its load.

use std::path::Path;
use std::process::Command;

use crate::command::run;
use crate::failure::Result;
use crate::machine;

/// What is known when a run begins.
pub struct Origin {
    command: String,
    commit: String,
    program: String,
    load: String,
}

impl Origin {
    /// Notes all of it, for the oncefs that is measured. Outside of a checkout there is no commit to name.
    pub fn begin(oncefs: &Path) -> Result<Origin> {
        let git = |words: &[&str]| run(Command::new("git").args(words));
        let is_changed = git(&["diff", "--quiet", "HEAD"]).is_err();
        let commit = match git(&["rev-parse", "--short=7", "HEAD"]) {
            Ok(commit) if is_changed => format!("commit {commit} and changes"),
            Ok(commit) => format!("commit {commit}"),
            Err(_) => "no commit: the run began outside of a checkout".to_owned(),
        };
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        words.insert(0, "oncefs-bench".to_owned());
        let is_debug = oncefs.components().any(|part| part.as_os_str() == "debug");
        let program = if is_debug { "a debug build of oncefs, whose times say nothing" } else { "a release build" };
        let load = machine::load_average();
        Ok(Origin { command: without_paths(&words), commit, program: program.to_owned(), load })
    }

    /// The commit, in words.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// The head of the page, when the run has ended.
    pub fn head(&self) -> String {
        let day = run(Command::new("date").args(["-u", "+%F"])).unwrap_or_else(|_| "an unknown day".to_owned());
        format!(
            "Printed by `{}`, {}, on {day}: {}, {}. Load averages of a minute: {} at the beginning, {} at the end.",
            self.command,
            self.commit,
            self.program,
            machine::describe(),
            self.load,
            machine::load_average(),
        )
    }
}

/// The command with each path of the machine replaced: others have other directories.
fn without_paths(words: &[String]) -> String {
    let plain = |word: &String| match word.split_once('=') {
        _ if word.starts_with('/') => "DIR".to_owned(),
        Some((option, path)) if path.starts_with('/') => format!("{option}=DIR"),
        _ => word.clone(),
    };
    words.iter().map(plain).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_machine_are_left_out_of_the_command() {
        let words =
            ["oncefs-bench", "peers", "--dir", "/x/y", "--json=/a b", "--page", "docs/results/peers.md", "/dev/x"];
        let words = words.map(str::to_owned);
        let expected = "oncefs-bench peers --dir DIR --json=DIR --page docs/results/peers.md DIR";
        assert_eq!(without_paths(&words), expected);
    }

    #[test]
    fn a_debug_build_is_named_as_such() {
        let head = |program: &str| Origin::begin(Path::new(program)).unwrap().head();
        assert!(head("/target/debug/oncefs").contains("times say nothing"));
        assert!(head("/target/release/oncefs").contains("a release build"));
    }
}
