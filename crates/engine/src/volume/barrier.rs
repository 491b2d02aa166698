//! Barriers: callers that wait until what was published is durable.

use crate::background::committer::tell;
use crate::signals::requests::Done;
use crate::volume::assembly::Volume;

impl Volume {
    /// See [`crate::Store::barrier`]. The first waiter commits inline. Waiters that come meanwhile are answered
    /// together, by the committer.
    pub fn barrier(&self, done: Done) {
        if !self.base.signals.begin_commit() {
            return self.base.signals.barrier(done);
        }
        let result = self.commits.commit();
        self.base.signals.end_commit();
        tell(self, &result, vec![done]);
    }
}
