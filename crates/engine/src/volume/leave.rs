//! The end of a clean unmount: the state from which the next mount continues.

use crate::volume::assembly::Volume;

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
}
