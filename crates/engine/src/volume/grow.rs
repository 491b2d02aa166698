//! Grows a volume: its devices first, then the totals that count the new space.

use oncefs_dedup::Compress;

use crate::format::fragment::{FIRST_NUMBER, FIRST_PAGE};
use crate::format::group_bytes::GroupBytes;
use crate::format::page::table_bytes;
use crate::state::published::Plan;
use crate::volume::assembly::Volume;
use crate::volume::files::DATA_BLOCKS_MAX;
use crate::{BLOCK_BYTES, Blocks, Error, Result};

impl Volume {
    /// See [`crate::Store::grow`]. The new space is durable before the totals that count it.
    pub fn grow(&self, data_bytes: u64) -> Result<()> {
        self.base.health.usable()?;
        let data = Blocks(data_bytes / BLOCK_BYTES as u64);
        let now = self.base.state.lock().totals.data;
        if data.0 > DATA_BLOCKS_MAX {
            return Err(Error::Invalid(format!("the data area can have at most {} blocks", DATA_BLOCKS_MAX)));
        }
        if data < now {
            return Err(Error::Invalid(format!("the data area has {} bytes already; it cannot shrink", now.bytes())));
        }
        let compresses = self.base.tuning.with(|settings| settings.compress != Compress::Off);
        let has_fragments = compresses || self.base.stored.fragment_pages_end()? > FIRST_PAGE;
        if has_fragments && data.0 > FIRST_NUMBER {
            let most = Blocks(FIRST_NUMBER).bytes();
            return Err(Error::Invalid(format!("a data area with compressed blocks can have at most {most} bytes")));
        }
        self.base.data.grow(data)?;
        self.base.stored.grow_table(table_bytes(data))?;
        if !has_fragments {
            self.base.hints.grow_disk_level(data);
        }
        self.publisher.claim_and_apply(GroupBytes::SMALL, Plan { grow_to: Some(data), ..Plan::default() })?;
        self.commits.commit()?;
        self.base.space.grow(data);
        self.work_loop.follow_data(data)
    }
}
