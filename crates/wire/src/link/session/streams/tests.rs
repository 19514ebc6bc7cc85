use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn serial(number: u32) -> Serial {
    Serial::new(number).expect("a serial")
}

proptest! {
    #[test]
    fn a_table_holds_what_a_map_does(steps in prop::collection::vec((0..3u8, 1..40u32, 0..3u32), 0..400)) {
        let mut table = StreamTable::default();
        let mut map = BTreeMap::new();
        for (step, low, high) in steps {
            // Many of them have the same few preferred slots.
            let number = low + high * 64;
            let serial = serial(number);
            match step {
                0 if !map.contains_key(&number) => {
                    table.insert(Stream { credit: number, is_flow: number % 3 == 0, ..Stream::new(serial) });
                    map.insert(number, number);
                }
                1 => {
                    table.remove(serial);
                    map.remove(&number);
                }
                _ => {
                    if let Some(stream) = table.get_mut(serial) {
                        stream.credit += 1;
                    }
                    if let Some(credit) = map.get_mut(&number) {
                        *credit += 1;
                    }
                }
            }
            prop_assert_eq!(table.len(), map.len());
            let flows = map.keys().filter(|number| *number % 3 == 0).count();
            prop_assert_eq!(table.flows(), flows);
            for (&number, &credit) in &map {
                let stream = table.get(Serial::new(number).expect("a serial"));
                prop_assert_eq!(stream.map(|stream| stream.credit), Some(credit));
            }
            let mut all: Vec<_> = table.iter().map(|stream| (stream.serial, stream.credit)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, map.clone().into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_stream_is_no_more_than_a_line_of_the_cache() {
    assert!(size_of::<Stream>() <= 64, "{}", size_of::<Stream>());
}
