//! A list that snapshots share page by page.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Shared;

#[cfg(test)]
mod tests;

/// Items of a new page. One that has grown to twice as many is divided. Few in tests, so that they do it.
const IN_PAGE: usize = if cfg!(test) { 4 } else { 128 };

/// A list of many items, of which each snapshot changes a few: a clone costs a reference count, and a change copies the
/// page that it is in, if a clone has that as well. No page is empty.
///
/// It is for long lists of small items, such as references: an item is found by its place in time for the number of
/// pages.
pub struct Pages<T> {
    pages: Shared<Vec<Shared<Vec<T>>>>,
    len: usize,
}

impl<T> Pages<T> {
    /// The number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All items in order.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter {
            page: [].iter(),
            pages: self.pages.iter(),
        }
    }

    /// The item that `order` finds equal, in a list that is sorted by it: `order` says how an item compares with what is
    /// sought. A binary search.
    pub fn find(&self, order: impl Fn(&T) -> Ordering) -> Option<&T> {
        let page = self.pages.get(self.page_of(&order)?)?;
        page.get(page.binary_search_by(order).ok()?)
    }

    /// The items of those pages that `other` does not have. Where both lists are sorted by the same order and hold each
    /// key once, what is left of each of the two differs just as they differ.
    pub fn apart<'p>(&'p self, other: &Pages<T>) -> impl Iterator<Item = &'p T> + use<'p, T> {
        let has = |page: &Shared<Vec<T>>| page.as_ptr();
        let shared: HashSet<*const T> = other.pages.iter().map(has).collect();
        let pages = self.pages.iter();
        let pages = pages.filter(move |page| !shared.contains(&has(page)));
        pages.flat_map(|page| page.iter())
    }

    /// The page that has the item that `order` finds equal, or in which it belongs; `None` if there is no page.
    fn page_of(&self, order: impl Fn(&T) -> Ordering) -> Option<usize> {
        let begins = |page: &Shared<Vec<T>>| page.first().is_some_and(|one| order(one).is_le());
        let after = self.pages.partition_point(begins);
        (!self.pages.is_empty()).then(|| after.saturating_sub(1))
    }

    /// The page of an item and its place there.
    fn place(&self, mut index: usize) -> Option<(usize, usize)> {
        for (number, page) in self.pages.iter().enumerate() {
            if index < page.len() {
                return Some((number, index));
            }
            index -= page.len();
        }
        None
    }
}

impl<T: Clone> Pages<T> {
    /// Puts an item where it belongs in a list that is sorted by `order`. Returns the item that it replaces.
    pub fn put(&mut self, item: T, order: impl Fn(&T, &T) -> Ordering) -> Option<T> {
        let Some(number) = self.page_of(|one| order(one, &item)) else {
            *self = [item].into_iter().collect();
            return None;
        };
        let page = &mut *self.pages[number];
        match page.binary_search_by(|one| order(one, &item)) {
            Ok(at) => return Some(std::mem::replace(&mut page[at], item)),
            Err(at) => page.insert(at, item),
        }
        self.len += 1;
        if page.len() == 2 * IN_PAGE {
            let rest = page.split_off(IN_PAGE);
            self.pages.insert(number + 1, rest.into());
        }
        None
    }

    /// Removes the item that `order` finds equal, in a list that is sorted by it.
    pub fn remove(&mut self, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let number = self.page_of(&order)?;
        let at = self.pages[number].binary_search_by(order).ok()?;
        let page = &mut *self.pages[number];
        let item = page.remove(at);
        self.len -= 1;
        let left = page.len();
        // Pages that have shrunk are joined, so that there are never many of few items.
        let next = self.pages.get(number + 1);
        if left == 0 {
            self.pages.remove(number);
        } else if next.is_some_and(|next| left + next.len() <= IN_PAGE) {
            let mut next = self.pages.remove(number + 1);
            self.pages[number].append(&mut next);
        }
        Some(item)
    }

    /// All items in order, to be changed: copies every page that a clone has as well.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flat_map(|page| page.iter_mut())
    }
}

impl<T> Pages<Shared<T>> {
    /// Whether both lists have the same objects in memory.
    pub fn is_each_same(&self, other: &Self) -> bool {
        let mut pairs = self.iter().zip(other);
        self.len == other.len && pairs.all(|(one, other)| Shared::is_same(one, other))
    }
}

/// The items of a list in order.
#[derive(Debug)]
pub struct Iter<'p, T> {
    page: std::slice::Iter<'p, T>,
    pages: std::slice::Iter<'p, Shared<Vec<T>>>,
}

impl<'p, T> Iterator for Iter<'p, T> {
    type Item = &'p T;

    fn next(&mut self) -> Option<&'p T> {
        loop {
            if let Some(item) = self.page.next() {
                return Some(item);
            }
            self.page = self.pages.next()?.iter();
        }
    }
}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Iter {
            page: self.page.clone(),
            pages: self.pages.clone(),
        }
    }
}

impl<T> FromIterator<T> for Pages<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        let next = || -> Option<Shared<Vec<T>>> {
            let page: Vec<T> = items.by_ref().take(IN_PAGE).collect();
            (!page.is_empty()).then(|| page.into())
        };
        let pages: Vec<_> = std::iter::from_fn(next).collect();
        Pages {
            len: pages.iter().map(|page| page.len()).sum(),
            pages: pages.into(),
        }
    }
}

impl<T, const N: usize> From<[T; N]> for Pages<T> {
    fn from(items: [T; N]) -> Self {
        items.into_iter().collect()
    }
}

impl<T> From<Vec<T>> for Pages<T> {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<'p, T> IntoIterator for &'p Pages<T> {
    type Item = &'p T;
    type IntoIter = Iter<'p, T>;

    fn into_iter(self) -> Iter<'p, T> {
        self.iter()
    }
}

/// # Panics
/// When the list has no more items than that.
impl<T> Index<usize> for Pages<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        let (page, at) = self.place(index).expect("an index within the list");
        &self.pages[page][at]
    }
}

/// # Panics
/// When the list has no more items than that.
impl<T: Clone> IndexMut<usize> for Pages<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        let (page, at) = self.place(index).expect("an index within the list");
        &mut self.pages[page][at]
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages {
            pages: Vec::new().into(),
            len: 0,
        }
    }
}

impl<T> Clone for Pages<T> {
    fn clone(&self) -> Self {
        Pages {
            pages: self.pages.clone(),
            len: self.len,
        }
    }
}

impl<T: PartialEq> PartialEq for Pages<T> {
    fn eq(&self, other: &Self) -> bool {
        let is_same = Shared::is_same(&self.pages, &other.pages);
        is_same || (self.len == other.len && self.iter().eq(other))
    }
}

impl<T: fmt::Debug> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T: Serialize> Serialize for Pages<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pages<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
