//! The compression codecs of record batches.
//!
//! Decompression appends to a buffer that grows with what comes out, and stops at a bound.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::error::{BadBatch, Kind, Result};
use crate::header::CODEC_MASK;
use crate::{lz4, snappy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    pub fn from_id(id: i64) -> Option<Codec> {
        [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ]
        .into_iter()
        .find(|codec| *codec as i64 == id)
    }

    #[inline]
    pub fn from_attributes(attributes: i16) -> Result<Codec> {
        let id = attributes & CODEC_MASK;
        Codec::from_id(i64::from(id)).ok_or_else(|| {
            BadBatch::new(
                Kind::Codec,
                format!("codec {id} is unknown: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"),
            )
        })
    }

    /// Whether `compress` takes this level.
    pub fn takes_level(self, level: i32) -> bool {
        match self {
            Codec::None | Codec::Snappy => true,
            Codec::Gzip => (-1..=9).contains(&level) && level != 0,
            Codec::Lz4 => (1..=17).contains(&level),
            Codec::Zstd => zstd::compression_level_range().contains(&level),
        }
    }

    /// Append `input`, decompressed, to `out`, which must not get longer than `max`.
    pub fn decompress(self, input: &[u8], max: usize, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Codec::None => {
                if input.len() > max.saturating_sub(out.len()) {
                    return Err(too_big(max));
                }
                out.extend_from_slice(input);
                Ok(())
            }
            Codec::Gzip => read_bounded(MultiGzDecoder::new(input), "gzip", max, out),
            Codec::Snappy => snappy::decompress(input, max, out),
            Codec::Lz4 => lz4::decompress(input, max, out),
            Codec::Zstd => {
                // The decoder's own bound holds for the window: 128 MiB of address space, used as it fills.
                let decoder = zstd::stream::read::Decoder::with_buffer(input)
                    .map_err(|e| broken("zstd", &e))?;
                read_bounded(decoder, "zstd", max, out)
            }
        }
    }

    /// Compress; a level of None is the codec's default. Snappy has no levels, and neither has this lz4.
    pub fn compress(self, level: Option<i32>, input: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Codec::None => Ok(input.to_vec()),
            Codec::Gzip => {
                let level = match level {
                    Some(level @ 0..) => Compression::new(level as u32),
                    _ => Compression::default(),
                };
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(input)?;
                encoder.finish()
            }
            Codec::Snappy => snappy::compress(input),
            Codec::Lz4 => lz4::compress(input),
            Codec::Zstd => zstd::bulk::compress(input, level.unwrap_or(0)),
        }
    }
}

fn read_bounded(mut reader: impl Read, name: &str, max: usize, out: &mut Vec<u8>) -> Result<()> {
    let left = max.saturating_sub(out.len());
    let read = reader
        .by_ref()
        .take((left as u64).saturating_add(1))
        .read_to_end(out)
        .map_err(|e| broken(name, &e))?;
    if read > left {
        Err(too_big(max))
    } else {
        Ok(())
    }
}

#[cold]
pub(crate) fn broken(name: &str, why: &dyn std::fmt::Display) -> BadBatch {
    BadBatch::new(
        Kind::Decompress,
        format!("the {name} data of the batch is broken: {why}"),
    )
}

#[cold]
pub(crate) fn too_big(max: usize) -> BadBatch {
    BadBatch::new(
        Kind::TooBig,
        format!("the batch is larger than {max} bytes when decompressed"),
    )
}
