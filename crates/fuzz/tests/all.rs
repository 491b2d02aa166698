//! The corpus, and every target without guidance, in one program: it is linked once.

mod corpus;
mod plain;
