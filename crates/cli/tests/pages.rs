//! The manual pages and completions of packages are made from the command line.

use std::fs;
use std::process::Command;

use crate::common::{Run, oncefs};

/// Writes the pages of the program below a directory.
fn pages() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    oncefs(&["pages", dir.path().to_str().unwrap()]).succeeds();
    dir
}

#[test]
fn every_command_has_a_manual_page_with_its_usage_and_its_notes() {
    let dir = pages();
    let page = |name: &str| fs::read_to_string(dir.path().join("man8").join(format!("{name}.8"))).unwrap();
    let help = oncefs(&["help"]).succeeds().out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        let text = page(&format!("oncefs-{command}"));
        assert!(text.contains(&format!("oncefs {command}")), "{text}");
        assert!(page("oncefs").contains(&format!("oncefs\\-{command}(8)")), "{command} is not in the page of oncefs");
    }
    assert!(page("oncefs-mount").contains("memory=SIZE"), "the options of -o are not in the page");
    assert_eq!(page("fsck.oncefs"), ".so man8/oncefs-fsck.8\n");
    assert_eq!(page("umount.fuse"), ".so man8/oncefs-umount.8\n");
    assert!(!dir.path().join("man8/oncefs-serve.8").exists());
}

/// What bash offers for the word with this number.
fn complete(dir: &tempfile::TempDir, words: &str, last: usize) -> String {
    let script = format!(
        "source {}/completions/oncefs.bash; COMP_WORDS=(oncefs {words}); COMP_CWORD={last}
         _oncefs oncefs \"${{COMP_WORDS[$COMP_CWORD]}}\" \"${{COMP_WORDS[$COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
        dir.path().display()
    );
    Run::of(Command::new("bash").args(["-c", &script])).succeeds().out
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = pages();
    let complete = |words: &str, last: usize| complete(&dir, words, last);
    let commands = complete("m", 1);
    assert!(commands.contains("mkfs") && commands.contains("mount") && !commands.contains("serve"), "{commands}");
    let options = complete("scrub --", 2);
    assert!(options.contains("--"), "{options}");
    assert!(!complete("umount -", 2).split_whitespace().any(|option| option == "-N"), "a hidden option is offered");
}

#[test]
fn bash_completes_the_values_of_options() {
    let dir = pages();
    for (words, last, value) in [
        ("mkfs --profile ser", 3, "server"),
        ("mount --log-level d", 3, "debug"),
        ("mount -o noa", 3, "noatime"),
        ("mount -o verify", 3, "verify=read"),
        ("tune /mnt work", 3, "worker=always"),
        ("policy set /mnt/scratch la", 4, "later"),
    ] {
        let completed = complete(&dir, words, last);
        assert!(completed.split_whitespace().any(|word| word == value), "{words}: {completed}");
    }
}

/// The text of every manual page that is not a reference, in one line without escapes.
fn texts() -> Vec<(String, String)> {
    let dir = pages();
    let entries = fs::read_dir(dir.path().join("man8")).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path)
            .unwrap()
            .replace("\\-", "-")
            .replace("\\&", "")
            .replace("\\fR", "")
            .replace("\\fB", "");
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), text)
    };
    entries.map(read).filter(|(_, text)| !text.starts_with(".so ")).collect()
}

#[test]
fn every_page_has_exit_codes_and_names_only_files_that_the_package_has() {
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [
        ("/usr/share/doc/oncefs/", ""),
        ("/usr/share/oncefs/schema/", "docs/schema/"),
        ("/usr/share/oncefs/", "contrib/"),
        ("/lib/systemd/system/", "packaging/systemd/"),
    ];
    for (name, text) in texts() {
        assert!(text.contains("EXIT STATUS") && text.contains("SEE ALSO"), "{name}:\n{text}");
        for word in text.split([' ', ',', '\n']).map(|word| word.trim_end_matches('.')) {
            let Some((place, source)) = places.iter().find(|(place, _)| word.starts_with(place)) else { continue };
            let file = word.replace(place, source).replace("examples", "packaging/examples");
            assert!(repository.join(&file).exists(), "{name} names {word}, but there is no {file}");
        }
    }
}

#[test]
fn pages_name_only_pages_of_oncefs_that_exist() {
    let texts = texts();
    for (name, text) in &texts {
        let named = text.split([' ', ',', '\n']).filter_map(|word| word.split_once("(8)")).map(|(page, _)| page);
        for page in named.filter(|page| page.starts_with("oncefs")) {
            assert!(texts.iter().any(|(other, _)| other == page), "{name} names {page}(8)");
        }
    }
}
