//! What is built is read back, and what is bad is refused for the right reason.

mod support;

use std::collections::HashSet;

use arrow_array::Array;
use headrace_core::arrow::records_to_arrow;
use headrace_core::build::{put_batch, recompress};
use headrace_core::codec::Codec;
use headrace_core::compact::{Plan, compact, drop_keys};
use headrace_core::error::{BadBatch, Kind};
use headrace_core::header::{CONTROL, DELETE_HORIZON, Header, set_append_time, write_crc};
use headrace_core::walk::{
    Batches, check_batch, each_record, find_timestamp, max_timestamp, slice_batches, walk,
};
use support::{CODECS, MAX, Random, Row, batch, body, header, latest, rows};

fn read(data: &[u8]) -> Result<Vec<(i64, Row)>, BadBatch> {
    let mut found = Vec::new();
    each_record(data, MAX, false, |header, record| {
        found.push((
            header.offset(record.offset_delta),
            (
                header.timestamp(record.timestamp_delta),
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
            ),
        ));
        Ok(())
    })?;
    Ok(found)
}

fn offsets_of(data: &[u8]) -> Vec<i64> {
    read(data).unwrap().into_iter().map(|(o, _)| o).collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T, BadBatch>) -> Kind {
    result.unwrap_err().kind
}

/// Change a batch and make its checksum right again.
fn changed(mut data: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut data);
    write_crc(&mut data);
    data
}

#[test]
fn what_is_built_is_read_back_in_every_codec() {
    let mut random = Random::new(1);
    for codec in CODECS {
        for count in [1, 2, 50, 3000] {
            let rows = rows(&mut random, count);
            let data = batch(codec, 40, &rows);
            check_batch(&data, false, MAX).unwrap();
            let expected: Vec<(i64, Row)> = (40..).zip(rows).collect();
            assert_eq!(read(&data).unwrap(), expected);
            let columns = records_to_arrow(&data, 0, i64::MAX, MAX).unwrap();
            assert_eq!(columns.len(), count);
        }
    }
}

#[test]
fn recompressing_keeps_the_records() {
    let rows = rows(&mut Random::new(2), 300);
    for from in CODECS {
        for to in CODECS {
            let data = recompress(&batch(from, 9, &rows), to, None, MAX).unwrap();
            assert_eq!(data, batch(to, 9, &rows));
        }
    }
}

#[test]
fn every_flaw_has_its_kind() {
    let rows = rows(&mut Random::new(3), 20);
    let data = batch(Codec::None, 0, &rows);
    let zstd = batch(Codec::Zstd, 0, &rows);
    let check = |data: &[u8]| kind(check_batch(data, false, MAX));
    assert_eq!(check(&[]), Kind::Truncated);
    assert_eq!(check(&data[..60]), Kind::Truncated);
    assert_eq!(check(&data[..data.len() - 1]), Kind::Truncated);
    assert_eq!(check(&[0; 100]), Kind::Length);
    assert_eq!(
        check(&changed(data.clone(), |d| d[8..12].fill(0xFF))),
        Kind::Length
    );
    assert_eq!(check(&changed(data.clone(), |d| d[16] = 1)), Kind::Magic);
    assert_eq!(check(&[&data[..], &data[..]].concat()), Kind::Several);
    let mut flipped = data.clone();
    flipped[70] ^= 1;
    assert_eq!(check(&flipped), Kind::Crc);
    assert_eq!(check(&changed(data.clone(), |d| d[22] = 5)), Kind::Codec);
    assert_eq!(
        check(&changed(data.clone(), |d| d[57..61].fill(0))),
        Kind::Count
    );
    assert_eq!(check(&changed(data.clone(), |d| d[26] += 1)), Kind::Count);
    assert_eq!(check(&changed(data.clone(), |d| d[61] = 1)), Kind::Record);
    assert_eq!(
        kind(walk(&changed(zstd.clone(), |d| d[70] ^= 0xFF), MAX)),
        Kind::Decompress
    );
    assert_eq!(kind(walk(&zstd, 10)), Kind::TooBig);
    assert_eq!(kind(check_batch(&data, true, MAX)), Kind::NullKey);
    assert_eq!(kind(check_batch(&zstd, true, MAX)), Kind::NullKey);
}

