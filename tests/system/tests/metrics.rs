//! `-o metrics`: the daemon of a real mount answers Prometheus, and a port in use is an error of mount.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, test_dir};

/// What the daemon answers to a GET, without its head. Empty: it hung up, as it does if too many ask.
fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[test]
fn prometheus_is_answered_on_an_address_that_was_bound_before_the_daemon_was_confined() {
    let mount = Mount::on(&test_dir(), "1G", &["metrics=127.0.0.1:0"]);
    let log = mount.logged();
    let (_, after) = log.split_once("metrics: http://").unwrap_or_else(|| panic!("{log}"));
    let address = after.split('/').next().unwrap();
    fs::write(mount.join("file"), bytes(1, 1 << 20)).unwrap();
    fs::File::open(mount.join("file")).unwrap().sync_all().unwrap();
    // Clients that say nothing keep nobody from the mount.
    let silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(fs::read(mount.join("file")).unwrap().len(), 1 << 20);
    drop(silent);
    let (mut text, sample) = (String::new(), format!("mount=\"{}\"}} 1048576", mount.dir().display()));
    eventually("the figures are of now", || {
        text = get(address).unwrap_or_default();
        text.lines().any(|line| line.starts_with("oncefs_held_bytes{") && line.ends_with(&sample))
    });
    assert!(text.contains("oncefs_stage_duration_seconds_bucket{"), "{text}");
}

#[test]
fn a_port_in_use_is_an_error_of_mount_and_leaves_nothing_mounted() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mount = Mount::unmounted(&test_dir(), "256M", &[]);
    let option = format!("metrics={}", taken.local_addr().unwrap());
    let output =
        Command::new(oncefs()).args(["mount", "-o", &option]).arg(mount.volume()).arg(mount.dir()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("cannot listen on 127.0.0.1:"), "{said}");
    mount.assert_clean();
}
