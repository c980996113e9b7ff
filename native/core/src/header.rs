//! The header of a record batch: 61 bytes, big-endian.
//!
//! ```text
//!  0 base offset i64      21 attributes i16          43 producer id i64
//!  8 batch length i32     23 last offset delta i32   51 producer epoch i16
//! 12 leader epoch i32     27 base timestamp i64      53 base sequence i32
//! 16 magic i8             35 max timestamp i64       57 record count i32
//! 17 crc u32 (of all that follows)                   61 records
//! ```

use crate::codec::Codec;
use crate::crc::crc32c;
use crate::error::{BadBatch, Kind, Result};

pub const SIZE: usize = 61;
/// Bytes before the ones that the length field counts.
pub const LENGTH_OVERHEAD: usize = 12;
/// The checksum covers everything from here.
pub const CRC_START: usize = 21;

pub const LOG_APPEND_TIME: i16 = 0x08;
pub const TRANSACTIONAL: i16 = 0x10;
pub const CONTROL: i16 = 0x20;
pub const DELETE_HORIZON: i16 = 0x40;
pub const CODEC_MASK: i16 = 0x07;

/// The smallest length field of the formats before magic 2: below it, the magic byte means nothing.
const LEAST_LEGACY_LENGTH: i32 = 14;

/// A header, and where its batch lies in the buffer it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub position: usize,
    pub size: usize,
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: i32,
}

fn field<const N: usize>(data: &[u8; SIZE], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}

impl Header {
    /// Read the header at `position`, and check that its batch is whole, but not its checksum.
    #[inline]
    pub fn parse(data: &[u8], position: usize) -> Result<Header> {
        let rest = data.get(position..).unwrap_or(&[]);
        if rest.len() < CRC_START - 4 {
            return Err(cut(position, rest.len(), SIZE));
        }
        let length = i32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]);
        if length < LEAST_LEGACY_LENGTH {
            return Err(bad_length(position, length));
        }
        if rest[16] != 2 {
            return Err(BadBatch::new(
                Kind::Magic,
                format!("the batch at byte {position} has magic {}, not 2", rest[16]),
            ));
        }
        let size = length as usize + LENGTH_OVERHEAD;
        if size < SIZE {
            return Err(bad_length(position, length));
        }
        if rest.len() < size {
            return Err(cut(position, rest.len(), size));
        }
        let head: &[u8; SIZE] = rest[..SIZE].try_into().expect("a slice of SIZE bytes");
        Ok(Header {
            position,
            size,
            base_offset: i64::from_be_bytes(field(head, 0)),
            leader_epoch: i32::from_be_bytes(field(head, 12)),
            crc: u32::from_be_bytes(field(head, 17)),
            attributes: i16::from_be_bytes(field(head, 21)),
            last_offset_delta: i32::from_be_bytes(field(head, 23)),
            base_timestamp: i64::from_be_bytes(field(head, 27)),
            max_timestamp: i64::from_be_bytes(field(head, 35)),
            producer_id: i64::from_be_bytes(field(head, 43)),
            producer_epoch: i16::from_be_bytes(field(head, 51)),
            base_sequence: i32::from_be_bytes(field(head, 53)),
            count: i32::from_be_bytes(field(head, 57)),
        })
    }

    /// The whole batch.
    pub fn bytes<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        &data[self.position..self.end()]
    }

    /// The records as they are stored.
    pub fn stored<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        &self.bytes(data)[SIZE..]
    }

    /// Position after the batch.
    pub fn end(&self) -> usize {
        self.position + self.size
    }

    #[inline]
    pub fn check_crc(&self, data: &[u8]) -> Result<()> {
        let actual = crc32c(&self.bytes(data)[CRC_START..]);
        if actual == self.crc {
            return Ok(());
        }
        Err(BadBatch::new(
            Kind::Crc,
            format!(
                "the batch at byte {} (offset {}) has checksum {actual:#010x}, its header says {:#010x}",
                self.position, self.base_offset, self.crc
            ),
        ))
    }

    pub fn codec(&self) -> Result<Codec> {
        Codec::from_attributes(self.attributes)
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    pub fn has(&self, flag: i16) -> bool {
        self.attributes & flag != 0
    }

    pub fn is_control(&self) -> bool {
        self.has(CONTROL)
    }

    /// When tombstones and markers of this batch may go, if that was decided.
    pub fn delete_horizon(&self) -> Option<i64> {
        self.has(DELETE_HORIZON).then_some(self.base_timestamp)
    }

    /// The timestamp of a record with this delta.
    #[inline]
    pub fn timestamp(&self, delta: i64) -> i64 {
        if self.has(LOG_APPEND_TIME) {
            self.max_timestamp
        } else {
            self.base_timestamp.wrapping_add(delta)
        }
    }

    /// The offset of a record with this delta.
    #[inline]
    pub fn offset(&self, delta: i32) -> i64 {
        self.base_offset.wrapping_add(i64::from(delta))
    }

    /// Put a whole batch of these fields and these stored records at the end of `out`; `size` and `crc` are made anew.
    /// An error if the batch would be larger than its length field can say.
    pub fn write(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let length = i32::try_from(SIZE - LENGTH_OVERHEAD + stored.len()).map_err(|_| {
            BadBatch::new(
                Kind::TooBig,
                format!("{} bytes of records do not fit in one batch", stored.len()),
            )
        })?;
        let start = out.len();
        out.reserve(SIZE + stored.len());
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        out.push(2);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.attributes.to_be_bytes());
        out.extend_from_slice(&self.last_offset_delta.to_be_bytes());
        out.extend_from_slice(&self.base_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.base_sequence.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(stored);
        write_crc(&mut out[start..]);
        Ok(())
    }
}

/// Write the checksum of a whole batch into it.
pub fn write_crc(batch: &mut [u8]) {
    let crc = crc32c(&batch[CRC_START..]);
    batch[CRC_START - 4..CRC_START].copy_from_slice(&crc.to_be_bytes());
}

/// Mark a batch as log-append-time, in place.
pub fn set_append_time(batch: &mut [u8], timestamp: i64) -> Result<()> {
    let header = Header::parse(batch, 0)?;
    let batch = &mut batch[..header.size];
    batch[21..23].copy_from_slice(&(header.attributes | LOG_APPEND_TIME).to_be_bytes());
    batch[35..43].copy_from_slice(&timestamp.to_be_bytes());
    write_crc(batch);
    Ok(())
}

#[cold]
fn cut(position: usize, left: usize, needed: usize) -> BadBatch {
    BadBatch::new(
        Kind::Truncated,
        format!("the batch at byte {position} needs {needed} bytes, {left} are left"),
    )
}

#[cold]
fn bad_length(position: usize, length: i32) -> BadBatch {
    BadBatch::new(
        Kind::Length,
        format!("the batch at byte {position} says that it is {length} bytes long"),
    )
}
