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
    assert!(!dir.path().join("man8/oncefs-serve.8").exists());
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = pages();
    let complete = |words: &str, last: usize| {
        let script = format!(
            "source {}/completions/oncefs.bash; COMP_WORDS=(oncefs {words}); COMP_CWORD={last}
             _oncefs oncefs \"${{COMP_WORDS[$COMP_CWORD]}}\"; echo \"${{COMPREPLY[@]}}\"",
            dir.path().display()
        );
        Run::of(Command::new("bash").args(["-c", &script])).succeeds().out
    };
    let commands = complete("m", 1);
    assert!(commands.contains("mkfs") && commands.contains("mount") && !commands.contains("serve"), "{commands}");
    let options = complete("scrub --", 2);
    assert!(options.contains("--"), "{options}");
}
