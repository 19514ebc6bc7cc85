//! "Did you mean …?"

/// Limit of compared words, in characters: so long a name is not a typing error.
const LONGEST: usize = 64;

/// The candidate of which `word` is most likely a misspelling: one that begins with it, that equals it except for case,
/// or that differs by at most one edit for every three characters (and at least one).
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

/// The distance of `word` from `candidate`, if that is small enough for a misspelling.
fn likely(word: &str, candidate: &str) -> Option<usize> {
    if word.len() >= 3 && candidate.starts_with(word) {
        return Some(1);
    }
    let longer = word.chars().count().max(candidate.chars().count());
    let distance = distance(word, candidate);
    (distance <= (longer / 3).max(1) && distance < candidate.chars().count()).then_some(distance)
}

/// The edit distance of two words, ignoring case: insertions, deletions, substitutions and swaps of neighbours each
/// count 1 (optimal string alignment).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    if a.chars().count().max(b.chars().count()) > LONGEST {
        return if a == b { 0 } else { usize::MAX };
    }
    strsim::osa_distance(&a, &b)
}
