//! How many copies a volume keeps of the structures that all its files depend on.

/// How many copies a volume keeps of the structures that all its files depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// One of each record file. The superblock still has two.
    One,
    /// Two of everything.
    Two,
}

impl Copies {
    /// Its number, in the superblock and in settings.
    pub fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The copies with this number. None: the volume leaves it to its profile.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::One, Self::Two].into_iter().find(|copies| copies.number() == number)
    }
}
