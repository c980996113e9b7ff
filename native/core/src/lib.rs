//! Kafka record batches (magic 2) as plain functions from bytes to bytes.
//!
//! Every function takes bytes that anyone may have written. None trusts a length or a count that it reads: a length is
//! compared with the bytes that are left before it is used, and memory grows with what was really read or decompressed.

#![forbid(unsafe_code)]

pub mod arrow;
pub mod build;
pub mod codec;
pub mod compact;
pub mod crc;
pub mod error;
pub mod header;
pub mod json;
pub mod latest;
mod lz4;
pub mod patterns;
pub mod share;
mod snappy;
pub mod varint;
pub mod walk;

/// Default bound of the decompressed bytes of one batch.
pub const MAX_DECOMPRESSED: usize = 256 << 20;
