//! Who has a lock of the object with locks.

use std::ffi::c_char;

use crate::Result;
use crate::io_context::Context;
use crate::librados::c_text;

/// The object with the locks.
pub const LOCK_OBJECT: &str = "lock";
/// Room for each list of texts.
const TEXTS_BYTES_MAX: usize = 16_384;

/// A client that has a lock.
pub struct Locker {
    pub client: String,
    pub cookie: String,
    pub address: String,
}

/// All clients that have this lock. One whose time ran out has it no more.
pub fn lockers(context: &Context, lock: &str) -> Result<Vec<Locker>> {
    let (object, name) = (c_text(LOCK_OBJECT), c_text(lock));
    let mut is_exclusive = 0;
    let mut texts = vec![vec![0 as c_char; TEXTS_BYTES_MAX]; 4];
    let mut lens = [TEXTS_BYTES_MAX; 4];
    let [tag, clients, cookies, addresses] = &mut texts[..] else { unreachable!("four were made") };
    let [tag_len, clients_len, cookies_len, addresses_len] = &mut lens;
    // SAFETY: the context is open, the names end with NUL, and each buffer has the length beside it.
    let count = unsafe {
        (context.library.rados_list_lockers)(
            context.handle,
            object.as_ptr(),
            name.as_ptr(),
            &mut is_exclusive,
            tag.as_mut_ptr(),
            tag_len,
            clients.as_mut_ptr(),
            clients_len,
            cookies.as_mut_ptr(),
            cookies_len,
            addresses.as_mut_ptr(),
            addresses_len,
        )
    };
    let count = context.check(count as i32, "looking at the lock", LOCK_OBJECT)?;
    let [clients, cookies, addresses] = [clients, cookies, addresses].map(|list| split(list));
    let all = clients.into_iter().zip(cookies).zip(addresses);
    Ok(all.map(|((client, cookie), address)| Locker { client, cookie, address }).take(count).collect())
}

/// Texts of which each ends with NUL.
fn split(texts: &[c_char]) -> Vec<String> {
    let bytes: Vec<u8> = texts.iter().map(|byte| *byte as u8).collect();
    bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_texts_are_told_apart() {
        let texts: Vec<c_char> = b"client.1\0client.22\0\0\0".iter().map(|byte| *byte as c_char).collect();
        assert_eq!(split(&texts)[..2], ["client.1", "client.22"]);
    }
}
