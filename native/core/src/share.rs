//! For share groups: which records may be handed out when every key keeps its order, and copies of records given up.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::build::{Content, put_batch, put_header, put_record};
use crate::codec::Codec;
use crate::error::{BadBatch, Kind, Result};
use crate::header::Header;
use crate::walk::each_record;

/// The same in the whole process, and unknown outside of it.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A hash of the key for every offset from `start` to before `end`; 0 where there is no record or no key.
pub fn key_hashes(data: &[u8], start: i64, end: i64, max: usize) -> Result<Vec<u64>> {
    let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    let mut hashes = vec![0; length];
    each_record(data, max, true, |header, record| {
        let at = header.offset(record.offset_delta).wrapping_sub(start);
        let slot = usize::try_from(at).ok().and_then(|at| hashes.get_mut(at));
        if let (Some(slot), Some(key), false) = (slot, record.key, header.is_control()) {
            *slot = SECRET.hash_one(key).max(1);
        }
        Ok(())
    })?;
    Ok(hashes)
}

/// Offsets that are not settled, in order, and whether they can be handed out now.
pub type Unsettled = (i64, i64, bool);

/// The first `limit` offsets that can be handed out and have no unsettled offset of the same key before them, as runs.
/// `hash` gives the hash of an offset, None where it is not known: those stay.
pub fn first_of_keys(
    hash: impl Fn(i64) -> Option<u64>,
    unsettled: &[Unsettled],
    limit: usize,
) -> Vec<(i64, i64)> {
    let mut seen = HashSet::new();
    let mut runs: Vec<(i64, i64)> = Vec::new();
    let mut left = limit;
    for &(first, last, free) in unsettled {
        for offset in first..=last {
            if left == 0 {
                return runs;
            }
            let Some(hash) = hash(offset) else { break };
            let is_first = hash == 0 || seen.insert(hash);
            if !(free && is_first) {
                continue;
            }
            left -= 1;
            match runs.last_mut() {
                Some((_, end)) if *end == offset - 1 => *end = offset,
                _ => runs.push((offset, offset)),
            }
        }
    }
    runs
}

/// Offsets to copy, in order, and headers to add to each.
pub struct Pick {
    pub first: i64,
    pub last: i64,
    pub header_count: usize,
    pub header_bytes: Vec<u8>,
}

/// Names of the headers that say where a copy came from.
pub struct Origin<'a> {
    pub offset: &'a [u8],
    pub timestamp: &'a [u8],
}

/// One batch of copies: key, value and headers byte for byte, and more headers; and how many records it has. Empty if
/// there are none.
pub fn copy_records(
    data: &[u8],
    picks: &[Pick],
    now_ms: i64,
    origin: &Origin<'_>,
    max: usize,
) -> Result<(Vec<u8>, i32)> {
    let mut body = Vec::new();
    let mut headers = Vec::new();
    let mut count = 0i32;
    each_record(data, max, true, |header, record| {
        let offset = header.offset(record.offset_delta);
        let found = picks
            .iter()
            .find(|pick| pick.first <= offset && offset <= pick.last);
        let (Some(pick), false) = (found, header.is_control()) else {
            return Ok(());
        };
        let (own_count, own_bytes) = record.stored_headers();
        headers.clear();
        headers.extend_from_slice(own_bytes);
        headers.extend_from_slice(&pick.header_bytes);
        let timestamp = header.timestamp(record.timestamp_delta).to_string();
        put_header(
            &mut headers,
            origin.offset,
            Some(offset.to_string().as_bytes()),
        );
        put_header(&mut headers, origin.timestamp, Some(timestamp.as_bytes()));
        let content = Content {
            key: record.key,
            value: record.value,
            header_count: own_count + pick.header_count + 2,
            header_bytes: &headers,
        };
        put_record(&mut body, 0, count, &content)?;
        count = count
            .checked_add(1)
            .ok_or_else(|| BadBatch::new(Kind::TooBig, "too many records for one batch"))?;
        Ok(())
    })?;
    let mut out = Vec::new();
    if count > 0 {
        put_batch(
            &plain_header(count, now_ms),
            Codec::None,
            None,
            &body,
            &mut out,
        )?;
    }
    Ok((out, count))
}

fn plain_header(count: i32, now_ms: i64) -> Header {
    Header {
        position: 0,
        size: 0,
        base_offset: 0,
        leader_epoch: -1,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: now_ms,
        max_timestamp: now_ms,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        count,
    }
}
