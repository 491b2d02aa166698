//! What the analysis makes of sources that are written for it.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{between_rooms, circles};
use super::code::{without_tests, without_text};
use super::counts;
use super::crate_sources::CrateSources;
use super::imports::named;
use super::module_tree::ModuleTree;

fn sources(files: &[(&str, &str)]) -> CrateSources {
    CrateSources::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
}

fn set(files: &[&str]) -> BTreeSet<String> {
    files.iter().map(|file| (*file).to_owned()).collect()
}

fn imports(files: &[(&str, &str)]) -> BTreeMap<String, BTreeSet<String>> {
    ModuleTree::new(&sources(files)).imports()
}

#[test]
fn comments_and_literals_are_no_code() {
    let text =
        "a /* b */ c // d\n\"e\\\"\" + r#\"f\"g\"# + b\"h\" + '\"' + '\\'' + br\"i\"; // 'j'\nfn k<'l>(m: &'l n)";
    let code = "a  c \n\"\" + \"\" + b\"\" + \"\" + \"\" + b\"\"; \nfn k<'l>(m: &'l n)";
    assert_eq!(without_text(text), code);
}

#[test]
fn items_of_tests_are_left_out() {
    let code =
        "use a;\n#[cfg(test)]\nmod own;\nfn f() {}\n#[cfg(test)]\nmod tests {\n fn g() { h(); }\n}\nconst I: u8 = 1;";
    let (left, modules) = without_tests(code);
    assert_eq!(left, "use a;\n\nfn f() {}\n\nconst I: u8 = 1;");
    assert_eq!(modules, ["own"]);
}

#[test]
fn files_of_tests_are_left_out() {
    let files = [
        ("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;"),
        ("a.rs", "#[cfg(test)]\nmod tests;"),
        ("a/tests.rs", "mod more;"),
        ("a/tests/more.rs", ""),
        ("tests/mod.rs", ""),
    ];
    assert_eq!(sources(&files).files.into_keys().collect::<Vec<_>>(), ["a.rs", "lib.rs"]);
}

#[test]
fn trees_of_imports_and_paths_in_code_are_named() {
    let code = "use crate::{a::{self, B}, c as d}; fn f() { crate::e::g(); x.super_h(); super::i::<J>(); }";
    let paths: Vec<String> = named(code).into_iter().map(|named| named.path.join("::")).collect();
    assert_eq!(paths, ["crate::a", "crate::a::B", "crate::c", "crate::e::g", "super::i"]);
}

#[test]
fn a_name_leads_to_the_file_that_defines_it() {
    let found = imports(&[
        ("lib.rs", "mod a; mod b; mod sync; pub use a::inner::Thing; pub use other::Foreign;"),
        ("a/mod.rs", "pub mod inner; pub mod user;"),
        ("a/inner.rs", "pub struct Thing;"),
        ("a/user.rs", "use crate::sync::Lock; use super::super::b; fn f() { b::g(); }"),
        ("b.rs", "use crate::{Foreign, Thing}; pub fn g() {}"),
        ("sync.rs", "pub use locks::Lock;"),
    ]);
    assert_eq!(found["b.rs"], set(&["a/inner.rs", "lib.rs"]), "re-exports are followed within the crate");
    assert_eq!(found["a/user.rs"], set(&["b.rs", "sync.rs"]), "what comes from elsewhere stands where it is offered");
    assert_eq!(found["lib.rs"], set(&[]), "handing on is no import");
}

#[test]
fn circles_are_found_and_rooms_have_arrows() {
    let found = imports(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a/mod.rs", "pub mod deep; use deep::Deep; pub struct A(Deep);"),
        ("a/deep.rs", "use crate::b::B; pub struct Deep(B);"),
        ("b.rs", "use crate::a::A; pub struct B(A);"),
        ("c.rs", "use crate::b::B; pub struct C(B);"),
    ]);
    assert_eq!(circles(&found), [set(&["a/deep.rs", "a/mod.rs", "b.rs"])]);
    let rooms = between_rooms(&found);
    assert_eq!(rooms["a"], set(&["b"]));
    assert_eq!(rooms["c"], set(&["b"]));
    assert_eq!(rooms.len(), 3, "the root is no room");
}

#[test]
fn a_part_imports_the_parts_of_base_that_it_names() {
    let found = imports(&[
        ("lib.rs", "mod base; mod low; mod high;"),
        ("base.rs", "base_parts! {\n    low: crate::sync::Mutex<crate::low::Low>;\n}"),
        ("low.rs", "pub struct Low;"),
        (
            "high.rs",
            "use crate::base::part; part! {\n    pub struct High {\n        pub(super) base: other, low\n    }\n}",
        ),
    ]);
    assert_eq!(found["high.rs"], set(&["base.rs", "low.rs"]));
    assert_eq!(found["low.rs"], set(&[]));
}

#[test]
fn fields_are_counted() {
    let text =
        "pub struct Core {\n    /// Not a: field.\n    pub a: A,\n    b: Vec<\n        C,\n    >,\n}\nfn f() {}\n";
    assert_eq!(counts::fields(&sources(&[("lib.rs", text)]).files["lib.rs"].code, "Core"), Some(2));
    assert_eq!(
        counts::listed("list { }\nlist! {\n    a = A();\n    b = B(a,\n        a);\n}\nc = d;", "list!"),
        Some(2)
    );
}
