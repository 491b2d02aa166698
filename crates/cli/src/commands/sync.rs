//! `oncefs sync`: makes everything written to a mounted volume durable.

use std::path::PathBuf;

use clap::Args;

use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::Outcome;

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Any path inside a mount
    pub target: PathBuf,
}

/// Makes everything written so far durable. The kernel's dirty pages go to the daemon first.
pub fn run(arguments: SyncArgs) -> Outcome {
    let daemon = Daemon::find(&arguments.target)?;
    daemon.write_back()?;
    daemon.ask(Request::Commit)
}
