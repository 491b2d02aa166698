//! Tells code from comments and literals, so that braces and words in them are not taken for code.

/// The source with spaces for every byte of comments, strings and characters. Lines and offsets stay.
pub fn blanked(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let skipped = text_bytes(&bytes[at..]);
        code[at..at + skipped].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at += skipped.max(1);
    }
    String::from_utf8(code).expect("comments and literals consist of whole characters")
}

/// How many bytes the comment or literal takes with which the rest of a source begins; 0 if it begins with code.
fn text_bytes(rest: &[u8]) -> usize {
    let end = match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n'),
        [b'/', b'*', ..] => end_of_block_comment(rest),
        [b'"', ..] => end_of_quoted(rest, b'"'),
        [b'r', b'"' | b'#', ..] => return raw_string_bytes(rest),
        [b'\'', b'\\', ..] => end_of_quoted(rest, b'\''),
        [b'\'', ..] => return character_bytes(rest),
        _ => return 0,
    };
    end.unwrap_or(rest.len())
}

/// Block comments nest.
fn end_of_block_comment(rest: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// A backslash takes the meaning from what follows it.
fn end_of_quoted(rest: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at < rest.len()).then_some(at + 1)
}

/// 0 for a raw identifier, such as `r#type`.
fn raw_string_bytes(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let begin = hashes + 2;
    let end = [b"\"".as_slice(), &rest[1..1 + hashes]].concat();
    let found = rest[begin..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |at| begin + at + end.len())
}

/// 0 for a lifetime: no quote follows its first letter.
fn character_bytes(rest: &[u8]) -> usize {
    let is_within = |byte: &&u8| **byte & 0xc0 == 0x80;
    let bytes = 1 + rest.iter().skip(2).take_while(is_within).count();
    if rest.get(1 + bytes) == Some(&b'\'') { bytes + 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::blanked;

    /// Blanks a source, of which these words must stay, where they were.
    fn check(source: &str, words: &str) {
        let code = blanked(source);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), words, "{source}");
        let is_kept = |(byte, now): (u8, u8)| byte == now || (now == b' ' && byte != b'\n');
        assert!(code.len() == source.len() && source.bytes().zip(code.bytes()).all(is_kept), "{source}\n{code}");
    }

    #[test]
    fn comments_become_spaces_and_lines_stay() {
        check("a // {\nb", "a b");
        check("a /* { /* } */ {\n */ b", "a b");
        check("a // \u{e9}\nb", "a b");
        check("a / b", "a / b");
    }

    #[test]
    fn strings_become_spaces_whatever_is_in_them() {
        check(r#"f("{ \" }", b"{")"#, "f( , b )");
        check(r##"f(r"\", r#"" {"#, r#type)"##, "f( , , r#type)");
        check(r#"("//", "/*", "\\")"#, "( , , )");
    }

    #[test]
    fn characters_become_spaces_and_lifetimes_stay() {
        check(r"('{', b'}', '\'', '\u{7b}', '\\') {", "( , b , , , ) {");
        check("fn f<'a, 'b>(x: &'a str) {", "fn f<'a, 'b>(x: &'a str) {");
        check("'\u{e9}' {", "{");
    }

    #[test]
    fn what_does_not_end_reaches_to_the_end() {
        ["a /* b", "a \"b", "a r#\"b", "a // b", "a '\\b", "a \"b\\"].iter().for_each(|source| check(source, "a"));
    }
}
