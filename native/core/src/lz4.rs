//! LZ4 frames: magic, descriptor, blocks, end mark, checksums where the descriptor says so.
//!
//! Decoded by hand straight into the output (which is also the window of linked blocks), so that nothing is sized by
//! what the frame says of itself. Frames may follow each other; legacy and skippable frames are not Kafka's.

use std::io::Write;

use lz4_flex::block;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use crate::codec::{broken, too_big};
use crate::error::{BadBatch, Result};

const MAGIC: u32 = 0x184D_2204;
const WINDOW: usize = 64 * 1024;
/// A byte of a block makes at most 255 bytes.
const MOST_EXPANSION: usize = 255;

/// What the frame descriptor says that matters for reading.
struct Descriptor {
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_size: Option<u64>,
    block_size: usize,
}

pub fn decompress(mut input: &[u8], max: usize, out: &mut Vec<u8>) -> Result<()> {
    loop {
        frame(&mut input, max, out)?;
        if input.is_empty() {
            return Ok(());
        }
    }
}

fn frame(input: &mut &[u8], max: usize, out: &mut Vec<u8>) -> Result<()> {
    if u32::from_le_bytes(take(input)?) != MAGIC {
        return Err(bad("it does not begin with the frame magic"));
    }
    let descriptor = descriptor(input)?;
    let start = out.len();
    loop {
        let word = u32::from_le_bytes(take(input)?);
        if word == 0 {
            break;
        }
        let (stored_raw, length) = (word >> 31 == 1, (word & 0x7FFF_FFFF) as usize);
        if length > descriptor.block_size || length > input.len() {
            return Err(bad("a block is longer than it can be"));
        }
        let (data, rest) = input.split_at(length);
        *input = rest;
        if descriptor.block_checksums
            && u32::from_le_bytes(take(input)?) != XxHash32::oneshot(0, data)
        {
            return Err(bad("a block's checksum does not match"));
        }
        let room = max.saturating_sub(out.len());
        if stored_raw {
            if length > room {
                return Err(too_big(max));
            }
            out.extend_from_slice(data);
        } else {
            compressed_block(data, start, &descriptor, room, max, out)?;
        }
    }
    let content = &out[start..];
    if descriptor.content_checksum
        && u32::from_le_bytes(take(input)?) != XxHash32::oneshot(0, content)
    {
        return Err(bad("its content checksum does not match"));
    }
    if descriptor
        .content_size
        .is_some_and(|size| size != content.len() as u64)
    {
        return Err(bad("its content is not as long as it says"));
    }
    Ok(())
}

fn compressed_block(
    data: &[u8],
    start: usize,
    descriptor: &Descriptor,
    room: usize,
    max: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let possible = descriptor
        .block_size
        .min(data.len().saturating_mul(MOST_EXPANSION));
    let at = out.len();
    out.resize(at + possible.min(room), 0);
    let (before, target) = out.split_at_mut(at);
    let made = if descriptor.linked {
        let window = &before[start.max(at.saturating_sub(WINDOW))..];
        block::decompress_into_with_dict(data, target, window)
    } else {
        block::decompress_into(data, target)
    };
    match made {
        Ok(length) => {
            out.truncate(at + length);
            Ok(())
        }
        Err(block::DecompressError::OutputTooSmall { .. }) if room < possible => Err(too_big(max)),
        Err(e) => Err(broken("lz4", &e)),
    }
}

fn descriptor(input: &mut &[u8]) -> Result<Descriptor> {
    let whole = *input;
    let [flags, block] = take(input)?;
    if flags >> 6 != 1 || flags & 0x02 != 0 || block & 0x8F != 0 {
        return Err(bad("its frame descriptor is not of version 1"));
    }
    let block_size = match block >> 4 {
        4 => 64 << 10,
        5 => 256 << 10,
        6 => 1 << 20,
        7 => 4 << 20,
        _ => return Err(bad("its block size is unknown")),
    };
    let content_size = match flags & 0x08 {
        0 => None,
        _ => Some(u64::from_le_bytes(take(input)?)),
    };
    if flags & 0x01 != 0 {
        return Err(bad("it needs a dictionary"));
    }
    let described = &whole[..whole.len() - input.len()];
    let [checksum] = take(input)?;
    if checksum != (XxHash32::oneshot(0, described) >> 8) as u8 {
        return Err(bad("its header checksum does not match"));
    }
    Ok(Descriptor {
        linked: flags & 0x20 == 0,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        content_size,
        block_size,
    })
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N]> {
    let (bytes, rest) = input
        .split_first_chunk::<N>()
        .ok_or_else(|| bad("it is cut"))?;
    *input = rest;
    Ok(*bytes)
}

#[cold]
fn bad(why: &'static str) -> BadBatch {
    broken("lz4", &why)
}

pub fn compress(input: &[u8]) -> std::io::Result<Vec<u8>> {
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(input)?;
    encoder.finish().map_err(std::io::Error::other)
}
