//! A source as a compiler without tests sees it: comments are gone, literals are empty, test items are left out.

/// Marks what is compiled for tests only.
const TEST_MARK: &str = "#[cfg(test)]";

/// Comments and the inside of literals taken out. Lines stay where they are.
pub fn without_text(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = text_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
            continue;
        }
        if chars[at] != '/' {
            code.push_str("\"\"");
        }
        code.extend(chars[at..end].iter().filter(|c| **c == '\n'));
        at = end;
    }
    code
}

/// Where a comment or a literal that begins at `at` ends; `at` if none does.
fn text_end(chars: &[char], at: usize) -> usize {
    let next = |n: usize| chars.get(at + n).copied().unwrap_or('\0');
    match (chars[at], next(1)) {
        ('/', '/') => find(chars, at, |rest| rest[0] == '\n', 0),
        ('/', '*') => find(chars, at + 2, |rest| rest.starts_with(&['*', '/']), 2),
        ('"', _) => string_end(chars, at),
        ('r', '#' | '"') if !continues_a_name(chars, at) => raw_string_end(chars, at),
        ('\'', '\\') => find(chars, at + 3, |rest| rest[0] == '\'', 1),
        ('\'', _) if next(2) == '\'' => at + 3,
        _ => at,
    }
}

fn continues_a_name(chars: &[char], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).map_or(' ', |at| chars[at]);
    // A literal of bytes begins with one letter more.
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    is_name(before(1)) && (before(1) != 'b' || is_name(before(2)))
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    find(chars, at + 2 + hashes, |rest| rest.starts_with(&end), end.len())
}

/// The first place from `at` on where `is_end` holds, and so many characters on.
fn find(chars: &[char], at: usize, is_end: impl Fn(&[char]) -> bool, on: usize) -> usize {
    (at..chars.len()).find(|at| is_end(&chars[*at..])).map_or(chars.len(), |at| at + on)
}

/// Code without the items that are marked as tests, and the names of the modules among them that are files of their own.
pub fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut left, mut modules) = (String::new(), Vec::new());
    let mut rest = code;
    while let Some((before, item)) = rest.split_once(TEST_MARK) {
        left.push_str(before);
        let len = item_len(item);
        modules.extend(module_of_its_own(&item[..len]));
        rest = &item[len..];
    }
    left.push_str(rest);
    (left, modules)
}

/// Up to the semicolon or the closing brace of an item.
fn item_len(item: &str) -> usize {
    let mut depth = 0;
    for (at, c) in item.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 && (c == ';' || c == '}') {
            return at + 1;
        }
    }
    item.len()
}

fn module_of_its_own(item: &str) -> Option<String> {
    let declaration = item.trim_end().strip_suffix(';')?;
    let (before, name) = declaration.rsplit_once("mod ")?;
    let is_word = before.is_empty() || before.ends_with(|c: char| c.is_whitespace());
    is_word.then(|| name.trim().to_owned())
}
