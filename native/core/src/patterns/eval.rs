//! Conditions and measures: stack programs over columns, and over what a partial match has taken so far.

use arrow_array::{Array, BooleanArray, Float64Array, Int64Array, LargeStringArray};

use super::program::{Kind, Op, Program};
use super::value::{self, Failure, Outcome, Value};

/// A column that conditions can look at.
#[derive(Debug)]
pub enum Column {
    Bool(BooleanArray),
    Int(Int64Array),
    Float(Float64Array),
    Text(LargeStringArray),
}

impl Column {
    pub fn kind(&self) -> Kind {
        match self {
            Column::Bool(_) => Kind::Bool,
            Column::Int(_) => Kind::Int,
            Column::Float(_) => Kind::Float,
            Column::Text(_) => Kind::Text,
        }
    }

    #[inline]
    pub fn value(&self, row: usize) -> Value<'_> {
        match self {
            Column::Int(values) if values.is_valid(row) => Value::Int(values.value(row)),
            Column::Float(values) if values.is_valid(row) => Value::Float(values.value(row)),
            Column::Text(values) if values.is_valid(row) => Value::Text(values.value(row)),
            Column::Bool(values) if values.is_valid(row) => Value::Bool(values.value(row)),
            _ => Value::Null,
        }
    }
}

/// What a code looks at.
pub trait Place<'a> {
    fn column(&self, column: u32) -> Value<'a>;
    fn prev(&self, column: u32, back: u32) -> Value<'a>;
    fn first(&self, column: u32, slot: u32) -> Value<'a>;
    fn last(&self, column: u32, slot: u32, back: u32) -> Value<'a>;
    /// Where in the table the row of a slot is.
    fn row_of(&self, slot: u32, back: u32) -> Value<'a>;
    fn aggregate(&self, slot: u32) -> Outcome<'a>;
    fn match_number(&self) -> Value<'a>;
    fn classifier(&self) -> Value<'a>;
}

/// One row alone; there is nothing before it.
#[derive(Clone, Copy)]
pub struct RowAlone<'a> {
    pub columns: &'a [Column],
    pub row: usize,
}

impl<'a> Place<'a> for RowAlone<'a> {
    #[inline]
    fn column(&self, column: u32) -> Value<'a> {
        self.columns[column as usize].value(self.row)
    }

    fn prev(&self, _: u32, _: u32) -> Value<'a> {
        Value::Null
    }

    fn first(&self, _: u32, _: u32) -> Value<'a> {
        Value::Null
    }

    fn last(&self, _: u32, _: u32, _: u32) -> Value<'a> {
        Value::Null
    }

    fn row_of(&self, _: u32, _: u32) -> Value<'a> {
        Value::Null
    }

    fn aggregate(&self, _: u32) -> Outcome<'a> {
        Ok(Value::Null)
    }

    fn match_number(&self) -> Value<'a> {
        Value::Null
    }

    fn classifier(&self) -> Value<'a> {
        Value::Null
    }
}

/// The value of a code at a place.
#[inline]
pub fn eval<'a>(program: &'a Program, code: u32, place: &impl Place<'a>) -> Outcome<'a> {
    let depth = program.depths[code as usize];
    let code = &program.codes[code as usize];
    if depth <= SHALLOW {
        run(program, code, place, &mut [Value::Null; SHALLOW])
    } else {
        run(program, code, place, &mut vec![Value::Null; depth])
    }
}

const SHALLOW: usize = 6;

