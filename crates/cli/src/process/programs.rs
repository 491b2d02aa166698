//! Programs of the system that commands run.

use std::ffi::OsStr;
use std::process::Command;

/// Where root's programs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program of the system. It is found even without a PATH: mount(8) of Debian 12 gives its helpers none.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", PATH);
    }
    command
}
