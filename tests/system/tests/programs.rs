//! What people run: git, a busy database, a compiler, rsync, tar.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use oncefs_system_tests::{Mount, run};

fn shell(dir: &Path, script: &str) -> String {
    run(Command::new("bash").args(["-euo", "pipefail", "-c", script]).current_dir(dir))
}

/// Where cargo runs the test, which need not be where it was built: checkouts share a target directory.
fn repository() -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn git_clones_commits_and_finds_nothing_wrong() {
    let mut mount = Mount::new("4G");
    let source = repository();
    // From the sources alone, so that a tree without its history can be tested too.
    shell(
        &mount.dir(),
        &format!(
            "git init -q origin && cd origin && cp -a {0}/crates {0}/Cargo.toml {0}/Cargo.lock . &&
             git add . && git -c user.name=t -c user.email=t@example.org commit -qm first &&
             git clone -q --no-local . ../clone && cd ../clone && git fsck --strict && git gc -q && git status --porcelain",
            source.display()
        ),
    );
    mount.check();
    shell(&mount.join("clone"), "git fsck --strict && test -z \"$(git status --porcelain)\"");
}

#[test]
fn a_busy_database_stays_whole() {
    let mut mount = Mount::new("2G");
    for mode in ["wal", "delete"] {
        let database = mount.join(format!("{mode}.db"));
        sql(
            &database,
            &format!("PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, writer INT, data BLOB);"),
        );
        thread::scope(|scope| {
            for writer in 0..3 {
                let database = &database;
                scope.spawn(move || insert_repeatedly(database, writer));
            }
        });
        assert_eq!(sql(&database, "SELECT count(*) FROM t;").trim(), "600");
    }
    mount.check();
    for mode in ["wal", "delete"] {
        let database = mount.join(format!("{mode}.db"));
        assert_eq!(sql(&database, "PRAGMA integrity_check; SELECT count(*) FROM t;").trim(), "ok\n600");
    }
}

fn sql(database: &Path, statements: &str) -> String {
    run(Command::new("sqlite3").args(["-bail", "-cmd", ".timeout 60000"]).arg(database).arg(statements))
}

fn insert_repeatedly(database: &Path, writer: u32) {
    for _ in 0..20 {
        let insert = format!("INSERT INTO t(writer, data) VALUES({writer}, randomblob(1500));\n").repeat(10);
        sql(database, &format!("BEGIN IMMEDIATE;{insert}COMMIT;"));
    }
}

const MAKEFILE: &str = "objects = $(patsubst %.c,%.o,$(wildcard *.c))
program: $(objects)
\t$(CC) -o $@ $^
%.o: %.c common.h
\t$(CC) -O1 -c -o $@ $<
";

fn write_c_project(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("Makefile"), MAKEFILE).unwrap();
    let mut header = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for number in 0..40 {
        header += &format!("int f{number}(int x);\n");
        calls += &format!("sum += f{number}({number});");
        let body = format!("#include \"common.h\"\nint f{number}(int x) {{ return x * {number}; }}\n");
        fs::write(dir.join(format!("f{number}.c")), body).unwrap();
    }
    fs::write(dir.join("common.h"), header).unwrap();
    let main =
        format!("#include \"common.h\"\nint main(void) {{ int sum = 0; {calls} printf(\"%d\\n\", sum); return 0; }}\n");
    fs::write(dir.join("main.c"), main).unwrap();
}

#[test]
fn a_c_project_builds_runs_and_is_not_built_again_without_need() {
    let mut mount = Mount::new("2G");
    let project = mount.join("project");
    write_c_project(&project);
    shell(&project, "make -s -j2");
    let sum: u32 = (0..40).map(|n| n * n).sum();
    assert_eq!(shell(&project, "./program").trim(), sum.to_string());
    mount.check();
    assert!(shell(&project, "make").contains("up to date"), "times must survive a remount");
    assert_eq!(shell(&project, "./program").trim(), sum.to_string());
}

#[test]
fn rsync_and_tar_find_a_copied_tree_equal_in_content_and_attributes() {
    let mut mount = Mount::new("4G");
    let (tree, copy) = (Path::new("/usr/include"), mount.join("include"));
    shell(&mount.dir(), &format!("cp -a {} include && cp -a include second", tree.display()));
    mount.remount();
    for name in ["include", "second"] {
        let difference = shell(
            &mount.dir(),
            &format!("rsync -aHAX -c --dry-run --itemize-changes --delete {}/ {name}/", tree.display()),
        );
        assert_eq!(difference, "", "rsync sees differences");
    }
    shell(&copy, "tar --xattrs --acls -cf ../include.tar . && tar --compare -f ../include.tar");
    shell(
        &mount.dir(),
        "mkdir third && tar --xattrs --acls -xpf include.tar -C third && diff -r --no-dereference include third",
    );
    mount.check();
}
