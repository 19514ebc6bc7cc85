//! "Did you mean …?"

/// Longer words are not compared: a name that long is no slip of the finger.
const LONGEST: usize = 64;

/// The candidate that `word` is most likely a misspelling of: one that it begins, that equals it but
/// for case, or that is at most one edit away for every three characters (and at least one).
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter_map(|candidate| Some((likely(word, candidate)?, candidate)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How far `word` is from `candidate`, if it can be meant.
fn likely(word: &str, candidate: &str) -> Option<usize> {
    if word.len() >= 3 && candidate.starts_with(word) {
        return Some(1);
    }
    let longer = word.chars().count().max(candidate.chars().count());
    let distance = distance(word, candidate);
    (distance <= (longer / 3).max(1) && distance < candidate.chars().count()).then_some(distance)
}

/// Edits between two words, without regard to case: insertions, deletions, substitutions and
/// swaps of neighbours each count 1 (optimal string alignment).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    if a.len() > LONGEST || b.len() > LONGEST {
        return if a == b { 0 } else { usize::MAX };
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substitution = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1)
                .min(row[j - 1] + 1)
                .min(last[j - 1] + substitution);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
