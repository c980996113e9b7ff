//! Columns that grow value by value and can be cut back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, BinaryType, ByteArrayType, Date32Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, Utf8Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, GenericByteArray, ListArray, MapArray, PrimitiveArray, StructArray,
};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};

use super::cursor::{Cursor, Text};
use super::{Bad, Reason, Refused, Result, base64, number, time};

/// How many fields of an object have their names remembered by place, and how long these may be.
const LEARNED: usize = 256;
const LEARNED_BYTES: usize = 64;

/// The fields of an object as columns.
pub struct Struct {
    columns: Vec<Column>,
    index: HashMap<String, usize>,
    /// What was seen last at each place of an object: a name, and its column if it is wanted.
    learned: Vec<(Vec<u8>, Option<usize>)>,
    rows: usize,
    scratch: Vec<u8>,
}

impl Struct {
    pub fn new(fields: &Fields, capacity: usize) -> std::result::Result<Self, Refused> {
        let columns = fields
            .iter()
            .map(|field| Column::new(field, capacity))
            .collect::<std::result::Result<Vec<_>, Refused>>()?;
        let index: HashMap<String, usize> = fields
            .iter()
            .enumerate()
            .map(|(at, field)| (field.name().clone(), at))
            .collect();
        if index.len() < fields.len() {
            return Err(Refused("two columns have the same name".into()));
        }
        Ok(Struct {
            columns,
            index,
            learned: Vec::new(),
            rows: 0,
            scratch: Vec::new(),
        })
    }

    /// Keep nothing of the columns that are not chosen: their values are checked as those of the others are.
    pub fn choose(&mut self, chosen: impl Fn(&str) -> bool) {
        for column in &mut self.columns {
            column.kept = chosen(column.field.name());
        }
    }

    /// The values are those of a database: take what does not fit as far as it does.
    pub fn capture(&mut self) {
        for column in &mut self.columns {
            column.capture();
        }
    }

