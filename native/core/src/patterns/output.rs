//! What was found, as Arrow columns.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, LargeBinaryBuilder,
    LargeStringBuilder, ListBuilder, StringBuilder, UInt8Builder, UInt16Builder, UInt32Builder,
};
use arrow_array::{ArrayRef, BooleanArray, StructArray};
use arrow_schema::{DataType, Field};

use super::attempt::{Nodes, Rows, measure};
use super::program::{Kind, Program};
use super::value::Value;

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Told {
    Match = 0,
    Timeout = 1,
    Partial = 2,
}

enum Measured {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Text(LargeStringBuilder),
}

impl Measured {
    fn new(kind: Kind) -> Measured {
        match kind {
            Kind::Bool => Measured::Bool(BooleanBuilder::new()),
            Kind::Int => Measured::Int(Int64Builder::new()),
            Kind::Float => Measured::Float(Float64Builder::new()),
            Kind::Text => Measured::Text(LargeStringBuilder::new()),
        }
    }

    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Measured::Bool(made), Value::Bool(value)) => made.append_value(value),
            (Measured::Int(made), Value::Int(value)) => made.append_value(value),
            (Measured::Float(made), Value::Float(value)) => made.append_value(value),
            (Measured::Float(made), Value::Int(value)) => made.append_value(value as f64),
            (Measured::Text(made), Value::Text(value)) => made.append_value(value),
            (Measured::Bool(made), _) => made.append_null(),
            (Measured::Int(made), _) => made.append_null(),
            (Measured::Float(made), _) => made.append_null(),
            (Measured::Text(made), _) => made.append_null(),
        }
    }

    fn finish(mut self) -> ArrayRef {
        match &mut self {
            Measured::Bool(made) => Arc::new(made.finish()),
            Measured::Int(made) => Arc::new(made.finish()),
            Measured::Float(made) => Arc::new(made.finish()),
            Measured::Text(made) => Arc::new(made.finish()),
        }
    }
}

/// All that one run finds.
pub struct Output {
    told: UInt8Builder,
    key_rows: UInt32Builder,
    starts: Int64Builder,
    ends: Int64Builder,
    measured: Vec<Measured>,
    taken: ListBuilder<UInt32Builder>,
    taken_for: ListBuilder<UInt16Builder>,
    kept: Vec<bool>,
    progress_rows: UInt32Builder,
    progress: LargeBinaryBuilder,
    progress_due: Int64Builder,
    dead_rows: UInt32Builder,
    dead_reasons: StringBuilder,
    unmeasured_outcomes: UInt32Builder,
    unmeasured: UInt32Builder,
    unmeasured_reasons: StringBuilder,
    late_rows: UInt32Builder,
}

/// The frames that Python gets.
pub struct Frames {
    pub outcomes: StructArray,
    pub kept: StructArray,
    pub progress: StructArray,
    pub dead: StructArray,
    pub late: StructArray,
    pub unmeasured: StructArray,
}

impl Output {
    pub fn new(program: &Program, rows: usize) -> Output {
        let measured = program
            .measures
            .iter()
            .map(|m| Measured::new(m.kind))
            .collect();
        Output {
            told: UInt8Builder::new(),
            key_rows: UInt32Builder::new(),
            starts: Int64Builder::new(),
            ends: Int64Builder::new(),
            measured,
            taken: ListBuilder::new(UInt32Builder::new()),
            taken_for: ListBuilder::new(UInt16Builder::new()),
            kept: vec![false; rows],
            progress_rows: UInt32Builder::new(),
            progress: LargeBinaryBuilder::new(),
            progress_due: Int64Builder::new(),
            dead_rows: UInt32Builder::new(),
            dead_reasons: StringBuilder::new(),
            unmeasured_outcomes: UInt32Builder::new(),
            unmeasured: UInt32Builder::new(),
            unmeasured_reasons: StringBuilder::new(),
            late_rows: UInt32Builder::new(),
        }
    }

