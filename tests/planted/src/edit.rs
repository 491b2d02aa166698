//! Replaces lines of a function by others.

use crate::items;

/// Lines of one function that give way to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file's path in the sources.
    pub file: String,
    /// The function, after the items it stands in where its name alone is not enough, such as `impl Page`, `fn is_free`.
    pub within: Vec<String>,
    /// What goes: lines one after another, that stand so in the function once. White space around them does not count.
    pub old: Vec<String>,
    /// What comes instead, indented as the first of those.
    pub new: Vec<String>,
}

impl Edit {
    /// The file's text afterwards. Fails if function and lines are not found exactly once.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let range = items::find(text, &self.within).map_err(|error| format!("{}: {error}", self.file))?;
        let lines: Vec<&str> = text.lines().collect();
        let line_of = |at: usize| text[..at].matches('\n').count();
        let (first, last) = (line_of(range.start), line_of(range.end));
        let starts: Vec<usize> = (first..=last).filter(|start| self.stands_at(&lines[*start..=last])).collect();
        let [start] = starts[..] else {
            let (place, old) = (self.within.join(" > "), self.old.join("\n    "));
            let count = starts.len();
            return Err(format!("{}, {place}: these lines are there {count} times, not once:\n    {old}", self.file));
        };
        let indent = &lines[start][..lines[start].len() - lines[start].trim_start().len()];
        let new = self.new.iter().map(|line| format!("{indent}{line}"));
        let before = lines[..start].iter().map(ToString::to_string);
        let after = lines[start + self.old.len()..].iter().map(ToString::to_string);
        Ok(before.chain(new).chain(after).map(|line| line + "\n").collect())
    }

    fn stands_at(&self, lines: &[&str]) -> bool {
        lines.len() >= self.old.len() && self.old.iter().zip(lines).all(|(old, line)| old.trim() == line.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::Edit;

    const TEXT: &str =
        "fn one() {\n    a();\n    b();\n    a();\n}\n\nfn two() {\n    b();\n    if c {\n        d();\n    }\n}\n";

    fn planted(name: &str, old: &[&str], new: &[&str]) -> Result<String, String> {
        let own = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
        Edit { file: "f.rs".into(), within: vec![name.into()], old: own(old), new: own(new) }.apply(TEXT)
    }

    #[test]
    fn lines_that_stand_in_the_function_once_are_replaced() {
        assert_eq!(planted("fn one", &["b();"], &["x();"]).unwrap(), TEXT.replacen("b();", "x();", 1));
        assert_eq!(planted("fn two", &["d();"], &["if x {", "    y();", "}"]).unwrap(), {
            TEXT.replace("        d();\n", "        if x {\n            y();\n        }\n")
        });
    }

    #[test]
    fn several_lines_make_an_anchor_of_which_each_stands_there_more_than_once() {
        let expected = TEXT.replacen("    a();\n    b();\n", "    b();\n", 1);
        assert_eq!(planted("fn one", &["a();", "  b();  "], &["b();"]).unwrap(), expected);
    }

    #[test]
    fn the_first_line_of_a_function_is_part_of_it() {
        assert!(planted("fn two", &["fn two() {", "b();"], &["fn two() {"]).unwrap().contains("fn two() {\n    if c"));
    }

    #[test]
    fn lines_that_go_may_leave_nothing() {
        assert_eq!(planted("fn two", &["b();"], &[]).unwrap(), TEXT.replace("two() {\n    b();\n", "two() {\n"));
    }

    #[test]
    fn an_anchor_that_is_missing_or_ambiguous_is_refused_with_its_count() {
        let missing = planted("fn two", &["a();"], &["x();"]).unwrap_err();
        assert_eq!(missing, "f.rs, fn two: these lines are there 0 times, not once:\n    a();");
        let ambiguous = planted("fn one", &["a();"], &["x();"]).unwrap_err();
        assert_eq!(ambiguous, "f.rs, fn one: these lines are there 2 times, not once:\n    a();");
        assert_eq!(planted("fn six", &["a();"], &["x();"]).unwrap_err(), "f.rs: there is no `fn six`");
    }
}
