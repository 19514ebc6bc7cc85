//! What `heddle qos status` shows beside what is changed.

use heddle_node::table;
use heddle_node::time::duration;
use heddle_qos::remarks::Remarks;

#[cfg(test)]
mod tests;

/// One part for each kind of remark there is.
pub(super) fn text(remarks: &Remarks, now_s: u64) -> Vec<String> {
    let ago = |since_s: u64| format!("{} ago", duration(now_s.saturating_sub(since_s)));
    let mut parts = Vec::new();
    if !remarks.advice.is_empty() {
        let rows = remarks.advice.iter().map(|advice| {
            [
                advice.pod.clone(),
                advice.cause.to_string(),
                ago(advice.since_s),
                advice.why.clone(),
            ]
        });
        let columns = ["EVICT", "SHORT", "SINCE", "WHY"];
        parts.push(table::render(columns, rows));
    }
    if let Some(evicted) = &remarks.evicted {
        let (pod, why) = (&evicted.pod, &evicted.why);
        parts.push(format!("evicted {}: {pod}: {why}\n", ago(evicted.at_s)));
    }
    let not_done = remarks.not_done.iter();
    let not_done = not_done.map(|one| format!("not done: {}: {}\n", one.setting, one.why));
    parts.extend(Some(not_done.collect::<String>()).filter(|text| !text.is_empty()));
    parts
}
