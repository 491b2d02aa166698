//! The file of a bug: what it is, which test must catch it, and how to plant it. `docs/schedules.md` has the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::edit::Edit;

/// A bug that can be planted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plant {
    /// What it does, in a sentence.
    pub bug: String,
    /// The name of the test that must catch it.
    pub test: String,
    /// The command that runs this test and no other.
    pub command: String,
    /// What to change, in this order.
    pub edits: Vec<Edit>,
}

impl Plant {
    /// Reads the text of a bug's file. Fails with the line that does not belong there, or with what is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plant = Self::default();
        let (mut file, mut within, mut is_open) = (String::new(), Vec::new(), false);
        for line in text.lines() {
            if let Some(old) = line.strip_prefix('-') {
                let is_next = !is_open || plant.edits.last().is_some_and(|edit| !edit.new.is_empty());
                if is_next {
                    let place = (file.clone(), within.clone());
                    plant.edits.push(Edit { file: place.0, within: place.1, old: Vec::new(), new: Vec::new() });
                }
                plant.edits.last_mut().expect("an edit is open").old.push(old.trim().into());
            } else if let Some(new) = line.strip_prefix('+') {
                let edit = plant.edits.last_mut().filter(|_| is_open);
                edit.ok_or(format!("no line with - comes before this one: {line}"))?.new.push(new.trim_end().into());
            } else if let Some(path) = line.strip_prefix("File: ") {
                (file, within) = (path.into(), Vec::new());
            } else if let Some(names) = line.strip_prefix("In: ") {
                within = names.split(" > ").map(Into::into).collect();
            } else if !line.is_empty() {
                plant.set_field(line)?;
            }
            is_open = line.starts_with(['-', '+']);
        }
        plant.complete()
    }

    fn set_field(&mut self, line: &str) -> Result<(), String> {
        let field = match line.split_once(": ") {
            Some(("Bug", value)) => (&mut self.bug, value),
            Some(("Test", value)) => (&mut self.test, value),
            Some(("Command", value)) => (&mut self.command, value),
            _ => return Err(format!("this line is none of a bug's file: {line}")),
        };
        field.1.clone_into(field.0);
        Ok(())
    }

    fn complete(self) -> Result<Self, String> {
        let fields = [("Bug", &self.bug), ("Test", &self.test), ("Command", &self.command)];
        if let Some((name, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
            return Err(format!("there is no line {name}"));
        }
        if let Some(edit) = self.edits.iter().find(|edit| edit.file.is_empty() || edit.within.is_empty()) {
            return Err(format!("File and In have to come before this line: {}", edit.old.join("\n")));
        }
        if self.edits.is_empty() || self.edits.iter().any(|edit| edit.old == edit.new) {
            return Err("it changes nothing".into());
        }
        Ok(self)
    }

    /// The texts of the files that change, by their paths below the sources. Fails if an anchor is not there once.
    pub fn planted(&self, sources: &Path) -> Result<BTreeMap<String, String>, String> {
        let mut texts = BTreeMap::new();
        for edit in &self.edits {
            let text = match texts.remove(&edit.file) {
                Some(text) => text,
                None => fs::read_to_string(sources.join(&edit.file)).map_err(|e| format!("{}: {e}", edit.file))?,
            };
            texts.insert(edit.file.clone(), edit.apply(&text)?);
        }
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::Plant;

    const HEAD: &str = "Bug: it forgets.\nTest: it_remembers\nCommand: cargo test -p a it_remembers\n\n";

    fn parsed(rest: &str) -> Result<Plant, String> {
        Plant::parse(&format!("{HEAD}{rest}"))
    }

    #[test]
    fn edits_are_told_apart_by_their_places_and_by_what_comes_between() {
        let plant = parsed(
            "File: a.rs\nIn: impl A > fn f\n-one\n+  1\n-two\n\n-three\nIn: fn g\n-four\n+4\n\nFile: b.rs\nIn: fn h\n-five\n+5\n",
        );
        let plant = plant.unwrap();
        assert_eq!((plant.bug.as_str(), plant.test.as_str()), ("it forgets.", "it_remembers"));
        let of = |edit: &crate::Edit| format!("{} {} {:?} {:?}", edit.file, edit.within.join("/"), edit.old, edit.new);
        let edits: Vec<String> = plant.edits.iter().map(of).collect();
        assert_eq!(
            edits,
            [
                r#"a.rs impl A/fn f ["one"] ["  1"]"#,
                r#"a.rs impl A/fn f ["two"] []"#,
                r#"a.rs impl A/fn f ["three"] []"#,
                r#"a.rs fn g ["four"] ["4"]"#,
                r#"b.rs fn h ["five"] ["5"]"#,
            ]
        );
    }

    #[test]
    fn a_file_that_says_too_little_or_something_else_is_refused() {
        let refused = |rest: &str| parsed(rest).unwrap_err();
        assert_eq!(refused("File: a.rs\nIn: fn f\n+1\n"), "no line with - comes before this one: +1");
        assert_eq!(refused("File: a.rs\nIn: fn f\n-one\n\n+1\n"), "no line with - comes before this one: +1");
        assert_eq!(refused("File: a.rs\n-one\n"), "File and In have to come before this line: one");
        assert_eq!(refused("@@ -1 +1 @@\n"), "this line is none of a bug's file: @@ -1 +1 @@");
        assert_eq!(refused("File: a.rs\nIn: fn f\n-one\n+one\n"), "it changes nothing");
        assert_eq!(refused(""), "it changes nothing");
        assert_eq!(Plant::parse("Bug: it forgets.\nTest: a\n").unwrap_err(), "there is no line Command");
    }
}
