//! The end of a clean unmount: the state from which the next mount continues.

use oncefs_dedup::Compress;

use crate::Result;
use crate::format::fragment::FIRST_PAGE;
use crate::format::page::pbns_of;
use crate::format::{file_policy, keys};
use crate::volume::assembly::Volume;

/// Pages of fragments that are looked at together.
const PORTION_PAGES: u64 = 256;
/// Records that are looked at together.
const PORTION_RECORDS: usize = 1_024;

impl Volume {
    /// At a clean unmount, after the last publication: writes the state from which the next mount continues.
    pub fn leave_cleanly(&self) {
        self.hint_levels.write_out_hints();
        let sequence = self.base.state.lock().durable_sequence;
        // A backlog that is off does not know which blocks were skipped.
        if self.base.backlog.is_on() {
            self.backlog_notes.checkpoint_backlog(sequence);
        }
        self.base.stored.settle_records();
    }

    /// Whether the volume has a table of fragments that it needs no more: nothing is compressed, and nothing is going
    /// to be. Call it after a checkpoint. The totals alone do not prove it: after damage they may be wrong.
    pub fn can_forget_fragments(&self) -> Result<bool> {
        let compresses = self.base.tuning.with(|settings| settings.compress) != Compress::Off;
        let stored = &self.base.stored;
        if compresses || !stored.has_fragments() || self.base.state.lock().fragment_totals.fragments > 0 {
            return Ok(false);
        }
        if self.has_compression_policy()? {
            log::warn!(
                "nothing is compressed any more, but files have a policy of their own for compression, which earlier \
                 versions take for damaged: the volume keeps its format until these policies are set to compress=none"
            );
            return Ok(false);
        }
        let end = stored.fragment_pages_end()?;
        let mut at = FIRST_PAGE;
        while at < end {
            let Some(first) = stored.next_written_page(at)?.filter(|first| *first < end) else { break };
            let count = PORTION_PAGES.min(end - first);
            for (number, page) in stored.read_pages(first, count as usize)? {
                if page.damaged_sectors() != 0 || pbns_of(number).any(|pbn| page.count(pbn) > 0) {
                    return Ok(false);
                }
            }
            at = first + count;
        }
        Ok(true)
    }

    /// Whether any file has a policy of its own for compression.
    fn has_compression_policy(&self) -> Result<bool> {
        let (mut from, to) = keys::all_file_policies();
        loop {
            let records = self.metadata.scan(&from, &to, PORTION_RECORDS)?;
            let policy = |(key, value): &(Vec<u8>, Vec<u8>)| file_policy::decode(keys::parse_file_policy(key)?, value);
            if records.iter().filter_map(policy).any(|policy| policy.compress.is_some()) {
                return Ok(true);
            }
            let Some((last, _)) = records.last().filter(|_| records.len() == PORTION_RECORDS) else { return Ok(false) };
            from = [last.as_slice(), &[0]].concat();
        }
    }
}
