//! Questions to the monitors of a cluster.

use std::ptr;
use std::slice;

use crate::librados::c_text;
use crate::{Cluster, Error, Result};

/// How long librados waits for the monitors' answer to a question. The option is set only here: a fence, which a head
/// sends before its first question, waits for as long as it takes.
const PATIENCE: (&str, &str) = ("rados_mon_op_timeout", "30");

impl Cluster {
    /// Sends a command in JSON, and returns its output. `what` is for messages.
    pub(crate) fn ask_monitor(&self, command: &str, what: &str) -> Result<Vec<u8>> {
        self.set(PATIENCE.0, PATIENCE.1)?;
        let command = c_text(command);
        let (mut output, mut output_len) = (ptr::null_mut(), 0);
        let (mut status, mut status_len) = (ptr::null_mut(), 0);
        // SAFETY: the connection is open, there is one command, which ends with NUL, and no input. The results are
        // writable.
        let answer = unsafe {
            let ask = self.library.rados_mon_command;
            let (commands, input) = ([command.as_ptr()], ptr::null());
            let results = (&raw mut output, &raw mut output_len, &raw mut status, &raw mut status_len);
            ask(self.handle, commands.as_ptr(), 1, input, 0, results.0, results.1, results.2, results.3)
        };
        let bytes = match output.is_null() {
            true => Vec::new(),
            // SAFETY: librados made the buffer, of this length.
            false => unsafe { slice::from_raw_parts(output.cast::<u8>(), output_len) }.to_vec(),
        };
        for buffer in [output, status] {
            // SAFETY: librados made the buffer, or it is null, and it is freed once.
            unsafe { (self.library.rados_buffer_free)(buffer) };
        }
        Error::check(answer, "asking the monitors for", what).map(|_| bytes)
    }
}
