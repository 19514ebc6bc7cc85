use heddle_qos::controllers::eviction::{Advice, Cause};
use heddle_qos::remarks::{Evicted, NotDone, Remarks};

use super::text;

#[test]
fn each_kind_of_remark_is_a_part() {
    assert!(text(&Remarks::default(), 100).is_empty());
    let remarks = Remarks {
        advice: vec![Advice {
            pod: "site/backup".to_owned(),
            cause: Cause::Memory,
            why: "memory is short".to_owned(),
            since_s: 88,
        }],
        evicted: Some(Evicted {
            pod: "site/report".to_owned(),
            why: "memory was short".to_owned(),
            at_s: 40,
        }),
        not_done: vec![NotDone {
            setting: "qos.io".to_owned(),
            why: "no disk uses weights".to_owned(),
        }],
    };
    let wanted = [
        "EVICT        SHORT   SINCE     WHY\nsite/backup  memory  12 s ago  memory is short\n",
        "evicted 1 min 0 s ago: site/report: memory was short\n",
        "not done: qos.io: no disk uses weights\n",
    ];
    assert_eq!(text(&remarks, 100), wanted);
    let json = serde_json::to_value(&remarks).expect("JSON");
    assert_eq!(json["advice"][0]["cause"], "memory");
    assert_eq!(json["advice"][0]["since"], 88);
    assert_eq!(json["evicted"]["at"], 40);
}
