#![no_main]

use heddle_fuzz_checks::holder_channel::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
