//! Signals between the parts of a volume: requests to the background threads, requests of programs, and whether
//! the volume takes changes.

pub mod foreground;
pub mod health;
pub mod requests;
