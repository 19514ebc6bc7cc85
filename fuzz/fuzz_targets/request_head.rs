#![no_main]

use heddle_fuzz_checks::request_head::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
