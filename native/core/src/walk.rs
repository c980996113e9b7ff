//! From bytes to batches, and from a batch to its records.

use crate::error::{BadBatch, Kind, Result};
use crate::header::Header;
use crate::varint::{take_i32, take_i64};

/// The smallest record: seven one-byte fields.
const LEAST_RECORD: usize = 7;
/// The smallest record header: two one-byte lengths.
const LEAST_RECORD_HEADER: usize = 2;

/// One record, borrowed from its batch's decompressed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// All of it, from its length on.
    pub bytes: &'a [u8],
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub header_count: usize,
    header_bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record's headers. They were checked when the record was read.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.header_bytes;
        (0..self.header_count).map_while(move |_| take_header(&mut rest))
    }

    /// The record's headers as they are stored, with their count.
    pub fn stored_headers(&self) -> (usize, &'a [u8]) {
        (self.header_count, self.header_bytes)
    }
}

/// The records of one batch. Yields an error, and then nothing more, where the bytes are not what the header said.
pub struct Records<'a> {
    rest: &'a [u8],
    left: usize,
    failed: bool,
}

impl<'a> Records<'a> {
    /// `body` is decompressed. An error if it cannot hold `count` records.
    #[inline]
    pub fn new(header: &Header, body: &'a [u8]) -> Result<Records<'a>> {
        match usize::try_from(header.count) {
            Ok(left) if left <= body.len() / LEAST_RECORD => Ok(Records {
                rest: body,
                left,
                failed: false,
            }),
            _ => Err(BadBatch::new(
                Kind::Count,
                format!(
                    "the batch at offset {} cannot hold {} records in {} bytes",
                    header.base_offset,
                    header.count,
                    body.len()
                ),
            )),
        }
    }

    /// How many records the header promises still.
    pub fn promised(&self) -> usize {
        self.left
    }

    #[inline(always)]
    fn step(&mut self) -> Option<Result<Record<'a>>> {
        if self.left == 0 {
            if self.rest.is_empty() {
                return None;
            }
            return Some(Err(BadBatch::new(
                Kind::Count,
                format!("{} bytes are left after the last record", self.rest.len()),
            )));
        }
        self.left -= 1;
        let record = take_record(&mut self.rest);
        Some(record.ok_or_else(|| BadBatch::new(Kind::Record, "a record is malformed")))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Result<Record<'a>>> {
        if self.failed {
            return None;
        }
        let item = self.step();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

#[inline(always)]
fn take_record<'a>(rest: &mut &'a [u8]) -> Option<Record<'a>> {
    let whole = *rest;
    let length = usize::try_from(take_i32(rest)?).ok()?;
    let mut body = take(rest, length)?;
    let bytes = &whole[..whole.len() - rest.len()];
    let (_attributes, after) = body.split_first()?;
    body = after;
    let timestamp_delta = take_i64(&mut body)?;
    let offset_delta = take_i32(&mut body)?;
    let key = take_nullable(&mut body)?;
    let value = take_nullable(&mut body)?;
    let header_count = usize::try_from(take_i32(&mut body)?).ok()?;
    if header_count > body.len() / LEAST_RECORD_HEADER {
        return None;
    }
    let header_bytes = body;
    for _ in 0..header_count {
        take_header(&mut body)?;
    }
    body.is_empty().then_some(Record {
        bytes,
        timestamp_delta,
        offset_delta,
        key,
        value,
        header_count,
        header_bytes,
    })
}

#[inline(always)]
fn take_header<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let length = usize::try_from(take_i32(rest)?).ok()?;
    let key = take(rest, length)?;
    Some((key, take_nullable(rest)?))
}

#[inline(always)]
fn take_nullable<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match take_i32(rest)? {
        -1 => Some(None),
        length => Some(Some(take(rest, usize::try_from(length).ok()?)?)),
    }
}

#[inline(always)]
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// The decompressed records of a batch: its own bytes, or what `scratch` was filled with.
pub fn body<'a>(
    header: &Header,
    data: &'a [u8],
    max: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let stored = header.stored(data);
    match header.codec()? {
        crate::codec::Codec::None => Ok(stored),
        _ if header.count == 0 && stored.is_empty() => Ok(stored),
        codec => {
            scratch.clear();
            codec.decompress(stored, max, scratch)?;
            Ok(scratch)
        }
    }
}

/// The whole batches of a buffer, headers read and checksums checked if asked. After an error there is nothing more.
pub struct Batches<'a> {
    data: &'a [u8],
    pub position: usize,
    crc: bool,
}

