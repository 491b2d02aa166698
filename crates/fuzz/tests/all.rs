//! The corpus, and every target without guidance, in one program, so that it is linked once.

mod corpus;
mod plain;
