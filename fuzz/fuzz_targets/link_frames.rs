#![no_main]

use heddle_fuzz_checks::link_frames::check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));
