//! The latest offset of every key: the first pass of compaction.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

use siphasher::sip128::SipHasher13;

use crate::error::Result;
use crate::header::{Header, TRANSACTIONAL};
use crate::walk::{Batches, Records, body};

/// A record key's hash. 128 bits under a secret key: nobody can choose two keys that meet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fingerprint(u64, u64);

impl Hash for Fingerprint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// A fingerprint is evenly spread already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }
}

/// The data of aborted transactions: by producer, the offsets (first and last) that each covers.
#[derive(Default)]
pub struct Aborted(HashMap<i64, Vec<(i64, i64)>>);

impl Aborted {
    /// From (producer id, first offset, last offset).
    pub fn new(transactions: impl IntoIterator<Item = (i64, i64, i64)>) -> Aborted {
        let mut by_producer: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
        for (producer, first, last) in transactions {
            by_producer.entry(producer).or_default().push((first, last));
        }
        Aborted(by_producer)
    }

    /// Whether a batch is data of one of them.
    pub fn covers(&self, header: &Header) -> bool {
        header.has(TRANSACTIONAL)
            && !header.is_control()
            && self.0.get(&header.producer_id).is_some_and(|ranges| {
                ranges.iter().any(|&(first, last)| {
                    first <= header.base_offset && header.last_offset() <= last
                })
            })
    }
}

/// The latest offset of every key that was taken in.
pub struct LatestOffsets {
    offsets: HashMap<Fingerprint, i64, BuildHasherDefault<AsItIs>>,
    max_keys: usize,
    hasher: SipHasher13,
}

impl LatestOffsets {
    pub fn new(max_keys: usize) -> LatestOffsets {
        let secret = || RandomState::new().hash_one(0);
        LatestOffsets {
            offsets: HashMap::default(),
            max_keys,
            hasher: SipHasher13::new_with_keys(secret(), secret()),
        }
    }

    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The latest offset of a key.
    pub fn get(&self, key: &[u8]) -> Option<i64> {
        self.offsets.get(&self.fingerprint(key)).copied()
    }

    fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        let hash = self.hasher.hash(key);
        Fingerprint(hash.h1, hash.h2)
    }

    /// Take in whole batches, up to the first that reaches `end_offset` or has more new keys than there is room for.
    /// Returns the offset below which everything is in.
    pub fn add(
        &mut self,
        data: &[u8],
        end_offset: i64,
        aborted: &Aborted,
        max: usize,
    ) -> Result<i64> {
        let mut batches = Batches::new(data, true);
        let mut scratch = Vec::new();
        let mut keys = Vec::new();
        let mut reached = None;
        while let Some(header) = batches.step()? {
            if header.last_offset() >= end_offset {
                return Ok(reached.unwrap_or(header.base_offset).min(end_offset));
            }
            if !header.is_control() && !aborted.covers(&header) {
                keys.clear();
                for record in Records::new(&header, body(&header, data, max, &mut scratch)?)? {
                    let record = record?;
                    if let Some(key) = record.key {
                        keys.push((self.fingerprint(key), header.offset(record.offset_delta)));
                    }
                }
                if !self.has_room_for(&keys) {
                    return Ok(reached.unwrap_or(header.base_offset));
                }
                for &(key, offset) in &keys {
                    let latest = self.offsets.entry(key).or_insert(offset);
                    *latest = offset.max(*latest);
                }
            }
            reached = Some(header.next_offset());
        }
        Ok(reached.unwrap_or(end_offset))
    }

    fn has_room_for(&self, keys: &[(Fingerprint, i64)]) -> bool {
        let room = self.max_keys.saturating_sub(self.offsets.len());
        if keys.len() <= room {
            return true;
        }
        let new: HashSet<Fingerprint, BuildHasherDefault<AsItIs>> = keys
            .iter()
            .map(|(key, _)| *key)
            .filter(|key| !self.offsets.contains_key(key))
            .collect();
        new.len() <= room
    }
}
