//! The rule for names of disks and snapshots, which become names of files.

/// Checks the name of a `thing`: it has at most `bytes_max` bytes, all of them letters, digits or one of
/// `marks`, and does not begin with `.` or `-`.
pub fn check(text: &str, thing: &str, bytes_max: usize, marks: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || marks.as_bytes().contains(&byte);
    match text.as_bytes() {
        [] => Err(format!("a {thing} needs a name")),
        [b'.' | b'-', ..] => Err(format!("the name of a {thing} does not begin with . or -")),
        bytes if bytes.len() > bytes_max => Err(format!("the name of a {thing} has at most {bytes_max} bytes")),
        bytes if bytes.iter().copied().all(is_allowed) => Ok(()),
        _ => Err(format!("the name of a {thing} consists of letters, digits and any of {marks}")),
    }
}
