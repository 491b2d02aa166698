//! What the generator has written so far, which it needs to repeat it.

/// Every written block, and what every address holds. 8 bytes a write, 8 an address and a content.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Per write: the content and the address.
    writes: Vec<(u32, u32)>,
    /// Per address: its content.
    held: Vec<u32>,
    /// Per content: addresses that hold it.
    holders: Vec<u32>,
}

impl History {
    /// Blocks written.
    pub fn blocks(&self) -> u64 {
        self.writes.len() as u64
    }

    /// Addresses in use: 0 up to this one.
    pub fn addresses(&self) -> u64 {
        self.held.len() as u64
    }

    /// Contents made so far.
    pub fn contents(&self) -> u64 {
        self.holders.len() as u64
    }

    /// A content that was never written.
    pub fn make_content(&mut self) -> u64 {
        self.holders.push(0);
        self.contents() - 1
    }

    /// Content and address of the write `distance` blocks back; the very first one when that is too far.
    pub fn back(&self, distance: u64) -> (u64, u64) {
        let (content, address) = self.writes[self.blocks().saturating_sub(distance) as usize];
        (u64::from(content), u64::from(address))
    }

    /// Whether some address still holds the content.
    pub fn is_live(&self, content: u64) -> bool {
        self.holders[content as usize] > 0
    }

    /// Notes a write; the address is in use or the next one.
    pub fn write(&mut self, content: u64, address: u64) {
        assert!(address <= self.addresses() && content < self.contents(), "{content} to {address}");
        let (content, address) = (number(content), number(address));
        self.holders[content as usize] += 1;
        match self.held.get_mut(address as usize) {
            Some(held) => {
                self.holders[*held as usize] -= 1;
                *held = content;
            }
            None => self.held.push(content),
        }
        self.writes.push((content, address));
    }
}

fn number(number: u64) -> u32 {
    u32::try_from(number).expect("a made trace has fewer than 2^32 blocks: the specification is checked")
}
