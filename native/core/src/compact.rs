//! Batches without some of their records: compaction, and removal of given keys.
//!
//! A batch that loses nothing is copied byte for byte. From one that does, the records' own bytes are cut out: their
//! deltas count from the batch's base, which stays. Only a new delete horizon, which takes the place of the base
//! timestamp, makes the deltas change.

use std::collections::HashSet;

use crate::build::{put_batch, put_shifted};
use crate::codec::Codec;
use crate::error::Result;
use crate::header::{CODEC_MASK, DELETE_HORIZON, Header, LOG_APPEND_TIME};
use crate::latest::{Aborted, LatestOffsets};
use crate::walk::{Batches, Record, Records, body};

/// What compaction is to do.
pub struct Plan<'a> {
    pub latest: &'a LatestOffsets,
    pub now_ms: i64,
    pub delete_retention_ms: i64,
    /// Last offsets of batches that stay even with no record left.
    pub keep_empty: HashSet<i64>,
    pub aborted: Aborted,
    /// Bound of one batch's decompressed bytes.
    pub max_bytes: usize,
}

/// New batches, and how many records went into them and did not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub bytes: Vec<u8>,
    pub kept: u64,
    pub dropped: u64,
}

/// The records that stay, cut out of a batch's body.
#[derive(Default)]
struct Kept {
    body: Vec<u8>,
    count: i32,
    dropped: u64,
    max_timestamp: i64,
    tombstones: bool,
}

impl Kept {
    /// Fill with the records of `body` that `keep` accepts.
    fn fill(
        &mut self,
        header: &Header,
        body: &[u8],
        mut keep: impl FnMut(&Record<'_>) -> bool,
    ) -> Result<()> {
        self.body.clear();
        self.count = 0;
        self.dropped = 0;
        self.max_timestamp = i64::MIN;
        self.tombstones = false;
        for record in Records::new(header, body)? {
            let record = record?;
            if !keep(&record) {
                self.dropped += 1;
                continue;
            }
            self.body.extend_from_slice(record.bytes);
            self.count += 1;
            self.tombstones |= record.value.is_none();
            self.max_timestamp = self
                .max_timestamp
                .max(header.timestamp(record.timestamp_delta));
        }
        Ok(())
    }

    /// Write the batch of these records; with a horizon, the deltas are made to count from it.
    fn write(&self, header: &Header, horizon: Option<i64>, out: &mut Vec<u8>) -> Result<()> {
        let mut new = *header;
        new.count = self.count;
        if !header.has(LOG_APPEND_TIME) {
            new.max_timestamp = self.max_timestamp;
        }
        let codec = header.codec()?;
        let Some(horizon) = horizon else {
            return put_batch(&new, codec, None, &self.body, out);
        };
        new.attributes |= DELETE_HORIZON;
        new.base_timestamp = horizon;
        let shift = header.base_timestamp.wrapping_sub(horizon);
        let mut shifted = Vec::with_capacity(self.body.len());
        for record in Records::new(&new, &self.body)? {
            put_shifted(&mut shifted, &record?, shift)?;
        }
        put_batch(&new, codec, None, &shifted, out)
    }
}

/// Write what is left of a batch without records: its offsets and its producer's sequence.
fn write_empty(header: &Header, out: &mut Vec<u8>) -> Result<()> {
    let mut empty = *header;
    empty.attributes &= !(CODEC_MASK | DELETE_HORIZON);
    empty.base_timestamp = header.max_timestamp;
    empty.count = 0;
    put_batch(&empty, Codec::None, None, &[], out)
}

/// Rewrite whole batches without the records that a later one of the same key replaces.
pub fn compact(data: &[u8], plan: &Plan<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut batches = Batches::new(data, true);
    let mut scratch = Vec::new();
    let mut kept = Kept::default();
    while let Some(header) = batches.step()? {
        let control = header.is_control();
        let aborted = plan.aborted.covers(&header);
        let expired = header
            .delete_horizon()
            .is_some_and(|horizon| plan.now_ms >= horizon);
        let body = body(&header, data, plan.max_bytes, &mut scratch)?;
        kept.fill(&header, body, |record| match control {
            true => !expired,
            false => !aborted && plan.keeps(&header, record, expired),
        })?;
        outcome.dropped += kept.dropped;
        outcome.kept += kept.count as u64;
        if kept.count == 0 {
            if plan.keep_empty.contains(&header.last_offset()) {
                write_empty(&header, &mut outcome.bytes)?;
            }
            continue;
        }
        let horizon = (kept.tombstones && !control && header.delete_horizon().is_none())
            .then(|| plan.now_ms.saturating_add(plan.delete_retention_ms));
        if kept.dropped == 0 && horizon.is_none() {
            outcome.bytes.extend_from_slice(header.bytes(data));
        } else {
            kept.write(&header, horizon, &mut outcome.bytes)?;
        }
    }
    Ok(outcome)
}

impl Plan<'_> {
    fn keeps(&self, header: &Header, record: &Record<'_>, expired: bool) -> bool {
        record.key.is_some_and(|key| {
            let latest = self.latest.get(key);
            latest.is_none_or(|latest| header.offset(record.offset_delta) >= latest)
                && (record.value.is_some() || !expired)
        })
    }
}

/// Rewrite whole batches without the data records of these keys; a batch left empty stays, with count 0.
pub fn drop_keys(data: &[u8], keys: &HashSet<Vec<u8>>, max: usize) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut batches = Batches::new(data, true);
    let mut scratch = Vec::new();
    let mut kept = Kept::default();
    while let Some(header) = batches.step()? {
        let body = body(&header, data, max, &mut scratch)?;
        kept.fill(&header, body, |record| {
            header.is_control() || record.key.is_none_or(|key| !keys.contains(key))
        })?;
        outcome.dropped += kept.dropped;
        outcome.kept += kept.count as u64;
        if kept.dropped == 0 {
            outcome.bytes.extend_from_slice(header.bytes(data));
        } else if kept.count == 0 {
            write_empty(&header, &mut outcome.bytes)?;
        } else {
            kept.write(&header, None, &mut outcome.bytes)?;
        }
    }
    Ok(outcome)
}