    /// A match or what there is of one. A measure that fails is null; why is told of what is not to grow further.
    pub fn tell(
        &mut self,
        program: &Program,
        rows: &Rows<'_>,
        nodes: &Nodes,
        node: u32,
        told: Told,
        end: i64,
        number: i64,
    ) {
        let chain = nodes.chain(node);
        let Some(&first) = chain.first() else {
            return;
        };
        let outcome = self.told.len() as u32;
        measure(program, rows, nodes, &chain, number, |index, value| {
            self.measured[index].push(value.unwrap_or(Value::Null));
            if let (Err(why), true) = (value, told != Told::Partial) {
                self.unmeasured_outcomes.append_value(outcome);
                self.unmeasured.append_value(index as u32);
                self.unmeasured_reasons.append_value(why);
            }
        });
        let first = nodes.rows[first as usize];
        self.told.append_value(told as u8);
        self.key_rows.append_value(rows.index(first) as u32);
        self.starts.append_value(rows.time(first));
        self.ends.append_value(end);
        for &node in &chain {
            let row = rows.index(nodes.rows[node as usize]) as u32;
            self.taken.values().append_value(row);
            self.taken_for
                .values()
                .append_value(nodes.vars[node as usize] as u16);
        }
        self.taken.append(true);
        self.taken_for.append(true);
    }

    pub fn dead(&mut self, row: u32, why: &str) {
        self.dead_rows.append_value(row);
        self.dead_reasons.append_value(why);
    }

    pub fn late(&mut self, row: u32) {
        self.late_rows.append_value(row);
    }

    pub fn keep(&mut self, row: u32) {
        self.kept[row as usize] = true;
    }

    /// Where matching stands in the key that a row is of, and when to look at it again.
    pub fn progress(&mut self, row: u32, progress: Option<&[u8]>, due: Option<i64>) {
        self.progress_rows.append_value(row);
        self.progress.append_option(progress);
        self.progress_due.append_option(due);
    }

    pub fn finish(mut self) -> Frames {
        let mut outcomes: Vec<(String, ArrayRef)> = vec![
            ("told".into(), Arc::new(self.told.finish())),
            ("key_row".into(), Arc::new(self.key_rows.finish())),
            ("start".into(), Arc::new(self.starts.finish())),
            ("end".into(), Arc::new(self.ends.finish())),
            ("taken".into(), Arc::new(self.taken.finish())),
            ("taken_for".into(), Arc::new(self.taken_for.finish())),
        ];
        for (index, measured) in self.measured.into_iter().enumerate() {
            outcomes.push((format!("m{index}"), measured.finish()));
        }
        Frames {
            outcomes: frame(outcomes),
            kept: frame(vec![(
                "kept".into(),
                Arc::new(BooleanArray::from(self.kept)),
            )]),
            progress: frame(vec![
                ("row".into(), Arc::new(self.progress_rows.finish())),
                ("progress".into(), Arc::new(self.progress.finish())),
                ("due".into(), Arc::new(self.progress_due.finish())),
            ]),
            dead: frame(vec![
                ("row".into(), Arc::new(self.dead_rows.finish())),
                ("reason".into(), Arc::new(self.dead_reasons.finish())),
            ]),
            late: frame(vec![("row".into(), Arc::new(self.late_rows.finish()))]),
            unmeasured: frame(vec![
                (
                    "outcome".into(),
                    Arc::new(self.unmeasured_outcomes.finish()),
                ),
                ("measure".into(), Arc::new(self.unmeasured.finish())),
                ("reason".into(), Arc::new(self.unmeasured_reasons.finish())),
            ]),
        }
    }
}

fn frame(columns: Vec<(String, ArrayRef)>) -> StructArray {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(name, DataType::clone(array.data_type()), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    StructArray::new(fields.into(), arrays, None)
}
