//! What differs between two sorted lists.

use std::cmp::Ordering;

#[cfg(test)]
mod tests;

/// An item as it was before and as it is now; at least one of the two is there.
pub type Difference<'a, T> = (Option<&'a T>, Option<&'a T>);

/// The items in which two lists differ, in order. Both lists are sorted by `order` and hold each key once. Items of one
/// key do not differ if `is_same` says so; where many are the same, it is called far more often than `order`.
pub fn differences<'a, T: 'a>(
    before: impl IntoIterator<Item = &'a T>,
    now: impl IntoIterator<Item = &'a T>,
    order: impl Fn(&T, &T) -> Ordering,
    is_same: impl Fn(&T, &T) -> bool,
) -> Vec<Difference<'a, T>> {
    let mut before = before.into_iter().peekable();
    let mut now = now.into_iter().peekable();
    let mut differences = Vec::new();
    loop {
        let next = match (before.peek(), now.peek()) {
            (None, None) => return differences,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) if is_same(one, other) => {
                before.next();
                now.next();
                continue;
            }
            (Some(one), Some(other)) => order(one, other),
        };
        let one = if next.is_le() { before.next() } else { None };
        let other = if next.is_ge() { now.next() } else { None };
        differences.push((one, other));
    }
}
