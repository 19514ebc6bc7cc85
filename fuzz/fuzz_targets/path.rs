#![no_main]

use heddle_fuzz_checks::path::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
