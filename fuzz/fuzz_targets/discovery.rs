#![no_main]

use heddle_fuzz_checks::discovery::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
