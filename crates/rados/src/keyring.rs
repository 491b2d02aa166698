//! The secret key of a user in a keyring file: sections `[client.ID]` with lines `key = SECRET`.

/// The key of a user.
pub fn key_of(keyring: &str, id: &str) -> Option<String> {
    let wanted = format!("[client.{id}]");
    let mut is_here = false;
    for line in keyring.lines().map(str::trim) {
        if line.starts_with('[') {
            is_here = line == wanted;
        } else if is_here
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == "key"
        {
            return Some(value.trim().trim_matches('"').to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_the_user_and_keeps_its_padding() {
        let keyring = "[client.admin]\n\tkey = AQAAA==\n\n[client.oncefs]\n\tcaps osd = \"x\"\n\tkey = AQBBB==\n";
        assert_eq!(key_of(keyring, "oncefs").as_deref(), Some("AQBBB=="));
        assert_eq!(key_of(keyring, "admin").as_deref(), Some("AQAAA=="));
        assert_eq!(key_of(keyring, "nobody"), None);
        assert_eq!(key_of("key = stray", "admin"), None);
    }
}
