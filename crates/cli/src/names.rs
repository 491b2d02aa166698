//! File names in the output of commands. Users choose names and root reads them, so a name must neither control a
//! terminal nor look like a line of oncefs.
//!
//! `Shown` is the form of a name in a message. A `Name`, which the daemon sends, can only be printed as `Shown`. Text
//! is escaped as in Rust. A name of printable characters is unchanged. Any other is quoted, with `\n`, `\t`, `\"`,
//! `\\`, `\u{202e}` for an invisible character, and `\xFF` for a byte that is not UTF-8. In JSON a name is a string, or
//! an array of its bytes if it is not UTF-8.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A longer name is cut to its beginning and its end, half of this each: a path of megabytes is not readable, and no
/// system call takes one.
const SHOWN_BYTES_MAX: usize = 4096;

/// A name or path of any bytes. It cannot be formatted: `shown` does that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Name(Vec<u8>);

/// The form of a name on the control socket and in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Bytes(Vec<u8>),
}

impl Name {
    /// Its length.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl From<&OsStr> for Name {
    fn from(name: &OsStr) -> Self {
        Self(name.as_bytes().to_vec())
    }
}

impl From<Wire> for Name {
    fn from(wire: Wire) -> Self {
        match wire {
            Wire::Text(text) => Self(text.into_bytes()),
            Wire::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<Name> for Wire {
    fn from(Name(bytes): Name) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl AsRef<OsStr> for Name {
    fn as_ref(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// A name in messages: one line, printable, and different for different names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown(String);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name or path for messages.
pub fn shown(name: &(impl AsRef<OsStr> + ?Sized)) -> Shown {
    let name: &OsStr = name.as_ref();
    let bytes = name.as_bytes();
    if bytes.len() > SHOWN_BYTES_MAX {
        let (head, rest) = bytes.split_at(SHOWN_BYTES_MAX / 2);
        let (left_out, tail) = rest.split_at(rest.len() - SHOWN_BYTES_MAX / 2);
        let [head, tail] = [head, tail].map(OsStr::from_bytes);
        return Shown(format!("{head:?}[{} bytes left out]{tail:?}", left_out.len()));
    }
    let quoted = format!("{name:?}");
    let is_plain = !bytes.is_empty() && !bytes.contains(&b' ') && quoted.len() == bytes.len() + 2;
    Shown(if is_plain { quoted[1..quoted.len() - 1].to_owned() } else { quoted })
}

/// Names for messages, and the number of further ones.
pub fn shown_all<'a>(names: impl IntoIterator<Item = &'a Name>, more: u64) -> Shown {
    let mut all: Vec<String> = names.into_iter().map(|name| shown(name).0).collect();
    if more > 0 {
        all.push(format!("{more} more"));
    }
    Shown(all.join(", "))
}

/// A foreign message on one line, without characters that control a terminal.
pub fn printable(message: &str) -> String {
    let line = message.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let mut text = String::with_capacity(line.len());
    for character in line.chars() {
        match is_unseen(character) {
            true => text.extend(character.escape_debug()),
            false => text.push(character),
        }
    }
    text
}

/// JSON for people and programs, over several lines. Characters that control a terminal are escaped, which changes no
/// value.
pub fn json(value: &impl Serialize) -> String {
    escaped(serde_json::to_string_pretty(value).expect("reports have keys of text and no map fails to be written"))
}

/// JSON on one line, escaped in the same way.
pub fn json_line(value: &impl Serialize) -> String {
    escaped(serde_json::to_string(value).expect("reports have keys of text and no map fails to be written"))
}

/// Only strings contain such characters, so a JSON escape can replace each.
fn escaped(json: String) -> String {
    if json.chars().all(|character| character == '\n' || !is_unseen(character)) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if character == '\n' || !is_unseen(character) {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(text, "\\u{unit:04x}").expect("writing to a string cannot fail");
        }
    }
    text
}

/// Whether a character is a control character, changes the look of others (such as their direction), or is invisible.
fn is_unseen(character: char) -> bool {
    !matches!(character, '\\' | '"' | '\'') && character.escape_debug().len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRICKY: [(&[u8], &str); 11] = [
        (b"/a/b", "/a/b"),
        ("/\u{e4}\u{6f22}".as_bytes(), "/\u{e4}\u{6f22}"),
        (b"/a b", r#""/a b""#),
        (b"", r#""""#),
        (b"/a\nclean: no errors", r#""/a\nclean: no errors""#),
        (b"/\x1b[2Jclean", r#""/\u{1b}[2Jclean""#),
        (b"/a\\n\x7f", r#""/a\\n\u{7f}""#),
        ("/\u{9b}2J".as_bytes(), r#""/\u{9b}2J""#),
        ("/\u{202e}txt.exe".as_bytes(), r#""/\u{202e}txt.exe""#),
        (b"/\xff\xfe", r#""/\xFF\xFE""#),
        (b"/\"quoted\"", r#""/\"quoted\"""#),
    ];

    #[test]
    fn names_are_shown_on_one_line_that_obeys_nothing() {
        for (name, text) in TRICKY {
            assert_eq!(shown(&Name::from(name)).to_string(), text);
            assert!(!text.chars().any(is_unseen), "{text:?}");
        }
    }

    #[test]
    fn no_two_names_look_the_same() {
        let pairs: [(&[u8], &[u8]); 4] =
            [(b"a\n", b"a\\n"), (b"\xff", b"\\xFF"), (b"\"a\"", b"a"), ("\u{1b}".as_bytes(), b"\\u{1b}")];
        for (one, other) in pairs {
            assert_ne!(shown(&Name::from(one)), shown(&Name::from(other)));
        }
    }

    #[test]
    fn of_a_long_path_both_ends_are_shown() {
        let name = [b"/".to_vec(), vec![b'x'; 1 << 20], b"\nend".to_vec()].concat();
        let text = shown(&Name::from(&name[..])).to_string();
        assert!(text.len() < SHOWN_BYTES_MAX + 100 && text.ends_with("\\nend\""), "{}", text.len());
        assert!(text.contains(&format!("[{} bytes left out]", name.len() - SHOWN_BYTES_MAX)));
        assert_eq!(shown_all(&[Name::from(&b"/a"[..]), Name::from(&b"/b"[..])], 7).to_string(), "/a, /b, 7 more");
    }

    #[test]
    fn names_pass_through_json_whatever_their_bytes() {
        for (name, _) in TRICKY {
            let name = Name::from(name);
            for text in [json(&[&name]), json_line(&[&name])] {
                assert!(text.chars().all(|c| c == '\n' || !is_unseen(c)), "{text:?}");
                assert_eq!(serde_json::from_str::<Vec<Name>>(&text).unwrap(), std::slice::from_ref(&name));
            }
        }
        assert_eq!(json_line(&Name::from(&b"/\xff"[..])), "[47,255]");
        assert_eq!(json_line(&"\u{e0001}\u{7f}\u{e4}"), "\"\\udb40\\udc01\\u007f\u{e4}\"");
    }

    #[test]
    fn messages_become_one_line_that_obeys_nothing() {
        assert_eq!(printable("a\n\n  b \u{1b}[2J\u{202e}c\\d \"e\""), "a b \\u{1b}[2J\\u{202e}c\\d \"e\"");
    }
}
