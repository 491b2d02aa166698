//! Extensions that the kernel adds to a creation if negotiated: security labels for the new inode, and the parent
//! directory's group if the caller is in it.

use super::wire::{Malformed, Reader};

/// The highest number in an extension's type field that is a count of security contexts and not a type.
const CONTEXTS_MAX: u32 = 31;
/// The type of the extension with groups.
const GROUPS: u32 = 32;

/// A security label for a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// The name of the extended attribute, such as `security.selinux`.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The extensions of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    /// Labels that the new inode gets.
    pub security_contexts: Vec<SecurityContext<'a>>,
    /// Supplementary groups of the caller: at most one, the parent directory's.
    pub groups: Vec<u32>,
}

impl<'a> Extensions<'a> {
    /// Decodes the end of a message. Each extension is a header of two numbers (its bytes, its type) and a body, padded
    /// to 8 bytes.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut found = Self::default();
        let mut reader = Reader::new(bytes);
        while !reader.rest_is_empty() {
            let (len, kind) = (reader.u32()? as usize, reader.u32()?);
            let body_len = len.checked_sub(8).ok_or(Malformed("an extension is shorter than its header"))?;
            let body = reader.bytes(body_len)?;
            reader.skip_padding(body_len)?;
            match kind {
                0..=CONTEXTS_MAX => found.decode_contexts(body, kind)?,
                GROUPS => found.decode_groups(body)?,
                // One of a newer kernel. It was not requested, so it is ignored.
                _ => {}
            }
        }
        Ok(found)
    }

    fn decode_contexts(&mut self, body: &'a [u8], count: u32) -> Result<(), Malformed> {
        let mut reader = Reader::new(body);
        for _ in 0..count {
            let value_len = reader.u32()? as usize;
            reader.skip(4)?;
            let name = reader.name()?;
            let value = reader.bytes(value_len)?;
            // A header of 8 bytes, the name with its NUL, the value: together padded to 8 bytes.
            reader.skip_padding(name.len() + 1 + value_len)?;
            self.security_contexts.push(SecurityContext { name, value });
        }
        Ok(())
    }

    fn decode_groups(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(body);
        for _ in 0..reader.u32()? {
            self.groups.push(reader.u32()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `get_security_context` and `get_create_supp_group` of fs/fuse/dir.c put them together.
    fn sample() -> Vec<u8> {
        let (name, value) = (b"security.selinux\0", b"system_u:object_r:tmp_t:s0");
        let mut context = Vec::new();
        context.extend_from_slice(&(value.len() as u32).to_ne_bytes());
        context.extend_from_slice(&[0; 4]);
        context.extend_from_slice(name);
        context.extend_from_slice(value);
        context.resize(context.len().next_multiple_of(8), 0);
        let mut all = Vec::new();
        all.extend_from_slice(&(8 + context.len() as u32).to_ne_bytes());
        all.extend_from_slice(&1_u32.to_ne_bytes());
        all.extend_from_slice(&context);
        for number in [16, GROUPS, 1, 4711] {
            all.extend_from_slice(&number.to_ne_bytes());
        }
        all
    }

    #[test]
    fn labels_and_groups_are_found() {
        let bytes = sample();
        let found = Extensions::decode(&bytes).unwrap();
        let expected = SecurityContext { name: b"security.selinux", value: b"system_u:object_r:tmp_t:s0" };
        assert_eq!(found, Extensions { security_contexts: vec![expected], groups: vec![4711] });
        assert_eq!(Extensions::decode(&[]), Ok(Extensions::default()));
    }

    #[test]
    fn what_is_cut_or_lies_about_its_length_is_refused() {
        let whole = sample();
        let groups_at = whole.len() - 16;
        for len in (1..whole.len()).filter(|len| *len != groups_at) {
            assert!(Extensions::decode(&whole[..len]).is_err(), "{len} of {} bytes", whole.len());
        }
        for (at, number) in [(0, u32::MAX), (0, 7), (4, 2), (8, u32::MAX), (groups_at + 8, u32::MAX)] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
            assert!(Extensions::decode(&bytes).is_err(), "{number} at {at}");
        }
    }

    #[test]
    fn an_extension_of_a_newer_kernel_is_passed_over() {
        let mut bytes = Vec::new();
        for number in [16, 99, 1, 2] {
            bytes.extend_from_slice(&u32::to_ne_bytes(number));
        }
        bytes.extend_from_slice(&sample());
        assert_eq!(Extensions::decode(&bytes).unwrap().groups, [4711]);
    }
}