#[inline]
fn run<'a>(
    program: &'a Program,
    code: &[Op],
    place: &impl Place<'a>,
    stack: &mut [Value<'a>],
) -> Outcome<'a> {
    let (mut at, mut top) = (0, 0); // top: how many values there are
    while at < code.len() {
        let op = code[at];
        at += 1;
        match op {
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod => {
                top -= 1;
                stack[top - 1] = value::arithmetic(op, stack[top - 1], stack[top])?;
            }
            Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => {
                top -= 1;
                stack[top - 1] = value::compare(op, stack[top - 1], stack[top])?;
            }
            Op::And => {
                top -= 1;
                stack[top - 1] = value::and(stack[top - 1], stack[top])?;
            }
            Op::Or => {
                top -= 1;
                stack[top - 1] = value::or(stack[top - 1], stack[top])?;
            }
            Op::IfFalse(to) => {
                if stack[top - 1] == Value::Bool(false) {
                    at = to as usize;
                }
            }
            Op::IfTrue(to) => {
                if stack[top - 1] == Value::Bool(true) {
                    at = to as usize;
                }
            }
            Op::IfNotNull(to) => {
                if stack[top - 1] == Value::Null {
                    top -= 1;
                } else {
                    at = to as usize;
                }
            }
            Op::In(choices) => {
                top -= choices as usize;
                stack[top - 1] =
                    value::within(stack[top - 1], &stack[top..top + choices as usize])?;
            }
            Op::Neg => stack[top - 1] = value::negative(stack[top - 1])?,
            Op::Abs => stack[top - 1] = value::absolute(stack[top - 1])?,
            Op::Not => stack[top - 1] = value::not(stack[top - 1])?,
            Op::IsNull => stack[top - 1] = Value::Bool(stack[top - 1] == Value::Null),
            Op::Like(text) => stack[top - 1] = value::like(stack[top - 1], program.text(text))?,
            Op::ToInt => stack[top - 1] = value::to_int(stack[top - 1])?,
            Op::ToFloat => stack[top - 1] = value::to_float(stack[top - 1])?,
            _ => {
                stack[top] = load(program, op, place)?;
                top += 1;
            }
        }
    }
    Ok(stack[0])
}

#[inline]
fn load<'a>(program: &'a Program, op: Op, place: &impl Place<'a>) -> Outcome<'a> {
    Ok(match op {
        Op::Bool(value) => Value::Bool(value),
        Op::Int(value) => Value::Int(value),
        Op::Float(value) => Value::Float(value),
        Op::Text(text) => Value::Text(program.text(text)),
        Op::Column(column) => place.column(column),
        Op::Prev { column, back } => place.prev(column, back),
        Op::First { column, slot } => place.first(column, slot),
        Op::Last { column, slot, back } => place.last(column, slot, back),
        Op::RowOf { slot, back } => place.row_of(slot, back),
        Op::Aggregate(slot) => place.aggregate(slot)?,
        Op::MatchNumber => place.match_number(),
        Op::Classifier => place.classifier(),
        _ => Value::Null,
    })
}

/// For each row whether a condition that looks at nothing else holds; and the rows for which it has no answer.
pub fn each_row(
    program: &Program,
    code: u32,
    columns: &[Column],
    rows: usize,
) -> (Vec<bool>, Vec<(usize, Failure)>) {
    if let Some(found) = against_constant(&program.codes[code as usize], columns) {
        return (found, Vec::new());
    }
    let mut failed = Vec::new();
    let holds = (0..rows).map(
        |row| match eval(program, code, &RowAlone { columns, row }) {
            Ok(value) => value.is_true(),
            Err(why) => {
                failed.push((row, why));
                false
            }
        },
    );
    (holds.collect(), failed)
}

/// The most common condition, column and number compared, a column at a time.
fn against_constant(code: &[Op], columns: &[Column]) -> Option<Vec<bool>> {
    let &[Op::Column(column), constant, op] = code else {
        return None;
    };
    match (&columns[column as usize], constant) {
        (Column::Int(values), Op::Int(limit)) => Some(masked(
            values.values(),
            values.nulls(),
            compared(op)?,
            limit,
        )),
        (Column::Float(values), Op::Float(limit)) if !limit.is_nan() => {
            if values.values().iter().any(|value| value.is_nan()) {
                return None;
            }
            Some(masked(
                values.values(),
                values.nulls(),
                compared(op)?,
                limit,
            ))
        }
        _ => None,
    }
}

fn compared<T: PartialOrd>(op: Op) -> Option<fn(&T, &T) -> bool> {
    Some(match op {
        Op::Eq => T::eq,
        Op::Ne => T::ne,
        Op::Lt => T::lt,
        Op::Le => T::le,
        Op::Gt => T::gt,
        Op::Ge => T::ge,
        _ => return None,
    })
}

fn masked<T: Copy>(
    values: &[T],
    nulls: Option<&arrow_buffer::NullBuffer>,
    holds: fn(&T, &T) -> bool,
    limit: T,
) -> Vec<bool> {
    let mut found: Vec<bool> = values.iter().map(|value| holds(value, &limit)).collect();
    if let Some(nulls) = nulls {
        for (found, valid) in found.iter_mut().zip(nulls.iter()) {
            *found &= valid;
        }
    }
    found
}
