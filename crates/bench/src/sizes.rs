//! Sizes as people write them.

/// Reads `4096`, `512K`, `64M` or `8G` (powers of 1024) as bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(format!("`{unit}` is not a unit: use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size: write for example 512M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more than 64 bits can hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("3M"), Ok(3 << 20));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
    }

    #[test]
    fn what_is_no_size_is_refused_with_a_hint() {
        assert!(parse_bytes("M").is_err());
        assert!(parse_bytes("5X").is_err());
        assert!(parse_bytes("99999999T").is_err());
    }
}
