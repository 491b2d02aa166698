//! The paths that a source names: those of its `use` declarations, and those in its code.

/// A path that a source names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its segments; `*` for all of a module.
    pub path: Vec<String>,
    /// The name that it has from here on, for a declaration.
    pub name: Option<String>,
    /// It is only handed on: declared for others, and not used here.
    pub is_handed_on: bool,
}

/// Everything that code names by a path of at least two segments, and by declarations.
pub fn named(code: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            let first = found.len();
            let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
            at = tree(&tokens, at + 1, &[], &mut found);
            for named in found[first..].iter_mut().filter(|_| is_public) {
                named.is_handed_on = named.name.as_deref().is_some_and(|name| is_once(&tokens, name));
            }
        } else if is_name(tokens[at]) && (at == 0 || !["::", ".", "mod", "fn"].contains(&tokens[at - 1])) {
            at = inline(&tokens, at, &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// The modules that code declares as files of their own.
pub fn declared_modules(code: &str) -> Vec<String> {
    let tokens = tokens(code);
    let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
    declared.map(|three| three[1].to_owned()).collect()
}

/// The items that code defines, of whatever kind.
pub fn defined(code: &str) -> Vec<String> {
    const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
    let tokens = tokens(code);
    let items = tokens.windows(2).filter(|two| KINDS.contains(&two[0]) && is_name(two[1]));
    items.map(|two| two[1].to_owned()).collect()
}

/// Names, `::`, and every other sign alone.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let len = match name {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            len => len,
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    tokens
}

fn is_once(tokens: &[&str], name: &str) -> bool {
    tokens.iter().filter(|token| **token == name).count() == 1
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A path in an expression or a type.
fn inline(tokens: &[&str], mut at: usize, found: &mut Vec<Named>) -> usize {
    let mut path = vec![tokens[at].to_owned()];
    while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|token| is_name(token)) {
        path.push(tokens[at + 2].to_owned());
        at += 2;
    }
    if path.len() > 1 {
        found.push(Named { path, name: None, is_handed_on: false });
    }
    at + 1
}

/// A tree of a `use` declaration from `at` on, below `prefix`.
fn tree(tokens: &[&str], mut at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        at += 1;
        match *token {
            "::" => {}
            "{" => return branches(tokens, at, &path, found),
            "as" => {
                found.push(Named { path, name: Some(tokens[at].to_owned()), is_handed_on: false });
                return at + 1;
            }
            token if is_name(token) || token == "*" => path.push(token.to_owned()),
            _ => {
                at -= 1;
                break;
            }
        }
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = path.last().cloned();
    found.push(Named { path, name, is_handed_on: false });
    at
}

/// What stands between braces.
fn branches(tokens: &[&str], mut at: usize, path: &[String], found: &mut Vec<Named>) -> usize {
    while let Some(token) = tokens.get(at) {
        at = match *token {
            "}" => return at + 1,
            "," => at + 1,
            _ => tree(tokens, at, path, found),
        };
    }
    at
}
