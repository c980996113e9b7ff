//! Batches to test with, and a small generator of pseudo-random numbers.

#![allow(dead_code)] // each test file uses a part of this

use headrace_core::build::{Content, put_batch, put_header, put_record};
use headrace_core::codec::Codec;
use headrace_core::header::Header;
use headrace_core::latest::LatestOffsets;

pub const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];
pub const MAX: usize = 4 << 20;

/// A seeded generator (xorshift64*): the same numbers on every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

pub type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

pub fn header(base_offset: i64, rows: &[Row]) -> Header {
    Header {
        position: 0,
        size: 0,
        base_offset,
        leader_epoch: 3,
        crc: 0,
        attributes: 0,
        last_offset_delta: rows.len() as i32 - 1,
        base_timestamp: rows.first().map_or(-1, |row| row.0),
        max_timestamp: rows.iter().map(|row| row.0).max().unwrap_or(-1),
        producer_id: 7,
        producer_epoch: 1,
        base_sequence: 0,
        count: rows.len() as i32,
    }
}

pub fn body(rows: &[Row]) -> Vec<u8> {
    let mut headers = Vec::new();
    put_header(&mut headers, b"name", Some(b"value"));
    put_header(&mut headers, "h\u{e9}".as_bytes(), None);
    let mut out = Vec::new();
    for (i, (timestamp, key, value)) in rows.iter().enumerate() {
        let with_headers = i % 3 == 0;
        let content = Content {
            key: key.as_deref(),
            value: value.as_deref(),
            header_count: if with_headers { 2 } else { 0 },
            header_bytes: if with_headers { &headers } else { &[] },
        };
        let delta = timestamp.wrapping_sub(rows[0].0);
        put_record(&mut out, delta, i as i32, &content).unwrap();
    }
    out
}

pub fn batch(codec: Codec, base_offset: i64, rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::new();
    put_batch(
        &header(base_offset, rows),
        codec,
        None,
        &body(rows),
        &mut out,
    )
    .unwrap();
    out
}

/// Rows of a few keys, some without a key, some without a value.
pub fn rows(random: &mut Random, count: usize) -> Vec<Row> {
    (0..count)
        .map(|_| {
            let key = (random.below(8) > 0).then(|| vec![b'k', random.below(5) as u8]);
            let value = (random.below(4) > 0).then(|| {
                let length = random.below(40);
                random.bytes(length)
            });
            (1_000_000 + random.below(1000) as i64 - 500, key, value)
        })
        .collect()
}

pub fn latest(data: &[u8]) -> LatestOffsets {
    let mut latest = LatestOffsets::new(1000);
    latest
        .add(data, i64::MAX, &Default::default(), MAX)
        .unwrap();
    latest
}
