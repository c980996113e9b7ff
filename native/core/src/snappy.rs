//! Snappy as Kafka clients send it: Xerial's framing, or one raw block.
//!
//! Xerial: 16 bytes of header (`\x82SNAPPY\0`, version, compatible version), then blocks, each of a big-endian length
//! and that many bytes of raw snappy. A stream may be several of these in a row.

use crate::codec::{broken, too_big};
use crate::error::Result;

const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const HEADER: &[u8; 16] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const BLOCK: usize = 32 * 1024;
/// No element of a raw block makes more than 64 bytes out of 3.
const MOST_EXPANSION: usize = 22;

pub fn decompress(input: &[u8], max: usize, out: &mut Vec<u8>) -> Result<()> {
    if !input.starts_with(MAGIC) {
        return block(input, max, out);
    }
    let mut rest = input;
    while !rest.is_empty() {
        if rest.starts_with(MAGIC) {
            rest = rest
                .get(HEADER.len()..)
                .ok_or_else(|| broken("snappy", &"its header is cut"))?;
            continue;
        }
        let (length, after) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| broken("snappy", &"a block length is cut"))?;
        let length = usize::try_from(i32::from_be_bytes(*length))
            .ok()
            .filter(|&length| length <= after.len())
            .ok_or_else(|| broken("snappy", &"a block is longer than what is left"))?;
        block(&after[..length], max, out)?;
        rest = &after[length..];
    }
    Ok(())
}

fn block(input: &[u8], max: usize, out: &mut Vec<u8>) -> Result<()> {
    let length = snap::raw::decompress_len(input).map_err(|e| broken("snappy", &e))?;
    if length > input.len().saturating_mul(MOST_EXPANSION) {
        return Err(broken("snappy", &"it claims more than its bytes can hold"));
    }
    let start = out.len();
    if length > max.saturating_sub(start) {
        return Err(too_big(max));
    }
    out.resize(start + length, 0);
    snap::raw::Decoder::new()
        .decompress(input, &mut out[start..])
        .map_err(|e| broken("snappy", &e))?;
    Ok(())
}

pub fn compress(input: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for chunk in input.chunks(BLOCK) {
        let start = out.len();
        out.resize(start + 4 + snap::raw::max_compress_len(chunk.len()), 0);
        let length = encoder.compress(chunk, &mut out[start + 4..])?;
        out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
        out.truncate(start + 4 + length);
    }
    Ok(out)
}
