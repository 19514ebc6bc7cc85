//! The templates of an encoder, found by scope and destination; the least recently used one is evicted.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use super::learn::SlotEnd;
use super::template::Template;
use super::{HeadLimits, instruction, number};

/// Limit on an encoder's templates, whatever the peer allows: the search for the least recently used one looks at all
/// of them.
const MAX_TEMPLATES: u16 = 1024;
const MAX_BUCKETS: usize = 256;
const NONE: u16 = u16::MAX;

/// A template, and the encoder's own data about it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) template: Template,
    /// How the encoder finds the end of each slot's value.
    pub(super) ends: Box<[SlotEnd]>,
    scope: u32,
    /// Hash of scope and destination.
    group: u64,
    /// Hash of its text's shape, see [`Lines`](super::lines::Lines).
    pub(super) shape: u64,
    /// The number of the last block that used it.
    used: u64,
    /// The next template in the same bucket.
    next: u16,
}

impl Entry {
    pub(super) fn new(
        template: Template,
        ends: Box<[SlotEnd]>,
        scope: u32,
        group: u64,
        shape: u64,
    ) -> Box<Self> {
        Box::new(Self {
            template,
            ends,
            scope,
            group,
            shape,
            used: 0,
            next: NONE,
        })
    }

    #[inline]
    pub(super) fn is_for(&self, scope: u32, destination: &[u8]) -> bool {
        self.scope == scope && *self.template.destination == *destination
    }
}

/// All templates of an encoder.
#[derive(Debug)]
pub(super) struct TemplateTable {
    /// Indexed by template id.
    entries: Vec<Option<Box<Entry>>>,
    /// The id of each bucket's most recently used template; the others follow by `next`.
    buckets: Box<[u16]>,
    /// Cost of all templates.
    bytes: u32,
    /// The number of the current block.
    now: u64,
    /// The number of the current block at the last call of [`age`](Self::age).
    aged: u64,
    /// The next block drops the templates that were not used after this block.
    drop_before: Option<u64>,
}

impl TemplateTable {
    pub(super) fn new(limits: &HeadLimits) -> Self {
        let buckets = usize::from(limits.templates).clamp(1, MAX_BUCKETS);
        Self {
            entries: Vec::new(),
            buckets: vec![NONE; buckets.next_power_of_two()].into(),
            bytes: 0,
            now: 0,
            aged: 0,
            drop_before: None,
        }
    }

    /// Hash of a scope and a destination.
    #[inline]
    pub(super) fn group(scope: u32, destination: &[u8]) -> u64 {
        let mut hasher = FixedState::with_seed(1).build_hasher();
        hasher.write_u32(scope);
        hasher.write(destination);
        hasher.finish()
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    pub(super) fn get(&self, id: u16) -> Option<&Entry> {
        self.entries.get(usize::from(id))?.as_deref()
    }

    /// The templates of a group, most recently used first. Other groups in the same bucket may be among them.
    pub(super) fn of_group(&self, group: u64) -> impl Iterator<Item = (u16, &Entry)> {
        let mut next = self.buckets[self.bucket(group)];
        std::iter::from_fn(move || {
            let id = next;
            let entry = self.get(id)?;
            next = entry.next;
            Some((id, entry))
        })
    }

    /// Any template with this scope and shape, for any destination.
    pub(super) fn alike(&self, scope: u32, shape: u64) -> Option<u16> {
        let mut entries = self.entries.iter();
        let alike = |entry: &Entry| entry.scope == scope && entry.shape == shape;
        let at = entries.position(|entry| entry.as_deref().is_some_and(alike))?;
        Some(at as u16)
    }

    fn bucket(&self, group: u64) -> usize {
        group as usize & (self.buckets.len() - 1)
    }

    /// See [`Encoder::age`](super::Encoder::age).
    pub(super) fn age(&mut self) {
        self.drop_before = Some(self.aged);
        self.aged = self.now;
    }

    /// Starts a block, with the drops that are due.
    #[inline]
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        self.now += 1;
        if let Some(before) = self.drop_before.take() {
            for id in 0..self.entries.len() as u16 {
                if self.get(id).is_some_and(|entry| entry.used <= before) {
                    self.drop_template(id, out);
                }
            }
        }
    }

