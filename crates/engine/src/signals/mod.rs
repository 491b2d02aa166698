//! What every part of a volume tells the others: requests to the background threads, requests of programs, and whether
//! the volume takes changes.

pub mod foreground;
pub mod health;
pub mod requests;
