//! Flags of chattr(1) in streams: they arrive, and those that forbid changes stand in the way of no receive.

use super::*;

fn chattr(flags: &str, path: &Path) {
    run(Command::new("chattr").arg(flags).arg(path));
}

/// The flags of everything below a directory, and of itself, by path.
fn listed(top: &Path) -> Vec<String> {
    let list = |options: &str, dir: &Path| run(Command::new("lsattr").arg(options).arg(".").current_dir(dir));
    let below = list("-aR", top);
    let flags = |line: &str| {
        let (flags, path) = line.split_once(' ')?;
        path.starts_with("./").then(|| format!("{} {path}", flags.replace('-', "")))
    };
    let mut all: Vec<String> = below.lines().filter_map(flags).filter(|line| !line.ends_with("/..")).collect();
    all.push(list("-d", top).replace('-', ""));
    all.sort();
    all
}

/// A tree whose top, a directory and some files have flags.
fn make_flagged(top: &Path) {
    fs::create_dir_all(top.join("fixed/inner")).unwrap();
    for name in ["fixed/inner/file", "a-log", "quiet", "z-fixed"] {
        fs::write(top.join(name), bytes(1, 3 * 4096)).unwrap();
    }
    fs::hard_link(top.join("z-fixed"), top.join("fixed/again")).unwrap();
    fs::write(top.join("zz-last"), bytes(2, 400 * 4096)).unwrap();
    chattr("+a", &top.join("a-log"));
    chattr("+dA", &top.join("quiet"));
    chattr("+i", &top.join("z-fixed"));
    chattr("+iA", &top.join("fixed"));
    chattr("+i", top);
}

#[test]
fn flags_arrive_also_where_the_receive_was_interrupted() {
    let mut pair = Pair::new();
    make_flagged(&pair.from.join("tree"));
    let stream = pair.send("tree", &[]);
    pair.receive_all("copy", &stream);
    let expected = listed(&pair.from.join("tree"));
    assert_eq!(listed(&pair.to.join("copy")), expected);
    assert_eq!(expected.iter().filter(|line| !line.starts_with(' ')).count(), 8, "{expected:?}");
    pair.assert_equal("tree", "copy");

    refused(&pair.receive("rest", &stream[..stream.len() / 2], &[]));
    pair.receive_all("rest", &pair.send("tree", &["--resume", &pair.token("rest")]));
    assert_eq!(listed(&pair.to.join("rest")), expected);
    pair.assert_nothing_is_left();
    pair.to.check();
    assert_eq!(listed(&pair.to.join("rest")), expected);
}

#[test]
fn a_tree_with_flags_that_cannot_get_its_name_goes_on_or_is_given_up() {
    let pair = Pair::new();
    make_flagged(&pair.from.join("tree"));
    let stream = pair.send("tree", &[]);
    for gives_up in [false, true] {
        let mut child = fed(&pair, "copy", &stream[..stream.len() - 1]);
        fs::create_dir(pair.to.join("copy")).unwrap();
        child.stdin.take().unwrap().write_all(&stream[stream.len() - 1..]).unwrap();
        assert!(!child.wait().unwrap().success(), "it took a name that was taken");
        fs::remove_dir(pair.to.join("copy")).unwrap();
        if gives_up {
            assert!(receive(&pair.to.dir(), "copy", &["--discard"]).status().unwrap().success());
            pair.assert_nothing_is_left();
        } else {
            pair.receive_all("copy", &pair.send("tree", &["--resume", &pair.token("copy")]));
            assert_eq!(listed(&pair.to.join("copy")), listed(&pair.from.join("tree")));
            chattr("-i", &pair.to.join("copy"));
            fs::rename(pair.to.join("copy"), pair.to.join("first")).unwrap();
        }
    }
}
