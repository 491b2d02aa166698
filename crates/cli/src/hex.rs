//! Bytes in hexadecimal, for answers of the daemon.

/// Two digits for each byte.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).expect("four bits are a digit");
    bytes.as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of such a text. None: it is no such text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_other_texts_are_refused() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!((encode([0x0f, 0xa0]), decode("")), ("0fa0".to_owned(), Some(Vec::new())));
        for text in ["0", "0g", "+1", "0x", "\u{e4}"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
