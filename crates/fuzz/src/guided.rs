//! A target under libFuzzer, which observes the code that each input reaches. `ONCEFS_FUZZ_TARGET` names the target.
#![no_main]

use std::sync::LazyLock;

use oncefs_fuzz::{Target, target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("ONCEFS_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("ONCEFS_FUZZ_TARGET names no target: '{name}'"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
