//! Keys with values in the objects of a pool.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::slice;
use std::sync::Arc;

use crate::completion::Completion;
use crate::io_context::Context;
use crate::key_lists::Texts;
use crate::key_text;
use crate::keys::{KeyLookUp, KeyScan, KeyedObjects, Pair, Portion, SCANNED_KEYS_MAX};
use crate::librados::{Handle, c_text};
use crate::{Error, Pool, Result};

/// Where librados puts the results of a read of keys.
struct Results {
    pairs: Handle,
    has_more: u8,
    answer: c_int,
}

/// A read of keys under way. The results are in a box, because librados keeps their places.
struct Reading {
    context: Arc<Context>,
    object: String,
    results: Box<Results>,
    completion: Option<Arc<Completion>>,
}

impl Reading {
    /// Begins a read. `add` adds it to an operation, and is the only one to do so.
    fn begin(context: &Arc<Context>, object: &str, add: impl FnOnce(Handle, &mut Results)) -> Self {
        let library = context.library;
        let mut results = Box::new(Results { pairs: ptr::null_mut(), has_more: 0, answer: 0 });
        // SAFETY: the function has no arguments.
        let operation = unsafe { (library.rados_create_read_op)() };
        add(operation, &mut results);
        let name = c_text(object);
        let completion = Completion::begin(library, |completion| {
            // SAFETY: operation, context and completion are valid, and the name ends with NUL. The results stay in
            // their box until this read is dropped, which waits for the completion.
            unsafe { (library.rados_aio_read_op_operate)(operation, context.handle, completion, name.as_ptr(), 0) }
        });
        // SAFETY: made above and released once; librados took over what it needs when it was submitted.
        unsafe { (library.rados_release_read_op)(operation) };
        Self { context: context.clone(), object: object.to_owned(), results, completion: Some(completion) }
    }

    fn wait(&mut self) -> c_int {
        self.completion.take().map_or(0, |completion| self.context.wait(&completion))
    }

    /// Waits, and takes the pairs.
    fn take(mut self) -> Result<Portion> {
        let answer = self.wait();
        self.context.check(answer, "reading keys of", &self.object)?;
        self.context.check(self.results.answer, "reading keys of", &self.object)?;
        let mut pairs = Vec::new();
        while let Some((text, value)) = self.next_pair()? {
            let foreign = || Error::Failed { what: format!("reading keys of {}", self.object), code: libc::EBADMSG };
            pairs.push((key_text::decode(&text).ok_or_else(foreign)?, value));
        }
        Ok(Portion { pairs, has_more: self.results.has_more != 0 })
    }

    fn next_pair(&self) -> Result<Option<Pair>> {
        let (mut key, mut value) = (ptr::null_mut::<c_char>(), ptr::null_mut::<c_char>());
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the read was made, so the iterator is valid. All results are writable.
        let answer = unsafe {
            let next = self.context.library.rados_omap_get_next2;
            next(self.results.pairs, &mut key, &mut value, &mut key_len, &mut value_len)
        };
        self.context.check(answer, "reading keys of", &self.object)?;
        let bytes = |place: *mut c_char, len| match place.is_null() || len == 0 {
            true => Vec::new(),
            // SAFETY: librados keeps so many bytes there until the next call.
            false => unsafe { slice::from_raw_parts(place.cast::<u8>(), len) }.to_vec(),
        };
        Ok((!key.is_null()).then(|| (bytes(key, key_len), bytes(value, value_len))))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.wait();
        // SAFETY: librados made the list of pairs when the read was added, and it is given back once, after the read.
        unsafe { (self.context.library.rados_omap_get_end)(self.results.pairs) };
    }
}

impl KeyedObjects for Pool {
    fn scan_all(&self, scans: &mut [KeyScan<'_>]) {
        let library = self.0.library;
        let begin = |scan: &KeyScan<'_>| {
            let from = key_text::before(scan.from);
            // No key of ours has a NUL.
            let from = std::ffi::CString::new(from).expect("the text of a key has no NUL");
            let limit = scan.limit.min(SCANNED_KEYS_MAX) as u64;
            Reading::begin(&self.0, &scan.object, |operation, results| {
                let Results { pairs, has_more, answer } = results;
                // SAFETY: the operation is valid, both texts end with NUL and are copied, and the results stay.
                unsafe {
                    let scan = library.rados_read_op_omap_get_vals2;
                    scan(operation, from.as_ptr(), c"".as_ptr(), limit, pairs, has_more, answer);
                }
            })
        };
        let begun: Vec<Reading> = scans.iter().map(begin).collect();
        for (scan, reading) in scans.iter_mut().zip(begun) {
            scan.result = reading.take();
        }
    }

    fn look_up_all(&self, look_ups: &mut [KeyLookUp<'_>]) {
        let library = self.0.library;
        let begin = |look_up: &KeyLookUp<'_>| {
            let keys: Vec<Vec<u8>> = look_up.keys.iter().map(|key| key_text::encode(key)).collect();
            let names = Texts::of(keys.iter().map(Vec::as_slice));
            Reading::begin(&self.0, &look_up.object, |operation, results| {
                let Results { pairs, answer, .. } = results;
                // SAFETY: the operation is valid; librados copies the keys, whose places and lengths are in these
                // lists, and the results stay.
                unsafe {
                    let look_up = library.rados_read_op_omap_get_vals_by_keys2;
                    look_up(operation, names.places.as_ptr(), keys.len(), names.lens.as_ptr(), pairs, answer);
                }
            })
        };
        let begun: Vec<Reading> = look_ups.iter().map(begin).collect();
        for (look_up, reading) in look_ups.iter_mut().zip(begun) {
            look_up.result = reading.take().map(|portion| portion.pairs);
        }
    }
}
