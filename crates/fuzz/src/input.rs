//! Choices read from the front of a fuzzer's bytes: every input has a meaning, and a small change of it makes a small
//! change of the work.

/// The rest of an input. When it is used up, every choice is the first one.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether every further choice is the first one.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes, or fewer at the end.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// The rest of the bytes.
    pub fn all(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// A number made of the next `len` bytes, at most 8.
    fn number(&mut self, len: usize) -> u64 {
        self.bytes(len).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        self.number(8)
    }

    /// 0 to `end - 1`, from as few bytes as possible. `end` is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        let bits = u64::BITS - (end - 1).leading_zeros();
        self.number(bits.div_ceil(8) as usize) % end
    }

    /// An index below `len`, which is at least 1.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// True for one of `count` values.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == count - 1
    }

    /// A number at which arithmetic may go wrong, or any number.
    pub fn edge(&mut self) -> u64 {
        match self.byte() % 12 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => 1 << 63,
            4 => u64::from(u32::MAX),
            5 => 1 << self.below(64),
            6 => (1 << self.below(64)) - 1,
            7 | 8 => self.below(256),
            9 => self.below(1 << 16),
            _ => self.u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_take_as_few_bytes_as_they_need_and_are_the_first_one_at_the_end() {
        let mut input = Input::new(&[7, 1, 2, 0xFF]);
        assert_eq!((input.below(1), input.below(256)), (0, 7));
        assert_eq!((input.below(1000), input.byte()), (0x0201, 0xFF));
        assert!(input.is_empty());
        assert_eq!((input.below(9), input.pick(&[5, 6]), input.u64()), (0, 5, 0));
    }
}