    /// The first template in the bucket that is `wanted`; it moves to the front.
    #[inline]
    pub(super) fn find(
        &mut self,
        group: u64,
        mut wanted: impl FnMut(&Entry) -> bool,
    ) -> Option<u16> {
        let bucket = self.bucket(group);
        let (mut before, mut id) = (NONE, self.buckets[bucket]);
        while let Some(entry) = self.get(id) {
            let next = entry.next;
            if entry.group == group && wanted(entry) {
                if before != NONE {
                    self.set_next(bucket, before, next);
                    let first = std::mem::replace(&mut self.buckets[bucket], id);
                    self.set_next(bucket, id, first);
                }
                return Some(id);
            }
            (before, id) = (id, next);
        }
        None
    }

    /// Links `next` behind `before`, or makes it the first of the bucket.
    fn set_next(&mut self, bucket: usize, before: u16, next: u16) {
        match self.entries.get_mut(usize::from(before)) {
            Some(Some(entry)) => entry.next = next,
            _ => self.buckets[bucket] = next,
        }
    }

    /// Removes a template from its bucket and from the table.
    fn remove(&mut self, id: u16) -> Option<Box<Entry>> {
        let group = self.get(id)?.group;
        let bucket = self.bucket(group);
        let (mut before, mut at) = (NONE, self.buckets[bucket]);
        while at != id {
            before = at;
            at = self.get(at)?.next;
        }
        let next = self.get(id)?.next;
        self.set_next(bucket, before, next);
        let entry = self.entries[usize::from(id)].take()?;
        self.bytes -= entry.template.cost;
        Some(entry)
    }

    /// Drops a template, and appends the instruction to do so.
    pub(super) fn drop_template(&mut self, id: u16, out: &mut Vec<u8>) {
        if self.remove(id).is_some() {
            number::put(
                out,
                instruction::DROP,
                instruction::DROP_BITS,
                u64::from(id),
            );
        }
    }

    /// The least recently used template, other than those two.
    fn oldest(&self, but: Option<u16>, nor: Option<u16>) -> Option<u16> {
        let ids = (0..self.entries.len() as u16).filter(|&id| Some(id) != but && Some(id) != nor);
        let used = |id: u16| Some((self.get(id)?.used, id));
        Some(ids.filter_map(used).min()?.1)
    }

    /// Frees an id and room for a template of this cost: drops what is in the way, and returns the id. It is `replaced`
    /// if given, else a free one, else that of the least recently used template. `base` is spared as long as possible.
    pub(super) fn make_room(
        &mut self,
        limits: &HeadLimits,
        replaced: Option<u16>,
        base: Option<u16>,
        cost: usize,
        out: &mut Vec<u8>,
    ) -> u16 {
        let most = limits.templates.min(MAX_TEMPLATES);
        let id = replaced.unwrap_or_else(|| {
            let free = self.entries.iter().position(Option::is_none);
            let free = free.unwrap_or(self.entries.len());
            if free < usize::from(most) {
                free as u16
            } else {
                self.oldest(base, None).or(base).unwrap_or(0)
            }
        });
        loop {
            let freed = self.get(id).map_or(0, |entry| entry.template.cost);
            if (self.bytes - freed) as usize + cost <= limits.all_bytes as usize {
                return id;
            }
            let others = self.oldest(Some(id), base);
            let Some(victim) = others.or(base.filter(|&base| base != id)) else {
                return id;
            };
            self.drop_template(victim, out);
        }
    }

    /// Stores a template under the id from [`make_room`](Self::make_room).
    pub(super) fn put(&mut self, id: u16, mut entry: Box<Entry>) {
        self.remove(id);
        let bucket = self.bucket(entry.group);
        entry.next = std::mem::replace(&mut self.buckets[bucket], id);
        self.bytes += entry.template.cost;
        let at = usize::from(id);
        if at == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[at] = Some(entry);
    }

    /// Appends the values for the slots of a template; `values` are their positions in `head`. `false` when a value is
    /// not of its slot's kind: the caller must remove the appended bytes and stop using the template, whose memory is
    /// out of step.
    #[inline]
    pub(super) fn put_values(
        &mut self,
        id: u16,
        limits: &HeadLimits,
        head: &[u8],
        values: &[(u32, u32)],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(Some(entry)) = self.entries.get_mut(usize::from(id)) else {
            return false;
        };
        entry.used = self.now;
        let template = &mut entry.template;
        let whole = limits
            .template_bytes
            .saturating_sub(template.cost)
            .min(limits.all_bytes.saturating_sub(self.bytes));
        let mut room = whole;
        let mut all = true;
        for (slot, &(start, end)) in template.slots.iter_mut().zip(values) {
            let value = &head[start as usize..end as usize];
            if !slot.put(value, out, &mut room, self.now as u32) {
                all = false;
                break;
            }
        }
        template.cost += whole - room;
        self.bytes += whole - room;
        all
    }
}
