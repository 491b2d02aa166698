//! Keys as a cluster has them. librados takes the place where a scan begins as a text that ends with NUL, and returns
//! the keys after it. So a key is written without NUL, in an order that stays the same, and with a byte at its end,
//! which makes the text before that byte come just before the key.
//!
//! The byte 0 becomes 1 1, the byte 1 becomes 1 2, others stay. Then a 1 ends the key.

/// Begins two bytes that stand for one, and ends a key.
const MARK: u8 = 1;

/// A key without its end: it comes after all smaller keys, and before the key itself.
pub fn before(key: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(key.len() + key.len() / 2 + 1);
    for &byte in key {
        match byte {
            0 | MARK => text.extend([MARK, byte + 1]),
            other => text.push(other),
        }
    }
    text
}

/// A key.
pub fn encode(key: &[u8]) -> Vec<u8> {
    let mut text = before(key);
    text.push(MARK);
    text
}

/// The key of a text. None: no key is written like this.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (end, text) = text.split_last()?;
    let mut key = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        key.push(match byte {
            MARK => bytes.next().copied().filter(|next| (1..=2).contains(next))? - 1,
            0 => return None,
            other => other,
        });
    }
    (*end == MARK).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys of up to three bytes among these.
    fn keys() -> Vec<Vec<u8>> {
        let bytes = [0, 1, 2, 3, 0x7F, 0x80, 0xFF];
        let mut keys = vec![Vec::new()];
        for len in 0..3 {
            let longer = keys
                .iter()
                .filter(|key: &&Vec<u8>| key.len() == len)
                .flat_map(|key| bytes.iter().map(|byte| [key.as_slice(), &[*byte]].concat()).collect::<Vec<_>>());
            let longer: Vec<_> = longer.collect();
            keys.extend(longer);
        }
        keys.sort();
        keys
    }

    #[test]
    fn keys_come_back_and_have_no_nul() {
        for key in keys() {
            let text = encode(&key);
            assert!(!text.contains(&0), "{key:?}");
            assert_eq!(decode(&text), Some(key));
        }
        assert_eq!(encode(&[0, 1, 2, 9]), [1, 1, 1, 2, 2, 9, 1]);
    }

    #[test]
    fn the_order_stays_and_a_place_comes_between_two_keys() {
        let keys = keys();
        for pair in keys.windows(2) {
            assert!(encode(&pair[0]) < encode(&pair[1]), "{pair:?}");
            assert!(encode(&pair[0]) <= before(&pair[1]), "{pair:?}");
            assert!(before(&pair[1]) < encode(&pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [&b""[..], &[2], &[1, 3, 1], &[0, 1], &[1, 1]] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
