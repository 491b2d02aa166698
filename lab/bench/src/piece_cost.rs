//! Lets a mount measure what a piece costs while its device is limited, so that budgets apply as on a slow device.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::aligned::BLOCK_BYTES;
use crate::content::Content;
use crate::failure::{Result, tell};
use crate::files::{self, open};
use crate::measure::Latencies;
use crate::side::Side;
use crate::signal;
use crate::throttle::{Limits, Throttle};

/// Data to be read: more than the 64 MiB that oncefs asks for.
const DATA_BYTES: usize = 96 << 20;
/// The probe begins once the mount is idle for two seconds, and takes one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Writes data and waits until the mount has measured with it, the device limited. What has no budget has no use for it.
/// A mount does not measure while the machine is busy; then it goes on with what it assumes.
pub fn learn(side: &Side, limits: Limits) -> Result<()> {
    let has_budget = side.stats()?.setting("read_slowdown_percent_max").is_ok();
    if !has_budget {
        return Ok(());
    }
    // Nothing of it is written again.
    let content = Content::new(u64::MAX, DATA_BYTES / BLOCK_BYTES, 0, 0)?;
    let file = open(&side.root().join("piece-cost"), true)?;
    files::write_all(&file, &content, &mut Latencies::with_capacity(content.blocks()))?;
    let throttle = Throttle::apply(limits, side.device_numbers()?)?;
    let began = Instant::now();
    while !side.piece_cost()?.is_measured && began.elapsed() < WAIT_MAX {
        signal::check()?;
        sleep(LOOK_EVERY);
    }
    drop(throttle);
    if !side.piece_cost()?.is_measured {
        tell("the mount did not measure what a piece costs: is another program busy?");
    }
    Ok(())
}
