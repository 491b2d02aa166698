//! Walks over records of the store, a page at a time.

use std::ops::ControlFlow;

use oncefs_engine::Store;

use crate::Result;
use crate::format::codec::after;

/// A callback that takes the key and value of a record, and may end the walk.
pub(crate) type EachRecord<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Calls `each` with every record with `from <= key < to`, in the order of keys. Fetches `page_records` at a time.
pub(crate) fn for_each_record(
    store: &Store,
    from: Vec<u8>,
    to: &[u8],
    page_records: usize,
    each: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    for_each_record_while(store, from, to, page_records, &mut |key, value| {
        each(key, value);
        ControlFlow::Continue(())
    })
}

/// The same until `each` breaks off.
pub(crate) fn for_each_record_while(
    store: &Store,
    mut from: Vec<u8>,
    to: &[u8],
    page_records: usize,
    each: &mut EachRecord<'_>,
) -> Result<()> {
    assert!(page_records > 0, "a walk that fetches no records never ends");
    loop {
        let page = store.scan(&from, to, page_records)?;
        debug_assert!(page.len() <= page_records, "asked for {page_records} records and got {}", page.len());
        if page.iter().try_for_each(|(key, value)| each(key, value)).is_break() {
            return Ok(());
        }
        match page.last() {
            Some((key, _)) if page.len() == page_records => from = after(key),
            _ => return Ok(()),
        }
    }
}