    /// Take an object; the cursor is at its first brace.
    pub fn push_object(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let rows = self.rows;
        cursor.enter()?;
        if !cursor.is_empty(b'}')? {
            for place in 0.. {
                match self.wanted(cursor, place)? {
                    Some(at) => {
                        let column = &mut self.columns[at];
                        let row = column.after(rows);
                        if column.len() > row {
                            column.truncate(row); // the same name again: the last one counts
                        }
                        column
                            .push(cursor)
                            .map_err(|bad| bad.within(column.field.name()))?;
                    }
                    None => cursor.skip_value()?,
                }
                if !cursor.more(b'}')? {
                    break;
                }
            }
        }
        for column in &mut self.columns {
            if column.len() == column.after(rows) {
                column
                    .push_null()
                    .map_err(|bad| bad.within(column.field.name()))?;
            }
            if !column.kept {
                column.truncate(0);
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Pass a field's name and say which column wants its value.
    #[inline]
    fn wanted(&mut self, cursor: &mut Cursor<'_>, place: usize) -> Result<Option<usize>> {
        if let Some((name, column)) = self.learned.get(place)
            && cursor.pass_name(name)?
        {
            return Ok(*column);
        }
        let name = match cursor.name(&mut self.scratch)? {
            Text::Plain(name) => name,
            Text::Unescaped => {
                let name = str::from_utf8(&self.scratch).unwrap_or_default();
                return Ok(self.index.get(name).copied());
            }
        };
        let column = self.index.get(name).copied();
        if name.len() <= LEARNED_BYTES {
            if let Some((old, was)) = self.learned.get_mut(place) {
                old.clear();
                old.extend_from_slice(name.as_bytes());
                *was = column;
            } else if place < LEARNED && place == self.learned.len() {
                self.learned.push((name.as_bytes().to_vec(), column));
            }
        }
        Ok(column)
    }

    fn push_nulls(&mut self) {
        for column in &mut self.columns {
            column.fill();
        }
        self.rows += 1;
    }

    pub fn truncate(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.truncate(column.after(rows));
        }
        self.rows = rows;
    }

    pub fn finish(self, rows: usize) -> std::result::Result<StructArray, ArrowError> {
        self.finish_with(rows, None)
    }

    fn finish_with(
        self,
        rows: usize,
        valid: Option<NullBuffer>,
    ) -> std::result::Result<StructArray, ArrowError> {
        let kept = self.columns.into_iter().filter(|column| column.kept);
        let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) = kept
            .map(|column| Ok((column.field.clone(), column.finish()?)))
            .collect::<std::result::Result<Vec<_>, ArrowError>>()?
            .into_iter()
            .unzip();
        StructArray::try_new_with_length(fields.into(), arrays, valid, rows)
    }
}

/// One column.
pub struct Column {
    field: FieldRef,
    /// Whether its values stay; if not, it has at most the value of the row that is being taken.
    kept: bool,
    /// Whether the values are those of a database.
    captured: bool,
    valid: NullBufferBuilder,
    data: Data,
}

enum Data {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal {
        values: Vec<i128>,
        scale: i32,
        limit: i128,
    },
    Date(Vec<i32>),
    Timestamp {
        values: Vec<i64>,
        zoned: bool,
    },
    Text(Bytes),
    Binary(Bytes),
    List {
        ends: Vec<i32>,
        item: Box<Column>,
    },
    Map {
        ends: Vec<i32>,
        entries: FieldRef,
        key: Box<Column>,
        value: Box<Column>,
    },
    Struct(Box<Struct>),
}

/// What became of a text that only databases write.
enum Beyond {
    Taken,
    Null,
    Ordinary,
}

/// Byte strings one after the other, and where each ends.
#[derive(Default)]
struct Bytes {
    data: Vec<u8>,
    ends: Vec<i32>,
    scratch: Vec<u8>,
}

impl Bytes {
    fn cut(&mut self, len: usize) {
        self.ends.truncate(len);
        self.data
            .truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    fn close(&mut self) {
        self.ends.push(self.data.len() as i32); // the caller sees that all values together fit
    }

    fn finish<T: ByteArrayType<Offset = i32>>(
        self,
        valid: Option<NullBuffer>,
    ) -> std::result::Result<ArrayRef, ArrowError> {
        let offsets = offsets(self.ends);
        let array = GenericByteArray::<T>::try_new(offsets, Buffer::from_vec(self.data), valid)?;
        Ok(Arc::new(array))
    }
}

fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    let all: Vec<i32> = std::iter::once(0).chain(ends).collect();
    OffsetBuffer::new(all.into())
}

fn unsupported(field: &Field) -> Refused {
    Refused(format!(
        "column {} is of type {}, which JSON is not decoded to",
        field.name(),
        field.data_type()
    ))
}

impl Data {
    fn new(field: &FieldRef, capacity: usize) -> std::result::Result<Self, Refused> {
        Ok(match field.data_type() {
            DataType::Boolean => Data::Boolean(BooleanBufferBuilder::new(capacity)),
            DataType::Int8 => Data::Int8(Vec::with_capacity(capacity)),
            DataType::Int16 => Data::Int16(Vec::with_capacity(capacity)),
            DataType::Int32 => Data::Int32(Vec::with_capacity(capacity)),
            DataType::Int64 => Data::Int64(Vec::with_capacity(capacity)),
            DataType::Float32 => Data::Float32(Vec::with_capacity(capacity)),
            DataType::Float64 => Data::Float64(Vec::with_capacity(capacity)),
            DataType::Date32 => Data::Date(Vec::with_capacity(capacity)),
            DataType::Utf8 => Data::Text(Bytes::default()),
            DataType::Binary => Data::Binary(Bytes::default()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Data::Timestamp {
                values: Vec::with_capacity(capacity),
                zoned: zone.is_some(),
            },
            DataType::Decimal128(precision, scale) if *precision <= 38 && *scale >= 0 => {
                Data::Decimal {
                    values: Vec::with_capacity(capacity),
                    scale: i32::from(*scale),
                    limit: 10_i128.pow(u32::from(*precision)),
                }
            }
            DataType::List(item) => Data::List {
                ends: Vec::with_capacity(capacity),
                item: Box::new(Column::new(item, 0)?),
            },
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if *pair[0].data_type() == DataType::Utf8 => Data::Map {
                    ends: Vec::with_capacity(capacity),
                    entries: entries.clone(),
                    key: Box::new(Column::new(&pair[0], 0)?),
                    value: Box::new(Column::new(&pair[1], 0)?),
                },
                _ => return Err(unsupported(field)),
            },
            DataType::Struct(fields) => Data::Struct(Box::new(Struct::new(fields, capacity)?)),
            _ => return Err(unsupported(field)),
        })
    }
}

impl Column {
    fn new(field: &FieldRef, capacity: usize) -> std::result::Result<Self, Refused> {
        Ok(Column {
            field: field.clone(),
            kept: true,
            captured: false,
            valid: NullBufferBuilder::new(capacity),
            data: Data::new(field, capacity)?,
        })
    }

