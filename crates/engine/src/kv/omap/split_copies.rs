//! Copies of records to a new object that were submitted and not awaited yet. Their number and their bytes are bounded,
//! and all are awaited, also after one failed.

use std::collections::VecDeque;

use oncefs_rados::{Error, Pending};

/// Copies in flight.
const COPIES_MAX: usize = 4;
/// Bytes in flight, unless a single copy has more.
const BYTES_MAX: usize = 4 << 20;

/// The copies in flight, oldest first.
#[derive(Default)]
pub struct Copies {
    pending: VecDeque<(usize, Box<dyn Pending>)>,
    bytes: usize,
    /// The first one, in the order of submission.
    error: Option<Error>,
}

impl Copies {
    /// Waits until a copy of so many bytes may follow. False: one failed, so none should.
    pub fn wait_for_room(&mut self, bytes: usize) -> bool {
        while self.pending.len() >= COPIES_MAX || self.bytes + bytes > BYTES_MAX {
            if !self.wait_for_oldest() {
                break;
            }
        }
        self.error.is_none()
    }

    /// Adds a copy that was submitted.
    pub fn add(&mut self, bytes: usize, copy: Box<dyn Pending>) {
        self.bytes += bytes;
        self.pending.push_back((bytes, copy));
    }

    /// Waits for all of them.
    pub fn land(mut self) -> Result<(), Error> {
        while self.wait_for_oldest() {}
        self.error.map_or(Ok(()), Err)
    }

    /// False: none is in flight.
    fn wait_for_oldest(&mut self) -> bool {
        let Some((bytes, copy)) = self.pending.pop_front() else { return false };
        self.bytes -= bytes;
        if let Err(error) = copy.wait() {
            self.error.get_or_insert(error);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::records_index::object;

    /// A copy that refers to a count until it is dropped, right after it was awaited.
    struct Flying {
        _count: Arc<()>,
        result: Result<(), Error>,
    }

    impl Pending for Flying {
        fn wait(&self) -> Result<(), Error> {
            self.result.clone()
        }

        fn is_done(&self) -> bool {
            true
        }
    }

    fn in_flight(flying: &Arc<()>) -> usize {
        Arc::strong_count(flying) - 1
    }

    #[test]
    fn copies_in_flight_are_bounded_in_number_and_in_bytes() {
        for (bytes, most) in [(1, COPIES_MAX), (BYTES_MAX / 2, 2), (BYTES_MAX / 2 + 1, 1), (3 * BYTES_MAX, 1)] {
            let (mut copies, flying) = (Copies::default(), Arc::new(()));
            for n in 0..10 {
                assert!(copies.wait_for_room(bytes));
                copies.add(bytes, Box::new(Flying { _count: flying.clone(), result: Ok(()) }));
                assert_eq!(in_flight(&flying), most.min(n + 1), "{bytes} bytes each");
            }
            copies.land().unwrap();
            assert_eq!(in_flight(&flying), 0);
        }
    }

    #[test]
    fn all_copies_are_awaited_and_the_first_error_returns() {
        let (mut copies, flying) = (Copies::default(), Arc::new(()));
        for result in [Ok(()), Err(Error::Full), Err(Error::NotFound(object(1))), Ok(())] {
            assert!(copies.wait_for_room(1));
            copies.add(1, Box::new(Flying { _count: flying.clone(), result }));
        }
        assert!(copies.wait_for_room(1), "the first one went well");
        copies.add(1, Box::new(Flying { _count: flying.clone(), result: Ok(()) }));
        assert!(!copies.wait_for_room(1));
        assert_eq!((copies.land(), in_flight(&flying)), (Err(Error::Full), 0));
    }
}