#[test]
fn a_count_that_cannot_fit_is_refused_before_anything_is_allocated() {
    let data = changed(
        batch(Codec::None, 0, &rows(&mut Random::new(4), 3)),
        |data| {
            data[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
            data[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        },
    );
    assert_eq!(kind(check_batch(&data, false, MAX)), Kind::Count);
    assert_eq!(kind(walk(&data, MAX)), Kind::Count);
}

#[test]
fn what_decompresses_without_end_is_stopped() {
    let rows = [(0, Some(b"k".to_vec()), Some(vec![0; 8 << 20]))];
    for codec in CODECS.into_iter().filter(|codec| *codec != Codec::None) {
        let data = batch(codec, 0, &rows);
        assert!(data.len() < 1 << 20);
        assert_eq!(kind(walk(&data, 1 << 20)), Kind::TooBig);
        walk(&data, 9 << 20).unwrap();
        let exact = body(&rows).len();
        walk(&data, exact).unwrap();
        assert_eq!(kind(walk(&data, exact - 1)), Kind::TooBig);
    }
}

#[test]
fn what_cannot_be_compressed_is_bounded_too() {
    let rows = [(0, None, Some(Random::new(8).bytes(200_000)))];
    for codec in CODECS.into_iter().filter(|codec| *codec != Codec::None) {
        assert_eq!(kind(walk(&batch(codec, 0, &rows), 100_000)), Kind::TooBig);
    }
}

#[test]
fn a_wrong_checksum_is_never_read_past() {
    for codec in CODECS {
        let mut data = batch(codec, 0, &rows(&mut Random::new(6), 10));
        let latest = latest(&data);
        *data.last_mut().unwrap() ^= 1;
        assert_eq!(kind(walk(&data, MAX)), Kind::Crc);
        assert_eq!(kind(compact(&data, &plan(&latest, 0))), Kind::Crc);
        assert_eq!(kind(drop_keys(&data, &HashSet::new(), MAX)), Kind::Crc);
        assert_eq!(kind(recompress(&data, Codec::None, None, MAX)), Kind::Crc);
        assert_eq!(kind(find_timestamp(&data, 0, 0, MAX)), Kind::Crc);
        assert_eq!(kind(max_timestamp(&data, MAX)), Kind::Crc);
        assert_eq!(kind(records_to_arrow(&data, 0, 9, MAX)), Kind::Crc);
    }
}

#[test]
fn a_slice_is_the_batches_that_hold_the_offsets() {
    let mut random = Random::new(5);
    let parts: Vec<Vec<u8>> = [0, 10, 20]
        .map(|base| batch(Codec::None, base, &rows(&mut random, 10)))
        .to_vec();
    let ends: Vec<usize> = parts
        .iter()
        .scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        })
        .collect();
    let data = parts.concat();
    let slice = |data: &[u8], from, to| {
        let run = slice_batches(data, from, to);
        (
            run.start,
            run.end,
            run.next_offset,
            run.error.map(|e| e.kind),
        )
    };
    assert_eq!(slice(&data, 0, 100), (0, ends[2], 30, None));
    assert_eq!(slice(&data, 9, 100), (0, ends[2], 30, None));
    assert_eq!(slice(&data, 10, 11), (ends[0], ends[1], 20, None));
    assert_eq!(slice(&data, 10, 10), (ends[0], ends[0], 10, None));
    assert_eq!(slice(&data, 30, 100), (ends[2], ends[2], 30, None));
    assert_eq!(
        slice(&data[..ends[2] - 1], 12, 100),
        (ends[0], ends[1], 20, None)
    );
    let mut flipped = data.clone();
    flipped[ends[1] + 65] ^= 1;
    assert_eq!(slice(&flipped, 0, 100), (0, ends[1], 20, Some(Kind::Crc)));
    assert_eq!(
        slice(&flipped, 25, 100),
        (ends[1], ends[1], 25, Some(Kind::Crc))
    );
    assert_eq!(slice(&flipped, 0, 20), (0, ends[1], 20, None));
}

#[test]
fn timestamps_are_found() {
    let rows: Vec<Row> = [500, 100, 900, 900, 200].map(|t| (t, None, None)).to_vec();
    for codec in CODECS {
        let mut data = batch(codec, 7, &rows);
        assert_eq!(find_timestamp(&data, 501, 0, MAX), Ok(Some((9, 900))));
        assert_eq!(find_timestamp(&data, 0, 8, MAX), Ok(Some((8, 100))));
        assert_eq!(find_timestamp(&data, 901, 0, MAX), Ok(None));
        assert_eq!(max_timestamp(&data, MAX), Ok(Some((9, 900))));
        set_append_time(&mut data, 12345).unwrap();
        assert_eq!(find_timestamp(&data, 901, 8, MAX), Ok(Some((8, 12345))));
        assert_eq!(max_timestamp(&data, MAX), Ok(Some((7, 12345))));
        assert!(read(&data).unwrap().iter().all(|(_, row)| row.0 == 12345));
    }
    assert_eq!(max_timestamp(&[], MAX), Ok(None));
}

fn plan(latest: &headrace_core::latest::LatestOffsets, now_ms: i64) -> Plan<'_> {
    Plan {
        latest,
        now_ms,
        delete_retention_ms: 100,
        keep_empty: HashSet::new(),
        aborted: Default::default(),
        max_bytes: MAX,
    }
}

fn row(key: &[u8], value: Option<&[u8]>) -> Row {
    (50, Some(key.to_vec()), value.map(<[u8]>::to_vec))
}

