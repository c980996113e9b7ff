//! Patterns over the rows of keys, in event time: which rows match, what became of partial matches, what is kept.
//!
//! A step gets the rows of some keys, the new ones and those that were kept, and a watermark. The rows of a key are put in
//! order of event time (of equal times, in the order of the table); those up to the watermark are given to the matcher and
//! the rest waits. So it makes no difference in which steps rows come.

mod attempt;
mod eval;
mod key;
mod output;
mod program;
mod progress;
mod starts;
mod value;

use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, Int64Array, LargeBinaryArray, LargeListArray, StructArray, UInt8Array};
use arrow_schema::DataType;

use attempt::Rows;
use eval::{Column, each_row};
use key::Matcher;
pub use output::Frames;
use program::{NONE, Program};
use progress::Progress;

/// Why there is no result at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A program, a state or columns that cannot be read.
    Broken(String),
    /// One key has more partial matches than the limit; a row of that key.
    TooMany { limit: usize, row: u32 },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Broken(why) => f.write_str(why),
            Refused::TooMany { limit, .. } => {
                write!(f, "more than {limit} partial matches of one key")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// What a row of the table is.
const NEW: u8 = 0;
const KEPT: u8 = 1;
/// No row of the stream, but where matching stands in its key.
const PROGRESS: u8 = 2;

fn broken(why: impl Into<String>) -> Refused {
    Refused::Broken(why.into())
}

/// The rows of some keys. Columns: time (microseconds), kind, progress, then those of the program.
struct Table {
    times: Int64Array,
    kinds: UInt8Array,
    progress: LargeBinaryArray,
    columns: Vec<Column>,
}

impl Table {
    fn read(program: &Program, rows: &StructArray) -> Result<Table, Refused> {
        let columns = rows.columns();
        if columns.len() != program.columns.len() + 3 {
            return Err(broken("the rows have other columns than the pattern"));
        }
        let wrong = |what: &str| broken(format!("the column of {what} has another type"));
        let made = columns[3..]
            .iter()
            .map(|array| column(array.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        if made
            .iter()
            .zip(&program.columns)
            .any(|(column, kind)| column.kind() != *kind)
        {
            return Err(broken(
                "a column has another type than the pattern was made for",
            ));
        }
        Ok(Table {
            times: columns[0]
                .as_primitive_opt::<Int64Type>()
                .ok_or_else(|| wrong("times"))?
                .clone(),
            kinds: columns[1]
                .as_primitive_opt::<UInt8Type>()
                .ok_or_else(|| wrong("kinds"))?
                .clone(),
            progress: columns[2]
                .as_binary_opt::<i64>()
                .ok_or_else(|| wrong("progress"))?
                .clone(),
            columns: made,
        })
    }

    fn len(&self) -> usize {
        self.times.len()
    }
}

fn column(array: &dyn Array) -> Result<Column, Refused> {
    Ok(match array.data_type() {
        DataType::Boolean => Column::Bool(array.as_boolean().clone()),
        DataType::Int64 => Column::Int(array.as_primitive().clone()),
        DataType::Float64 => Column::Float(array.as_primitive().clone()),
        DataType::LargeUtf8 => Column::Text(array.as_string().clone()),
        other => {
            return Err(broken(format!(
                "a condition cannot look at a column of {other}"
            )));
        }
    })
}

/// One step. `keys` lists for each key where its rows are, in the order of their arrival.
pub fn run(
    program: &[u8],
    rows: &StructArray,
    keys: &LargeListArray,
    watermark: i64,
) -> Result<Frames, Refused> {
    let program = Program::read(program)?;
    let table = Table::read(&program, rows)?;
    let places = keys.values().as_primitive_opt::<UInt32Type>();
    let places = places
        .ok_or_else(|| broken("the keys are no lists of rows"))?
        .values();
    if places.iter().any(|&place| place as usize >= table.len()) {
        return Err(broken("a key has a row that is not there"));
    }
    let mut step = Step::new(&program, &table, watermark);
    for ends in keys.value_offsets().windows(2) {
        step.key(&places[ends[0] as usize..ends[1] as usize])?;
    }
    Ok(step.matcher.output.finish())
}

struct Step<'a> {
    program: &'a Program,
    table: &'a Table,
    watermark: i64,
    /// For each variable whether its local condition holds, for each row.
    local: Vec<Vec<bool>>,
    /// New rows that are not given to the matcher.
    bad: Vec<bool>,
    matcher: Matcher<'a>,
    order: Vec<u32>,
    waiting: Vec<u32>,
    failed: Vec<bool>,
}

impl<'a> Step<'a> {
    fn new(program: &'a Program, table: &'a Table, watermark: i64) -> Step<'a> {
        let mut step = Step {
            program,
            table,
            watermark,
            local: Vec::new(),
            bad: vec![false; table.len()],
            matcher: Matcher::new(program, table.len()),
            order: Vec::new(),
            waiting: Vec::new(),
            failed: Vec::new(),
        };
        if table.times.null_count() > 0 {
            for row in 0..table.len() {
                if table.times.is_null(row) {
                    step.reject(row, "no event time");
                }
            }
        }
        step.look_at_rows();
        step
    }

    /// What can be said of rows alone, for all of them.
    fn look_at_rows(&mut self) {
        for variable in &self.program.variables {
            let (holds, failed) = match variable.local {
                NONE => (Vec::new(), Vec::new()),
                code => each_row(self.program, code, &self.table.columns, self.table.len()),
            };
            self.local.push(holds);
            for (row, why) in failed {
                self.reject(row, why);
            }
        }
    }

    fn reject(&mut self, row: usize, why: &str) {
        if self.table.kinds.value(row) == NEW && !self.bad[row] {
            self.bad[row] = true;
            self.matcher.output.dead(row as u32, why);
        }
    }

    /// One key, whose rows are at these places.
    fn key(&mut self, places: &[u32]) -> Result<(), Refused> {
        let Some(&any) = places.first() else {
            return Ok(());
        };
        let known = self.known_progress(places);
        let fed_until = known.map_or(Ok(i64::MIN), Progress::fed_until)?;
        let fed = self.put_in_order(places, fed_until);
        let mut progress = match known {
            Some(known) => Progress::read(self.program, known, fed as u32)?,
            None => Progress::default(),
        };
        self.match_key(&mut progress, fed)
            .map_err(|refused| match refused {
                Refused::TooMany { limit, .. } => Refused::TooMany { limit, row: any },
                other => other,
            })?;
        self.keep(&mut progress, any);
        Ok(())
    }

    fn known_progress(&self, places: &[u32]) -> Option<&'a [u8]> {
        let kinds = self.table.kinds.values();
        let place = places
            .iter()
            .find(|&&place| kinds[place as usize] == PROGRESS)?;
        let place = *place as usize;
        self.table
            .progress
            .is_valid(place)
            .then(|| self.table.progress.value(place))
    }

    fn match_key(&mut self, progress: &mut Progress, fed: usize) -> Result<(), Refused> {
        let mut failed = std::mem::take(&mut self.failed);
        failed.clear();
        failed.resize(self.order.len(), false);
        for &row in &progress.failed {
            failed[row as usize] = true;
        }
        let mut rows = Rows {
            columns: &self.table.columns,
            times: self.table.times.values(),
            local: &self.local,
            order: &self.order,
            failed,
        };
        self.matcher
            .run(progress, &mut rows, fed as u32, self.watermark)?;
        self.failed = rows.failed;
        Ok(())
    }

    /// Rows that were fed, then those that may be, in `order`; the rest in `waiting`. How many were fed.
    fn put_in_order(&mut self, places: &[u32], fed_until: i64) -> usize {
        self.order.clear();
        self.waiting.clear();
        let (times, kinds) = (self.table.times.values(), self.table.kinds.values());
        let time = |place: &u32| times[*place as usize];
        for &place in places {
            match kinds[place as usize] {
                KEPT if time(&place) <= fed_until => self.order.push(place),
                NEW if self.bad[place as usize] => {}
                NEW if time(&place) <= fed_until => self.matcher.output.late(place),
                NEW | KEPT => self.waiting.push(place),
                _ => {}
            }
        }
        let fed = self.order.len();
        for places in [&mut self.order, &mut self.waiting] {
            if !places.is_sorted_by_key(time) {
                places.sort_by_key(time);
            }
        }
        let ready = self
            .waiting
            .partition_point(|place| time(place) <= self.watermark);
        self.order.extend(self.waiting.drain(..ready));
        fed
    }

    /// What the next step needs of this key.
    fn keep(&mut self, progress: &mut Progress, any: u32) {
        let end = self.order.len();
        let started = progress.first_start();
        let first = started.map_or(end, |start| start as usize);
        let first = first.saturating_sub(self.program.rows_before);
        let output = &mut self.matcher.output;
        for &place in self.order[first..].iter().chain(&self.waiting) {
            output.keep(place);
        }
        let numbered = self.program.numbered && progress.number > 0;
        let written = (first < end || numbered).then(|| {
            progress.fed_until = progress.fed_until.max(self.watermark);
            progress.failed.clear();
            let failed = |row: &u32| self.failed[*row as usize];
            progress
                .failed
                .extend((first as u32..end as u32).filter(failed));
            progress.write(self.program, first as u32)
        });
        let due = self.due(progress);
        if written.is_some() || due.is_some() {
            self.matcher.output.progress(any, written.as_deref(), due);
        }
    }

    /// The watermark at which this key must be looked at again, with or without new rows.
    fn due(&self, progress: &Progress) -> Option<i64> {
        let times = self.table.times.values();
        let waiting = self.waiting.first().map(|&place| times[place as usize]);
        let open = progress
            .first_open()
            .zip(self.program.within)
            .map(|(start, within)| {
                times[self.order[start as usize] as usize].saturating_add(within)
            });
        waiting.into_iter().chain(open).min()
    }
}