    fn capture(&mut self) {
        self.captured = true;
        match &mut self.data {
            Data::List { item, .. } => item.capture(),
            Data::Map { value, .. } => value.capture(),
            Data::Struct(inner) => inner.capture(),
            _ => {}
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.valid.len()
    }

    /// How many values it has after so many rows.
    #[inline]
    fn after(&self, rows: usize) -> usize {
        if self.kept { rows } else { 0 }
    }

    #[cold]
    fn unfit(&self, cursor: &mut Cursor<'_>) -> Bad {
        match cursor.found() {
            Ok(found) => {
                let wanted = self.field.data_type();
                Bad::new(Reason::WrongType, format!("{found}, not {wanted}"))
            }
            Err(bad) => bad,
        }
    }

    #[cold]
    fn out_of_range(&self, text: &str) -> Bad {
        let wanted = self.field.data_type();
        let text: String = text.chars().take(40).collect();
        Bad::new(Reason::OutOfRange, format!("{text} does not fit {wanted}"))
    }

    #[cold]
    fn unreadable(&self, text: &str) -> Bad {
        let wanted = self.field.data_type();
        let text: String = text.chars().take(40).collect();
        Bad::new(Reason::WrongType, format!("{text:?} is not {wanted}"))
    }

    fn push_null(&mut self) -> Result<()> {
        if !self.field.is_nullable() {
            return Err(Bad::new(
                Reason::Missing,
                "nothing, where NOT NULL is declared",
            ));
        }
        self.fill();
        Ok(())
    }

    /// A null that nobody sees, or may see.
    fn fill(&mut self) {
        match &mut self.data {
            Data::Boolean(values) => values.append(false),
            Data::Int8(values) => values.push(0),
            Data::Int16(values) => values.push(0),
            Data::Int32(values) | Data::Date(values) => values.push(0),
            Data::Int64(values) | Data::Timestamp { values, .. } => values.push(0),
            Data::Float32(values) => values.push(0.0),
            Data::Float64(values) => values.push(0.0),
            Data::Decimal { values, .. } => values.push(0),
            Data::Text(bytes) | Data::Binary(bytes) => bytes.close(),
            Data::List { ends, item } => ends.push(item.len() as i32),
            Data::Map { ends, key, .. } => ends.push(key.len() as i32),
            Data::Struct(inner) => inner.push_nulls(),
        }
        self.valid.append_null();
    }

    /// Take a value.
    #[inline]
    fn push(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let first = cursor.peek()?;
        if first == b'n' {
            cursor.literal("null")?;
            return self.push_null();
        }
        if self.captured && first != b'"' && self.push_other(cursor, first)? {
            self.valid.append_non_null();
            return Ok(());
        }
        match first {
            b'"' => {
                if !self.push_string(cursor)? {
                    return self.push_null();
                }
            }
            b'-' | b'0'..=b'9' => self.push_number(cursor)?,
            b'{' => self.push_object(cursor)?,
            b'[' => self.push_list(cursor)?,
            b't' | b'f' => self.push_boolean(cursor, first == b't')?,
            _ => return Err(cursor.wrong("a value")),
        }
        self.valid.append_non_null();
        Ok(())
    }

    /// Take a value of a database that is written in another type than the column's; false if it is none of those.
    fn push_other(&mut self, cursor: &mut Cursor<'_>, first: u8) -> Result<bool> {
        match &mut self.data {
            Data::Text(bytes) => {
                bytes.data.extend_from_slice(cursor.raw_value()?.as_bytes());
                bytes.close();
                Ok(true)
            }
            Data::Boolean(values) if matches!(first, b'0' | b'1') => {
                let text = cursor.number()?;
                if !matches!(text, "0" | "1") {
                    return Err(self.out_of_range(text));
                }
                values.append(text == "1");
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn push_boolean(&mut self, cursor: &mut Cursor<'_>, value: bool) -> Result<()> {
        let Data::Boolean(values) = &mut self.data else {
            return Err(self.unfit(cursor));
        };
        cursor.literal(if value { "true" } else { "false" })?;
        values.append(value);
        Ok(())
    }

    /// False if the text stands for nothing that the column has room for: then it is null.
    fn push_string(&mut self, cursor: &mut Cursor<'_>) -> Result<bool> {
        match &mut self.data {
            Data::Text(bytes) => {
                match cursor.string(&mut bytes.scratch)? {
                    Text::Plain(text) => bytes.data.extend_from_slice(text.as_bytes()),
                    Text::Unescaped => bytes.data.extend_from_slice(&bytes.scratch),
                }
                bytes.close();
                Ok(true)
            }
            Data::Binary(bytes) => {
                let mut scratch = std::mem::take(&mut bytes.scratch);
                let found = cursor.string(&mut scratch)?;
                let text = plain(&found, &scratch);
                let good = base64::decode(text.as_bytes(), &mut bytes.data);
                if good {
                    bytes.close();
                    bytes.scratch = scratch;
                    return Ok(true);
                }
                Err(self.unreadable(text))
            }
            Data::Timestamp { .. }
            | Data::Date(_)
            | Data::Decimal { .. }
            | Data::Float32(_)
            | Data::Float64(_) => {
                let mut scratch = Vec::new();
                let found = cursor.string(&mut scratch)?;
                self.push_text(plain(&found, &scratch))
            }
            _ => Err(self.unfit(cursor)),
        }
    }

    /// Take a text that stands for a value of another type.
    fn push_text(&mut self, text: &str) -> Result<bool> {
        if self.captured {
            match self.push_beyond(text) {
                Beyond::Taken => return Ok(true),
                Beyond::Null => return Ok(false),
                Beyond::Ordinary => {}
            }
        }
        let taken = match &mut self.data {
            Data::Timestamp { values, zoned } => match time::timestamp(text) {
                Some((micros, named)) if *zoned || !named => {
                    values.push(micros);
                    true
                }
                _ => false,
            },
            Data::Date(values) => match time::date(text) {
                Some(day) => {
                    values.push(day);
                    true
                }
                None => false,
            },
            Data::Decimal { .. } => return self.push_decimal(text).map(|()| true),
            Data::Float64(values) => push_special(values, text, f64::NAN, f64::INFINITY),
            Data::Float32(values) => push_special(values, text, f32::NAN, f32::INFINITY),
            _ => false,
        };
        if taken {
            Ok(true)
        } else {
            Err(self.unreadable(text))
        }
    }

    /// Take a text by which a database says what the column has no room for.
    fn push_beyond(&mut self, text: &str) -> Beyond {
        match &mut self.data {
            Data::Decimal { .. } if number::is_no_number(text) => return Beyond::Null,
            Data::Date(values) => match time::database_date(text) {
                Some(day) => values.push(day),
                None => return Beyond::Ordinary,
            },
            Data::Timestamp { values, .. } => match time::beyond(text) {
                Some(after) => values.push(if after { time::LAST_US } else { time::FIRST_US }),
                None => return Beyond::Ordinary,
            },
            _ => return Beyond::Ordinary,
        }
        Beyond::Taken
    }

    fn push_decimal(&mut self, text: &str) -> Result<()> {
        let Data::Decimal {
            values,
            scale,
            limit,
        } = &mut self.data
        else {
            return Err(self.unreadable(text));
        };
        match number::scaled(text, *scale) {
            Some(found) if found.value.abs() < *limit => {
                values.push(found.value);
                Ok(())
            }
            Some(_) => Err(self.out_of_range(text)),
            None if text.bytes().any(|b| b.is_ascii_digit()) && is_number(text) => {
                Err(self.out_of_range(text))
            }
            None => Err(self.unreadable(text)),
        }
    }

    fn push_number(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        if !matches!(
            self.data,
            Data::Int64(_)
                | Data::Float64(_)
                | Data::Int32(_)
                | Data::Timestamp { .. }
                | Data::Decimal { .. }
                | Data::Float32(_)
                | Data::Int16(_)
                | Data::Int8(_)
        ) {
            return Err(self.unfit(cursor));
        }
        let text = cursor.number()?;
        let taken = match &mut self.data {
            Data::Int64(values) => push_some(values, integer(text)),
            Data::Int32(values) => push_some(values, integer(text).and_then(|v| v.try_into().ok())),
            Data::Int16(values) => push_some(values, integer(text).and_then(|v| v.try_into().ok())),
            Data::Int8(values) => push_some(values, integer(text).and_then(|v| v.try_into().ok())),
            Data::Float64(values) => {
                push_some(values, text.parse().ok().filter(|v: &f64| v.is_finite()))
            }
            Data::Float32(values) => {
                push_some(values, text.parse().ok().filter(|v: &f32| v.is_finite()))
            }
            Data::Timestamp { values, .. } => push_some(values, time::epoch(text)),
            _ => return self.push_decimal(text),
        };
        if taken {
            Ok(())
        } else {
            Err(self.out_of_range(text))
        }
    }

    fn push_list(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let Data::List { ends, item } = &mut self.data else {
            return Err(self.unfit(cursor));
        };
        cursor.enter()?;
        if !cursor.is_empty(b']')? {
            loop {
                item.push(cursor).map_err(|bad| bad.within("[]"))?;
                if !cursor.more(b']')? {
                    break;
                }
            }
        }
        ends.push(item.len() as i32);
        Ok(())
    }

    fn push_object(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        match &mut self.data {
            Data::Struct(inner) => inner.push_object(cursor),
            Data::Map { .. } => self.push_map(cursor),
            _ => Err(self.unfit(cursor)),
        }
    }

    fn push_map(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let Data::Map {
            ends, key, value, ..
        } = &mut self.data
        else {
            return Err(self.unfit(cursor));
        };
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let mut scratch = Vec::new();
        cursor.enter()?;
        if !cursor.is_empty(b'}')? {
            loop {
                let found = cursor.name(&mut scratch)?;
                let name = plain(&found, &scratch);
                if !seen.insert(name.as_bytes().to_vec()) {
                    let detail = format!("the key {name:?} is there twice");
                    return Err(Bad::new(Reason::WrongType, detail));
                }
                if let Data::Text(bytes) = &mut key.data {
                    bytes.data.extend_from_slice(name.as_bytes());
                    bytes.close();
                    key.valid.append_non_null();
                }
                value.push(cursor).map_err(|bad| bad.within("{}"))?;
                if !cursor.more(b'}')? {
                    break;
                }
            }
        }
        ends.push(key.len() as i32);
        Ok(())
    }

    /// Cut back to the first `len` values, half-taken ones too.
    fn truncate(&mut self, len: usize) {
        match &mut self.data {
            Data::Boolean(values) => values.truncate(len),
            Data::Int8(values) => values.truncate(len),
            Data::Int16(values) => values.truncate(len),
            Data::Int32(values) | Data::Date(values) => values.truncate(len),
            Data::Int64(values) | Data::Timestamp { values, .. } => values.truncate(len),
            Data::Float32(values) => values.truncate(len),
            Data::Float64(values) => values.truncate(len),
            Data::Decimal { values, .. } => values.truncate(len),
            Data::Text(bytes) | Data::Binary(bytes) => bytes.cut(len),
            Data::List { ends, item } => {
                ends.truncate(len);
                item.truncate(ends.last().map_or(0, |&end| end as usize));
            }
            Data::Map {
                ends, key, value, ..
            } => {
                ends.truncate(len);
                let kept = ends.last().map_or(0, |&end| end as usize);
                key.truncate(kept);
                value.truncate(kept);
            }
            Data::Struct(inner) => inner.truncate(len),
        }
        if self.valid.len() > len {
            self.valid.truncate(len);
        }
    }

    fn finish(mut self) -> std::result::Result<ArrayRef, ArrowError> {
        let rows = self.len();
        let valid = self.valid.finish();
        let kind = self.field.data_type();
        match self.data {
            Data::Boolean(mut values) => Ok(Arc::new(BooleanArray::new(values.finish(), valid))),
            Data::Int8(values) => primitive::<Int8Type>(values, valid, kind),
            Data::Int16(values) => primitive::<Int16Type>(values, valid, kind),
            Data::Int32(values) => primitive::<Int32Type>(values, valid, kind),
            Data::Int64(values) => primitive::<Int64Type>(values, valid, kind),
            Data::Float32(values) => primitive::<Float32Type>(values, valid, kind),
            Data::Float64(values) => primitive::<Float64Type>(values, valid, kind),
            Data::Date(values) => primitive::<Date32Type>(values, valid, kind),
            Data::Timestamp { values, .. } => {
                primitive::<TimestampMicrosecondType>(values, valid, kind)
            }
            Data::Decimal { values, .. } => primitive::<Decimal128Type>(values, valid, kind),
            Data::Text(bytes) => bytes.finish::<Utf8Type>(valid),
            Data::Binary(bytes) => bytes.finish::<BinaryType>(valid),
            Data::List { ends, item } => {
                let field = item.field.clone();
                let items = item.finish()?;
                Ok(Arc::new(ListArray::try_new(
                    field,
                    offsets(ends),
                    items,
                    valid,
                )?))
            }
            Data::Map {
                ends,
                entries,
                key,
                value,
            } => {
                let pair: Fields = vec![key.field.clone(), value.field.clone()].into();
                let columns = vec![key.finish()?, value.finish()?];
                let both = StructArray::try_new(pair, columns, None)?;
                let map = MapArray::try_new(entries, offsets(ends), both, valid, false)?;
                Ok(Arc::new(map))
            }
            Data::Struct(inner) => Ok(Arc::new(inner.finish_with(rows, valid)?)),
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    valid: Option<NullBuffer>,
    kind: &DataType,
) -> std::result::Result<ArrayRef, ArrowError> {
    let array = PrimitiveArray::<T>::try_new(values.into(), valid)?;
    Ok(Arc::new(array.with_data_type(kind.clone())))
}

fn plain<'a>(found: &Text<'a>, scratch: &'a [u8]) -> &'a str {
    match found {
        Text::Plain(text) => text,
        Text::Unescaped => str::from_utf8(scratch).unwrap_or_default(), // made of characters
    }
}

#[inline]
fn push_some<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            values.push(value);
            true
        }
        None => false,
    }
}

fn push_special<T: std::ops::Neg<Output = T>>(
    values: &mut Vec<T>,
    text: &str,
    nan: T,
    infinity: T,
) -> bool {
    values.push(match text {
        "NaN" => nan,
        "Infinity" => infinity,
        "-Infinity" => -infinity,
        _ => return false,
    });
    true
}

/// An integer, also when it is written as `1.0` or `1e3`.
#[inline]
fn integer(text: &str) -> Option<i64> {
    number::small_integer(text).or_else(|| {
        let found = number::scaled(text, 0).filter(|found| found.exact)?;
        found.value.try_into().ok()
    })
}

/// Whether a text of a decimal is at least made of a number's characters.
fn is_number(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    matches!(cursor.peek(), Ok(b'-' | b'0'..=b'9'))
        && cursor.number().is_ok()
        && cursor.end().is_ok()
}
