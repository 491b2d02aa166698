//! Finds functions, impls, modules and traits in a source, by their names.

use std::ops::Range;

use crate::blank::blanked;

/// What of a source an item takes, from its keyword to the brace that closes it. The item is named as in the source, such
/// as `fn place` or `impl Drop for Guard`; where that is not enough, after those it stands in: `impl Page`, `fn is_free`.
/// Fails if a name belongs to no item there, or to several.
pub fn find(source: &str, path: &[String]) -> Result<Range<usize>, String> {
    let code = blanked(source);
    path.iter().try_fold(0..code.len(), |within, name| {
        let found = named(&code, within, name);
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(format!("there is no `{name}`")),
            several => Err(format!("there are {} of `{name}`: name what it stands in", several.len())),
        }
    })
}

/// All items of a name within a part of the code. A declaration without a body is none.
fn named(code: &str, within: Range<usize>, name: &str) -> Vec<Range<usize>> {
    let keyword = name.split(' ').next().unwrap_or_default();
    let starts = code[within.clone()].match_indices(keyword).map(|(at, _)| within.start + at);
    let is_keyword = |at: &usize| !code[..*at].ends_with(is_of_a_word) && is_item(code, *at, keyword);
    starts.filter(is_keyword).filter_map(|at| item_at(code, at, name)).collect()
}

/// `impl` begins an item only at the beginning of a line; elsewhere it is part of a type.
fn is_item(code: &str, at: usize, keyword: &str) -> bool {
    let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
    keyword != "impl" || line.is_empty() || line == "unsafe"
}

fn item_at(code: &str, at: usize, name: &str) -> Option<Range<usize>> {
    let open = at + body_at(&code[at..])?;
    let header = code[at..open].split_whitespace().collect::<Vec<_>>().join(" ");
    let is_it = header.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_of_a_word));
    let end = open + block_bytes(&code[open..])?;
    is_it.then_some(at..end)
}

/// Where the body of an item opens. None: a semicolon ends it before.
fn body_at(item: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in item.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' | b'}' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// How far the block reaches that begins here. None: it is not closed.
fn block_bytes(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::find;

    const SOURCE: &str = r#"
/// Like fn first() {}, but with a brace: {
pub fn first<T>(of: [u8; 2]) -> impl Iterator<Item = T>
where
    T: Copy,
{
    let text = "}"; // }
    if text.is_empty() { '}' } else { first_of(1) }
}

trait Shape {
    fn area(&self) -> u64;
    fn name(&self) -> String { "{".into() }
}

impl Shape for Square {
    fn area(&self) -> u64 { self.0 * self.0 }
}

impl Shape for Point {
    fn area(&self) -> u64 { 0 }
}

impl Square {
    fn inner(&self) { fn area() { unreachable!() } }
}
"#;

    fn found(path: &[&str]) -> Result<&'static str, String> {
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        find(SOURCE, &path).map(|range| &SOURCE[range])
    }

    #[test]
    fn a_function_reaches_to_its_own_brace() {
        let first = found(&["fn first"]).unwrap();
        assert!(first.starts_with("fn first<T>") && first.ends_with("first_of(1) }\n}"), "{first}");
        assert_eq!(found(&["fn name"]).unwrap(), r#"fn name(&self) -> String { "{".into() }"#);
    }

    #[test]
    fn a_name_is_a_whole_word() {
        assert_eq!(found(&["fn firs"]).unwrap_err(), "there is no `fn firs`");
        assert_eq!(found(&["fn first_of"]).unwrap_err(), "there is no `fn first_of`");
    }

    #[test]
    fn a_name_that_several_have_needs_what_it_stands_in() {
        assert_eq!(found(&["fn area"]).unwrap_err(), "there are 3 of `fn area`: name what it stands in");
        assert_eq!(found(&["impl Shape for Point", "fn area"]).unwrap(), "fn area(&self) -> u64 { 0 }");
        assert_eq!(found(&["impl Square", "fn inner", "fn area"]).unwrap(), "fn area() { unreachable!() }");
        assert_eq!(
            found(&["impl Shape", "fn area"]).unwrap_err(),
            "there are 2 of `impl Shape`: name what it stands in"
        );
    }

    #[test]
    fn a_declaration_has_no_body_to_plant_in() {
        assert_eq!(found(&["trait Shape", "fn area"]).unwrap_err(), "there is no `fn area`");
    }
}
