//! Writes blocks to their places in the data area: the runs of a request, and blocks that were collected in memory.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::space::allocator::Run;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Collected blocks are written out when there are this many bytes of them.
const STAGED_BYTES_MAX: u64 = 4 << 20;
/// Size of one request to the data area.
pub const REQUEST_BYTES: usize = 1 << 20;

/// Receives the bytes of a device request while the request is under way.
pub type Look<'a> = &'a mut dyn FnMut(&[u8]);

part! {
    /// Writes blocks to the data area.
    pub struct BlockWriter {
        base: data, inline, stats, health, space, staging, state
    }
}

impl BlockWriter {
    /// Writes the next blocks to a run of the data area, in large requests.
    pub fn write_run<'a>(&self, run: Run, blocks: &mut impl Iterator<Item = &'a [u8]>) -> Result<()> {
        self.write_run_while(run, blocks, None)
    }

    /// The same, and passes the bytes of each request to `look` while it is under way.
    pub fn write_run_while<'a>(
        &self,
        run: Run,
        blocks: &mut impl Iterator<Item = &'a [u8]>,
        mut look: Option<Look<'_>>,
    ) -> Result<()> {
        let mut pbn = run.pbn;
        assert!(pbn > Pbn(0), "block 0 of the data area is its label");
        while pbn < run.end() {
            let count = (run.end().0 - pbn.0).min((REQUEST_BYTES / BLOCK_BYTES) as u64);
            let mut buffer = self.data.take_buffer(count as usize * BLOCK_BYTES);
            for (target, block) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(blocks.by_ref().take(count as usize)) {
                target.copy_from_slice(block);
            }
            let timer = self.inline.begin_device_write();
            let written = match &mut look {
                Some(look) => self.data.write_while(pbn, &buffer, &mut || look(&buffer)),
                None => self.data.write(pbn, &buffer),
            };
            self.inline.end_device_write(timer, count);
            written?;
            self.stats.counters.data_bytes_written.fetch_add(buffer.len() as u64, Relaxed);
            pbn = pbn.plus(count);
        }
        Ok(())
    }

    /// Writes staged blocks to the data area, neighbours in one request. On a full host it uses the ballast. A failure
    /// is the volume's, because the blocks were acknowledged.
    pub fn write_out(&self, mut pbns: Vec<Pbn>) -> Result<()> {
        pbns.sort_unstable();
        pbns.dedup();
        let staged: Vec<_> = pbns.iter().filter_map(|pbn| Some((*pbn, self.staging.get(*pbn)?))).collect();
        let follows = |a: &(Pbn, _), b: &(Pbn, _)| a.0.plus(1) == b.0;
        for run in staged.chunk_by(follows) {
            let place = Run { pbn: run[0].0, blocks: run.len() as u64 };
            let blocks = || run.iter().map(|(_, block)| &**block);
            let written = self.space.with_host_room(|| self.write_run(place, &mut blocks()));
            written.inspect_err(|error| self.health.fail(error))?;
        }
        self.staging.remove(pbns);
        Ok(())
    }

    /// After a publication: if too much is staged, the publishing thread writes it out.
    pub fn write_out_if_much(&self) -> Result<()> {
        if self.staging.bytes() < STAGED_BYTES_MAX {
            return Ok(());
        }
        // Begins before the blocks are taken, and outside the publish lock: a commit that waits holds off new
        // write-outs.
        let _under_way = self.data.begin_write_out();
        let pbns = {
            let mut state = self.state.lock();
            // The rest of the staged blocks already rides in the log.
            if ((state.group.staged.len() * BLOCK_BYTES) as u64) < STAGED_BYTES_MAX {
                return Ok(());
            }
            std::mem::take(&mut state.group.staged)
        };
        self.write_out(pbns)
    }
}
