#![no_main]

use heddle_fuzz_checks::head_conversion::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
