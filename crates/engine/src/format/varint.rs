//! Variable-length numbers: seven bits per byte, low bits first; the top bit means "more follows".

/// Appends `value`, in 1 to 10 bytes.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed difference; small ones of either sign take one byte.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Reads a number and moves `bytes` past it. None: the bytes end too early, or the number is too long.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7F);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a signed difference.
pub fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let value = take(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Takes `len` raw bytes.
pub fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_in_its_shortest_form() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), (64 - (value | 1).leading_zeros() as usize).div_ceil(7));
            let mut rest = out.as_slice();
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(take_signed(&mut out.as_slice()), Some(value));
        }
    }

    #[test]
    fn cut_and_overlong_numbers_are_refused() {
        assert_eq!(take(&mut [0x80u8].as_slice()), None);
        assert_eq!(take(&mut [0xFFu8; 10].as_slice()), None);
        assert_eq!(take(&mut [0x80u8; 11].as_slice()), None);
    }
}
