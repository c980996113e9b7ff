//! From records to a batch.

use crate::codec::Codec;
use crate::error::{BadBatch, Kind, Result};
use crate::header::{CODEC_MASK, Header};
use crate::varint::{put_i32, put_i64, size};
use crate::walk::{self, Record, Records};

/// What a record is made of besides its place in the batch. Header bytes are as stored, without their count.
pub struct Content<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub header_count: usize,
    pub header_bytes: &'a [u8],
}

/// Append one record.
pub fn put_record(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    content: &Content<'_>,
) -> Result<()> {
    let nullable = |field: Option<&[u8]>| field.map_or(1, |f| size(f.len() as i64) + f.len());
    let length = 1
        + size(timestamp_delta)
        + size(i64::from(offset_delta))
        + nullable(content.key)
        + nullable(content.value)
        + size(content.header_count as i64)
        + content.header_bytes.len();
    put_i32(
        out,
        i32::try_from(length)
            .map_err(|_| BadBatch::new(Kind::TooBig, "a record does not fit in a batch"))?,
    );
    out.push(0);
    put_i64(out, timestamp_delta);
    put_i32(out, offset_delta);
    put_nullable(out, content.key);
    put_nullable(out, content.value);
    put_i32(out, content.header_count as i32);
    out.extend_from_slice(content.header_bytes);
    Ok(())
}

/// Append one record header, as stored.
pub fn put_header(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    put_i32(out, key.len() as i32);
    out.extend_from_slice(key);
    put_nullable(out, value);
}

fn put_nullable(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put_i32(out, -1),
        Some(bytes) => {
            put_i32(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}

/// Append `record` with its timestamp delta moved by `shift`.
pub fn put_shifted(out: &mut Vec<u8>, record: &Record<'_>, shift: i64) -> Result<()> {
    let (header_count, header_bytes) = record.stored_headers();
    let content = Content {
        key: record.key,
        value: record.value,
        header_count,
        header_bytes,
    };
    put_record(
        out,
        record.timestamp_delta.wrapping_add(shift),
        record.offset_delta,
        &content,
    )
}

/// Append the batch of this header with `body` compressed. The header's codec is set, its other fields are kept.
pub fn put_batch(
    header: &Header,
    codec: Codec,
    level: Option<i32>,
    body: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut header = *header;
    header.attributes = (header.attributes & !CODEC_MASK) | codec as i16;
    if codec == Codec::None {
        return header.write(body, out);
    }
    let stored = codec
        .compress(level, body)
        .map_err(|e| BadBatch::new(Kind::TooBig, format!("cannot compress the batch: {e}")))?;
    header.write(&stored, out)
}

/// The same batch with its records, which must be well formed, in another codec.
pub fn recompress(data: &[u8], codec: Codec, level: Option<i32>, max: usize) -> Result<Vec<u8>> {
    let header = Header::parse(data, 0)?;
    if header.size < data.len() {
        return Err(BadBatch::new(Kind::Several, "more than one batch"));
    }
    header.check_crc(data)?;
    let mut scratch = Vec::new();
    let body = walk::body(&header, data, max, &mut scratch)?;
    for record in Records::new(&header, body)? {
        record?;
    }
    let mut out = Vec::new();
    put_batch(&header, codec, level, body, &mut out)?;
    Ok(out)
}
