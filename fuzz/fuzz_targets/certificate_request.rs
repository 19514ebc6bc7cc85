#![no_main]

use heddle_fuzz_checks::certificate_request::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