impl<'a> Batches<'a> {
    pub fn new(data: &'a [u8], crc: bool) -> Batches<'a> {
        Batches {
            data,
            position: 0,
            crc,
        }
    }

    /// The next batch, None at the end of the data. A cut last batch is an error of kind `Truncated`.
    #[inline]
    pub fn step(&mut self) -> Result<Option<Header>> {
        if self.position >= self.data.len() {
            return Ok(None);
        }
        let header = Header::parse(self.data, self.position)?;
        if self.crc {
            header.check_crc(self.data)?;
        }
        self.position = header.end();
        Ok(Some(header))
    }

    /// The next batch; a cut last batch counts as the end.
    pub fn step_whole(&mut self) -> Result<Option<Header>> {
        match self.step() {
            Err(e) if e.kind == Kind::Truncated => Ok(None),
            other => other,
        }
    }
}

/// Check a payload that must be exactly one batch, as a producer sends it.
pub fn check_batch(data: &[u8], keys: bool, max: usize) -> Result<Header> {
    let header = Header::parse(data, 0)?;
    if header.size < data.len() {
        return Err(BadBatch::new(
            Kind::Several,
            format!("{} bytes follow the batch", data.len() - header.size),
        ));
    }
    header.check_crc(data)?;
    let codec = header.codec()?;
    if header.count <= 0 || header.last_offset_delta != header.count - 1 {
        return Err(BadBatch::new(
            Kind::Count,
            format!(
                "the batch says {} records and a last offset delta of {}",
                header.count, header.last_offset_delta
            ),
        ));
    }
    if codec == crate::codec::Codec::None {
        check_records(&header, header.stored(data), keys)?;
    } else if keys {
        let mut scratch = Vec::new();
        check_records(&header, body(&header, data, max, &mut scratch)?, keys)?;
    }
    Ok(header)
}

fn check_records(header: &Header, body: &[u8], keys: bool) -> Result<()> {
    let ordered = !header.is_control();
    let keys = keys && ordered;
    for (expected, record) in (0..).zip(Records::new(header, body)?) {
        let record = record?;
        if ordered && record.offset_delta != expected {
            return Err(unexpected_delta(expected, record.offset_delta));
        }
        if keys && record.key.is_none() {
            return Err(null_key(expected));
        }
    }
    Ok(())
}

#[cold]
fn unexpected_delta(expected: i32, actual: i32) -> BadBatch {
    BadBatch::new(
        Kind::Record,
        format!("record {expected} has offset delta {actual}"),
    )
}

#[cold]
fn null_key(index: i32) -> BadBatch {
    BadBatch::new(Kind::NullKey, format!("record {index} has no key"))
}

/// A run of whole batches to serve a fetch, and what ended it.
#[derive(Debug)]
pub struct Run {
    pub start: usize,
    pub end: usize,
    pub next_offset: i64,
    pub error: Option<BadBatch>,
}

/// From the first batch with a last offset of at least `start_offset`, to before the first that begins at or after
/// `end_offset`.
pub fn slice_batches(data: &[u8], start_offset: i64, end_offset: i64) -> Run {
    let mut run = Run {
        start: 0,
        end: 0,
        next_offset: start_offset,
        error: None,
    };
    let mut batches = Batches::new(data, false);
    loop {
        let position = batches.position;
        let found = batches.step_whole().and_then(|found| {
            let wanted = found.filter(|h| h.last_offset() >= start_offset);
            match wanted {
                Some(header) if header.base_offset < end_offset => {
                    header.check_crc(data)?;
                    Ok(Some(Some(header)))
                }
                Some(_) => Ok(None),
                None => Ok(found.map(|_| None)),
            }
        });
        match found {
            Ok(Some(Some(header))) => {
                run.end = header.end();
                run.next_offset = header.next_offset();
            }
            Ok(Some(None)) if run.end == run.start => {
                run.start = batches.position;
                run.end = run.start;
            }
            Ok(Some(None)) => {
                run.error = Some(BadBatch::new(
                    Kind::Record,
                    format!("the batch at byte {position} goes back in offsets"),
                ));
                return run;
            }
            Ok(None) => return run,
            Err(e) => {
                run.error = Some(e);
                return run;
            }
        }
    }
}

/// Walk every record of every batch.
pub fn walk(data: &[u8], max: usize) -> Result<()> {
    each_record(data, max, false, |_, _| Ok(()))
}

/// Call `visit` with every record of every batch. A cut last batch is an error, unless `cut_is_end`.
pub fn each_record(
    data: &[u8],
    max: usize,
    cut_is_end: bool,
    mut visit: impl FnMut(&Header, Record<'_>) -> Result<()>,
) -> Result<()> {
    let mut scratch = Vec::new();
    let mut batches = Batches::new(data, true);
    loop {
        let step = if cut_is_end {
            batches.step_whole()?
        } else {
            batches.step()?
        };
        let Some(header) = step else { return Ok(()) };
        for record in Records::new(&header, body(&header, data, max, &mut scratch)?)? {
            visit(&header, record?)?;
        }
    }
}

/// (offset, timestamp) of the first record at or after `start_offset` with a timestamp of at least `timestamp`.
pub fn find_timestamp(
    data: &[u8],
    timestamp: i64,
    start_offset: i64,
    max: usize,
) -> Result<Option<(i64, i64)>> {
    let mut scratch = Vec::new();
    let mut batches = Batches::new(data, false);
    while let Some(header) = batches.step_whole()? {
        if header.max_timestamp < timestamp || header.last_offset() < start_offset {
            continue;
        }
        header.check_crc(data)?;
        for record in Records::new(&header, body(&header, data, max, &mut scratch)?)? {
            let record = record?;
            let found = (
                header.offset(record.offset_delta),
                header.timestamp(record.timestamp_delta),
            );
            if found.0 >= start_offset && found.1 >= timestamp {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// (offset, timestamp) of the first record with the largest timestamp, by what the headers say of their batches.
pub fn max_timestamp(data: &[u8], max: usize) -> Result<Option<(i64, i64)>> {
    let mut batches = Batches::new(data, false);
    let mut latest: Option<Header> = None;
    while let Some(header) = batches.step_whole()? {
        if header.count > 0 && latest.is_none_or(|l| header.max_timestamp > l.max_timestamp) {
            latest = Some(header);
        }
    }
    let Some(header) = latest else {
        return Ok(None);
    };
    header.check_crc(data)?;
    let mut scratch = Vec::new();
    let mut best: Option<(i64, i64)> = None;
    for record in Records::new(&header, body(&header, data, max, &mut scratch)?)? {
        let record = record?;
        let timestamp = header.timestamp(record.timestamp_delta);
        if best.is_none_or(|(_, b)| timestamp > b) {
            best = Some((header.offset(record.offset_delta), timestamp));
        }
    }
    Ok(best)
}
