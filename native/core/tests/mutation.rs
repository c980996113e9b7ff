//! Broken batches with a right checksum: every function answers, none panics, nothing grows beyond its bound.

mod support;

use std::collections::HashSet;

use headrace_core::arrow::records_to_arrow;
use headrace_core::build::recompress;
use headrace_core::codec::Codec;
use headrace_core::compact::{Plan, compact, drop_keys};
use headrace_core::header::{SIZE, set_append_time, write_crc};
use headrace_core::latest::{Aborted, LatestOffsets};
use headrace_core::walk::{
    Batches, check_batch, find_timestamp, max_timestamp, slice_batches, walk,
};
use support::{CODECS, MAX, Random, batch, rows};

const CASES_PER_CODEC: u64 = 20_000;

fn mutate(random: &mut Random, data: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        if data.is_empty() {
            return;
        }
        // Half of the changes in the first bytes: the header and the first record or the codec's own header.
        let reach = if random.below(2) == 0 {
            data.len().min(SIZE + 32)
        } else {
            data.len()
        };
        let at = random.below(reach);
        match random.below(6) {
            0 => data[at] ^= 1 << random.below(8),
            1 => data[at] = random.next() as u8,
            2 => data[at] = [0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF][random.below(6)],
            3 => {
                let end = (at + 1 + random.below(8)).min(data.len());
                data.drain(at..end);
            }
            4 => {
                let length = 1 + random.below(8);
                let bytes = random.bytes(length);
                data.splice(at..at, bytes);
            }
            _ => data.truncate(at),
        }
    }
}

/// Make length and checksum right, so that the change is met deeper in.
fn repair(random: &mut Random, data: &mut [u8]) {
    if data.len() < SIZE {
        return;
    }
    if random.below(8) > 0 {
        let length = data.len() as i32 - 12;
        data[8..12].copy_from_slice(&length.to_be_bytes());
        data[16] = 2;
    }
    write_crc(data);
}

fn try_everything(data: &[u8]) -> usize {
    let mut accepted = 0;
    accepted += usize::from(check_batch(data, false, MAX).is_ok());
    accepted += usize::from(check_batch(data, true, MAX).is_ok());
    accepted += usize::from(walk(data, MAX).is_ok());
    accepted += usize::from(find_timestamp(data, 1_000_000, 3, MAX).is_ok());
    accepted += usize::from(max_timestamp(data, MAX).is_ok());
    accepted += usize::from(records_to_arrow(data, 2, 1 << 40, MAX).is_ok());
    accepted += usize::from(recompress(data, Codec::Snappy, None, MAX).is_ok());
    slice_batches(data, 5, i64::MAX);
    let mut batches = Batches::new(data, true);
    while let Ok(Some(_)) = batches.step() {}
    let mut latest = LatestOffsets::new(16);
    accepted += usize::from(latest.add(data, i64::MAX, &Aborted::default(), MAX).is_ok());
    let keys = HashSet::from([vec![b'k', 1]]);
    accepted += usize::from(drop_keys(data, &keys, MAX).is_ok());
    let plan = Plan {
        latest: &latest,
        now_ms: i64::MAX - 5,
        delete_retention_ms: 100,
        keep_empty: HashSet::from([9]),
        aborted: Aborted::new([(7, 0, 4)]),
        max_bytes: MAX,
    };
    if let Ok(outcome) = compact(data, &plan) {
        accepted += 1;
        walk(&outcome.bytes, usize::MAX).expect("what compaction writes is well formed");
    }
    let mut copy = data.to_vec();
    let _ = set_append_time(&mut copy, -1);
    accepted
}

#[test]
fn mutated_batches_are_answered_without_a_panic() {
    for codec in CODECS {
        let mut random = Random::new(100 + codec as u64);
        let seeds: Vec<Vec<u8>> = [1, 3, 40]
            .map(|count| {
                let rows = rows(&mut random, count);
                batch(codec, 0, &rows)
            })
            .to_vec();
        let mut accepted = 0;
        for _ in 0..CASES_PER_CODEC {
            let mut data = seeds[random.below(seeds.len())].clone();
            mutate(&mut random, &mut data);
            repair(&mut random, &mut data);
            if random.below(10) == 0 {
                data.extend_from_slice(&seeds[0]);
            }
            accepted += try_everything(&data);
        }
        assert!(accepted > 0, "some mutations must get past the checks");
    }
}

#[test]
fn every_cut_of_a_batch_is_answered() {
    for codec in CODECS {
        let data = batch(codec, 0, &rows(&mut Random::new(9), 5));
        for cut in 0..data.len() {
            try_everything(&data[..cut]);
            let mut shorter = data[..cut].to_vec();
            repair(&mut Random::new(1), &mut shorter);
            try_everything(&shorter);
        }
    }
}

#[test]
fn raw_codec_data_of_any_kind_is_answered() {
    let mut random = Random::new(77);
    let mut out = Vec::new();
    for codec in CODECS {
        let whole = codec.compress(None, &random.bytes(2000)).unwrap();
        for _ in 0..3000 {
            let mut data = whole.clone();
            mutate(&mut random, &mut data);
            out.clear();
            let _ = codec.decompress(&data, MAX, &mut out);
            assert!(out.len() <= MAX + 1);
        }
    }
}