#[test]
fn a_tombstone_lives_until_its_horizon() {
    for codec in CODECS {
        let data = batch(
            codec,
            0,
            &[
                row(b"a", Some(b"1")),
                row(b"b", Some(b"1")),
                row(b"a", None),
            ],
        );
        let latest = latest(&data);
        let first = compact(&data, &plan(&latest, 1000)).unwrap();
        assert_eq!((first.kept, first.dropped), (2, 1));
        let header = Header::parse(&first.bytes, 0).unwrap();
        assert_eq!(header.delete_horizon(), Some(1100));
        assert_eq!((header.last_offset_delta, header.max_timestamp), (2, 50));
        assert!(read(&first.bytes).unwrap().iter().all(|(_, r)| r.0 == 50));
        let second = compact(&first.bytes, &plan(&latest, 1099)).unwrap();
        assert_eq!(second.bytes, first.bytes);
        let third = compact(&first.bytes, &plan(&latest, 1100)).unwrap();
        assert_eq!(offsets_of(&third.bytes), [1]);
    }
}

#[test]
fn an_empty_batch_stays_only_where_it_is_needed() {
    let data = [
        batch(Codec::Lz4, 0, &[row(b"a", Some(b"1"))]),
        batch(Codec::Gzip, 1, &[row(b"a", Some(b"2"))]),
        batch(Codec::None, 2, &[row(b"a", Some(b"3"))]),
    ]
    .concat();
    let latest = latest(&data);
    let mut plan = plan(&latest, 0);
    assert_eq!(offsets_of(&compact(&data, &plan).unwrap().bytes), [2]);
    plan.keep_empty.insert(1);
    let kept = compact(&data, &plan).unwrap();
    let header = Header::parse(&kept.bytes, 0).unwrap();
    assert_eq!(
        (header.base_offset, header.count, header.size),
        (1, 0, headrace_core::header::SIZE)
    );
    assert_eq!(header.attributes, 0);
    assert_eq!(offsets_of(&kept.bytes), [2]);
    assert_eq!(compact(&kept.bytes, &plan).unwrap().bytes, kept.bytes);
}

#[test]
fn control_batches_stay_until_their_own_horizon() {
    let rows = [row(&[0, 0, 0, 1], None)];
    let mut marker = header(5, &rows);
    marker.attributes = CONTROL;
    let mut data = Vec::new();
    put_batch(&marker, Codec::None, None, &body(&rows), &mut data).unwrap();
    let latest = latest(&data);
    assert!(latest.is_empty());
    let kept = compact(&data, &plan(&latest, i64::MAX)).unwrap();
    assert_eq!(kept.bytes, data);
    marker.attributes |= DELETE_HORIZON;
    let mut data = Vec::new();
    put_batch(&marker, Codec::None, None, &body(&rows), &mut data).unwrap();
    assert_eq!(compact(&data, &plan(&latest, 49)).unwrap().bytes, data);
    let gone = compact(&data, &plan(&latest, 50)).unwrap();
    assert_eq!((gone.bytes.len(), gone.dropped), (0, 1));
}

#[test]
fn dropped_keys_are_gone_and_offsets_stay() {
    for codec in CODECS {
        let data = [
            batch(codec, 0, &[row(b"a", Some(b"1")), row(b"b", Some(b"2"))]),
            batch(codec, 2, &[row(b"a", None)]),
            batch(codec, 3, &[row(b"b", None)]),
        ]
        .concat();
        let outcome = drop_keys(&data, &HashSet::from([b"a".to_vec()]), MAX).unwrap();
        assert_eq!(outcome.dropped, 2);
        assert_eq!(offsets_of(&outcome.bytes), [1, 3]);
        let mut batches = Batches::new(&outcome.bytes, true);
        let mut last_offsets = Vec::new();
        while let Some(header) = batches.step().unwrap() {
            last_offsets.push(header.last_offset());
        }
        assert_eq!(last_offsets, [1, 2, 3]);
    }
}

#[test]
fn the_map_stops_before_the_batch_that_does_not_fit() {
    let data = [
        batch(Codec::None, 0, &[row(b"a", None), row(b"b", None)]),
        batch(Codec::None, 2, &[row(b"a", None), row(b"c", None)]),
    ]
    .concat();
    let add = |max_keys, end| {
        let mut latest = headrace_core::latest::LatestOffsets::new(max_keys);
        let reached = latest.add(&data, end, &Default::default(), MAX).unwrap();
        (reached, latest.len())
    };
    assert_eq!(add(1, 100), (0, 0));
    assert_eq!(add(2, 100), (2, 2));
    assert_eq!(add(3, 100), (4, 3));
    assert_eq!(add(3, 4), (4, 3));
    assert_eq!(add(3, 3), (2, 2));
    assert_eq!(add(3, 0), (0, 0));
}
