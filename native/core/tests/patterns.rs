//! Compiled patterns by hand: what the matcher answers, and that no program and no state makes it panic.

mod support;

use std::sync::Arc;

use arrow_array::builder::{LargeListBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, Int64Array, LargeBinaryArray, LargeListArray, StructArray, UInt8Array,
};
use arrow_schema::Field;
use headrace_core::patterns::{Frames, Refused, run};
use support::Random;

/// A program that is put together from words.
#[derive(Clone, Default)]
struct Words(Vec<u8>);

impl Words {
    fn add(mut self, words: &[i64]) -> Words {
        for word in words {
            self.0.extend_from_slice(&word.to_le_bytes());
        }
        self
    }

    fn text(self, text: &str) -> Words {
        let mut made = self.add(&[text.len() as i64]);
        made.0.extend_from_slice(text.as_bytes());
        made
    }
}

const WITHIN: i64 = 10;

/// `A B+ C`, A: v < 3; B: v > last(A.v) and sum(B.v) < 100; C: v = 0. Measures: sum(B.v), the last variable.
fn program(skip: i64, flags: i64, limit: i64) -> Vec<u8> {
    let program = Words::default()
        .add(&[1, 3])
        .text("A")
        .text("B")
        .text("C")
        .add(&[WITHIN, skip, -1, limit, 0, flags])
        .add(&[1, 1]) // one column of whole numbers
        .add(&[2, 2, 1, 0, -1, 3, 1, 3]) // slots: last of A, sum over B of code 3
        .add(&[6])
        .add(&[3, 5, 0, 2, 3, 21]) // v < 3
        .add(&[8, 5, 0, 8, 0, 0, 0, 23, 33, 8, 9, 1, 2, 100, 21, 25]) // v > A.v and sum(B.v) < 100
        .add(&[3, 5, 0, 2, 0, 19]) // v = 0
        .add(&[1, 5, 0]) // v
        .add(&[1, 9, 1]) // sum(B.v)
        .add(&[1, 11]) // classifier()
        .add(&[3, 0, 0, -1, 1, -1, 1, 2, 2, -1]) // variables: name, local code, code with history
        .add(&[4]) // states
        .add(&[1, 0, 0, 1])
        .add(&[1, 0, 1, 2])
        .add(&[2, 0, 1, 2, 0, 2, 3])
        .add(&[1, 2])
        .add(&[2, 4, 1, 5, 3]);
    program.0
}

fn table(rows: &[(i64, Option<i64>)], kind: u8, progress: Option<&[u8]>) -> StructArray {
    let mut times: Vec<Option<i64>> = rows.iter().map(|row| Some(row.0)).collect();
    let mut kinds = vec![kind; rows.len()];
    let mut values: Vec<Option<i64>> = rows.iter().map(|row| row.1).collect();
    let mut known: Vec<Option<&[u8]>> = vec![None; rows.len()];
    if progress.is_some() {
        times.push(None);
        kinds.push(2);
        values.push(None);
        known.push(progress);
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("time", Arc::new(Int64Array::from(times))),
        ("kind", Arc::new(UInt8Array::from(kinds))),
        ("progress", Arc::new(LargeBinaryArray::from(known))),
        ("v", Arc::new(Int64Array::from(values))),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    StructArray::new(fields.into(), arrays, None)
}

fn one_key(rows: usize) -> LargeListArray {
    let mut keys = LargeListBuilder::new(UInt32Builder::new());
    keys.append_value((0..rows as u32).map(Some));
    keys.finish()
}

fn found(program: &[u8], rows: &[(i64, Option<i64>)], watermark: i64) -> Result<Frames, Refused> {
    run(
        program,
        &table(rows, 0, None),
        &one_key(rows.len()),
        watermark,
    )
}

fn matches(frames: &Frames) -> Vec<(i64, i64, i64)> {
    let column = |name: &str| {
        let column = frames.outcomes.column_by_name(name).unwrap();
        column.as_primitive::<Int64Type>().values().to_vec()
    };
    let told = frames.outcomes.column_by_name("told").unwrap();
    let told = told.as_primitive::<UInt8Type>().values().to_vec();
    let rows = column("start")
        .into_iter()
        .zip(column("end"))
        .zip(column("m0"));
    rows.zip(told)
        .filter(|(_, told)| *told == 0)
        .map(|(((start, end), sum), _)| (start, end, sum))
        .collect()
}

const ROWS: [(i64, Option<i64>); 8] = [
    (1, Some(2)),
    (2, Some(5)),
    (3, Some(7)),
    (4, Some(0)),
    (5, None),
    (6, Some(1)),
    (7, Some(99)),
    (8, Some(0)),
];

#[test]
fn conditions_on_rows_and_on_what_was_matched_are_kept_apart_and_both_hold() {
    let frames = found(&program(0, 0, 100), &ROWS, 100).unwrap();
    assert_eq!(matches(&frames), [(1, 4, 12), (6, 8, 99)]);
    let last = frames.outcomes.column_by_name("m1").unwrap();
    assert!(last.as_string::<i64>().iter().all(|name| name == Some("C")));
}

#[test]
fn rows_after_the_watermark_wait_and_the_state_goes_on() {
    let program = program(0, 0, 100);
    for cut in 0..=8 {
        let frames = found(&program, &ROWS, cut).unwrap();
        let kept = frames.kept.column(0).as_boolean().clone();
        let rows: Vec<_> = (0..8)
            .filter(|&row| kept.value(row))
            .map(|row| ROWS[row])
            .collect();
        let progress = frames.progress.column_by_name("progress").unwrap();
        let progress = progress.as_binary::<i64>();
        let known = (!progress.is_empty() && progress.is_valid(0)).then(|| progress.value(0));
        let again = table(&rows, 1, known);
        let more = run(&program, &again, &one_key(again.len()), 100).unwrap();
        let all = [matches(&frames), matches(&more)].concat();
        assert_eq!(all, [(1, 4, 12), (6, 8, 99)], "cut at {cut}");
    }
}

#[test]
fn more_threads_than_the_limit_are_refused() {
    let rows = [(1, Some(1)), (2, Some(2)), (3, Some(3))];
    assert_eq!(found(&program(1, 0, 100), &rows, 3).err(), None);
    let refused = found(&program(1, 0, 3), &rows, 3).err();
    assert_eq!(refused, Some(Refused::TooMany { limit: 3, row: 0 }));
}

#[test]
fn no_program_and_no_state_makes_it_panic() {
    let mut random = Random::new(11);
    let good = program(0, 4 | 8, 100);
    let frames = found(&good, &ROWS, 7).unwrap();
    let progress = frames.progress.column_by_name("progress").unwrap();
    let known = progress.as_binary::<i64>().value(0).to_vec();
    for _ in 0..20_000 {
        let (mut program, mut state) = (good.clone(), known.clone());
        let changed = if random.below(2) == 0 {
            &mut program
        } else {
            &mut state
        };
        for _ in 0..=random.below(3) {
            let at = random.below(changed.len());
            match random.below(4) {
                0 => changed[at] = random.next() as u8,
                1 => changed[at] ^= 1 << random.below(8),
                2 => changed[at] = [0x00, 0x01, 0x7F, 0x80, 0xFF][random.below(5)],
                _ => changed.truncate(at.max(1)),
            }
        }
        let rows = table(&ROWS, 1, Some(&state));
        let _ = run(&program, &rows, &one_key(rows.len()), 9);
    }
}
