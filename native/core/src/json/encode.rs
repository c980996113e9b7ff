//! Rows of Arrow columns to JSON objects, compact and in UTF-8.
//!
//! Every column is written, null too. Timestamps are ISO 8601 with six digits of a second and a `Z` (none for those
//! without a zone), decimals and base64 of binary are strings, and so are `"NaN"`, `"Infinity"` and `"-Infinity"`:
//! what `json_to_arrow` reads back to the same values.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{
    Array, BinaryArray, BooleanArray, GenericByteArray, PrimitiveArray, StructArray, types,
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, TimeUnit};

use super::{Refused, base64, time};

/// The objects of some columns, one per row.
pub fn arrow_to_json(rows: &StructArray, columns: &[usize]) -> Result<BinaryArray, Refused> {
    let fields = columns
        .iter()
        .map(|&at| {
            let field = rows
                .fields()
                .get(at)
                .ok_or_else(|| Refused(format!("there is no column {at}")))?;
            Member::new(field.name(), rows.column(at))
        })
        .collect::<Result<Vec<_>, Refused>>()?;
    let mut out = Vec::with_capacity(rows.len() * 32 * columns.len().max(1));
    let mut offsets = Vec::with_capacity(rows.len() + 1);
    offsets.push(0_i32);
    for row in 0..rows.len() {
        write_object(&fields, row, &mut out);
        let end = i32::try_from(out.len())
            .map_err(|_| Refused("too many bytes for one batch of rows".into()))?;
        offsets.push(end);
    }
    BinaryArray::try_new(
        OffsetBuffer::new(offsets.into()),
        Buffer::from_vec(out),
        None,
    )
    .map_err(|e: ArrowError| Refused(e.to_string()))
}

/// A field of an object: `"name":`, and what its values come from.
struct Member<'a> {
    prefix: Vec<u8>,
    values: Values<'a>,
}

impl<'a> Member<'a> {
    fn new(name: &str, array: &'a dyn Array) -> Result<Self, Refused> {
        let mut prefix = Vec::new();
        write_string(name, &mut prefix);
        prefix.push(b':');
        let values = Values::new(array).map_err(|Refused(kind)| {
            Refused(format!(
                "column {name} is of type {kind}, which is not written as JSON"
            ))
        })?;
        Ok(Member { prefix, values })
    }
}

fn write_object(members: &[Member<'_>], row: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, member) in members.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&member.prefix);
        member.values.write(row, out);
    }
    out.push(b'}');
}

struct Values<'a> {
    nulls: Option<&'a NullBuffer>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal(&'a PrimitiveArray<Decimal128Type>, i8),
    Date(&'a PrimitiveArray<Date32Type>),
    Timestamp {
        values: &'a [i64],
        per_second: i64,
        zoned: bool,
    },
    Text(&'a GenericByteArray<types::Utf8Type>),
    LargeText(&'a GenericByteArray<types::LargeUtf8Type>),
    Binary(&'a GenericByteArray<types::BinaryType>),
    LargeBinary(&'a GenericByteArray<types::LargeBinaryType>),
    List(Spans<'a>, Box<Values<'a>>),
    Map(Spans<'a>, Box<Values<'a>>, Box<Values<'a>>),
    Struct(Vec<Member<'a>>),
}

/// Where each row's elements begin and end.
enum Spans<'a> {
    Small(&'a OffsetBuffer<i32>),
    Large(&'a OffsetBuffer<i64>),
}

impl Spans<'_> {
    fn of(&self, row: usize) -> std::ops::Range<usize> {
        match self {
            Spans::Small(ends) => ends[row].as_usize()..ends[row + 1].as_usize(),
            Spans::Large(ends) => ends[row].as_usize()..ends[row + 1].as_usize(),
        }
    }
}

impl<'a> Values<'a> {
    fn new(array: &'a dyn Array) -> Result<Self, Refused> {
        let kind = match array.data_type() {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Boolean(array.as_boolean()),
            DataType::Int8 => Kind::Int8(array.as_primitive()),
            DataType::Int16 => Kind::Int16(array.as_primitive()),
            DataType::Int32 => Kind::Int32(array.as_primitive()),
            DataType::Int64 => Kind::Int64(array.as_primitive()),
            DataType::Float32 => Kind::Float32(array.as_primitive()),
            DataType::Float64 => Kind::Float64(array.as_primitive()),
            DataType::Decimal128(_, scale) => Kind::Decimal(array.as_primitive(), *scale),
            DataType::Date32 => Kind::Date(array.as_primitive()),
            DataType::Timestamp(unit, zone) => timestamps(array, *unit, zone.is_some()),
            DataType::Utf8 => Kind::Text(array.as_string()),
            DataType::LargeUtf8 => Kind::LargeText(array.as_string()),
            DataType::Binary => Kind::Binary(array.as_binary()),
            DataType::LargeBinary => Kind::LargeBinary(array.as_binary()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let items = Values::new(list.values().as_ref())?;
                Kind::List(Spans::Small(list.offsets()), Box::new(items))
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let items = Values::new(list.values().as_ref())?;
                Kind::List(Spans::Large(list.offsets()), Box::new(items))
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                let (keys, values) = (
                    Values::new(map.keys().as_ref())?,
                    Values::new(map.values().as_ref())?,
                );
                Kind::Map(
                    Spans::Small(map.offsets()),
                    Box::new(keys),
                    Box::new(values),
                )
            }
            DataType::Struct(fields) => {
                let inner = array.as_struct();
                let members = fields
                    .iter()
                    .zip(inner.columns())
                    .map(|(field, column)| Member::new(field.name(), column.as_ref()))
                    .collect::<Result<Vec<_>, Refused>>()?;
                Kind::Struct(members)
            }
            other => return Err(Refused(other.to_string())),
        };
        Ok(Values {
            nulls: array.nulls(),
            kind,
        })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.kind {
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Boolean(values) => {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            }
            Kind::Int8(values) => write_integer(values.value(row).into(), out),
            Kind::Int16(values) => write_integer(values.value(row).into(), out),
            Kind::Int32(values) => write_integer(values.value(row).into(), out),
            Kind::Int64(values) => write_integer(values.value(row), out),
            Kind::Float32(values) => {
                let value = values.value(row);
                match special(value.into()) {
                    Some(text) => out.extend_from_slice(text),
                    None => written(write!(out, "{value:?}")),
                }
            }
            Kind::Float64(values) => {
                let value = values.value(row);
                match special(value) {
                    Some(text) => out.extend_from_slice(text),
                    None => written(write!(out, "{value:?}")),
                }
            }
            Kind::Decimal(values, scale) => write_decimal(values.value(row), *scale, out),
            Kind::Date(values) => {
                out.push(b'"');
                time::write_date(out, values.value(row).into());
                out.push(b'"');
            }
            Kind::Timestamp {
                values,
                per_second,
                zoned,
            } => {
                out.push(b'"');
                time::write_timestamp(out, micros(values[row], *per_second), *zoned);
                out.push(b'"');
            }
            Kind::Text(values) => write_string(values.value(row), out),
            Kind::LargeText(values) => write_string(values.value(row), out),
            Kind::Binary(values) => write_binary(values.value(row), out),
            Kind::LargeBinary(values) => write_binary(values.value(row), out),
            Kind::List(spans, items) => {
                out.push(b'[');
                for (at, item) in spans.of(row).enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    items.write(item, out);
                }
                out.push(b']');
            }
            Kind::Map(spans, keys, values) => {
                out.push(b'{');
                for (at, entry) in spans.of(row).enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_key(keys, entry, out);
                    out.push(b':');
                    values.write(entry, out);
                }
                out.push(b'}');
            }
            Kind::Struct(members) => write_object(members, row, out),
        }
    }
}

fn timestamps(array: &dyn Array, unit: TimeUnit, zoned: bool) -> Kind<'_> {
    let (values, per_second): (&[i64], i64) = match unit {
        TimeUnit::Second => (array.as_primitive::<TimestampSecondType>().values(), 1),
        TimeUnit::Millisecond => (
            array.as_primitive::<TimestampMillisecondType>().values(),
            1_000,
        ),
        TimeUnit::Microsecond => (
            array.as_primitive::<TimestampMicrosecondType>().values(),
            1_000_000,
        ),
        TimeUnit::Nanosecond => (
            array.as_primitive::<TimestampNanosecondType>().values(),
            1_000_000_000,
        ),
    };
    Kind::Timestamp {
        values,
        per_second,
        zoned,
    }
}

fn micros(value: i64, per_second: i64) -> i64 {
    if per_second > 1_000_000 {
        value.div_euclid(per_second / 1_000_000)
    } else {
        value.saturating_mul(1_000_000 / per_second)
    }
}

fn special(value: f64) -> Option<&'static [u8]> {
    if value.is_finite() {
        None
    } else if value.is_nan() {
        Some(b"\"NaN\"")
    } else if value > 0.0 {
        Some(b"\"Infinity\"")
    } else {
        Some(b"\"-Infinity\"")
    }
}

/// Writing to memory does not fail.
fn written(done: std::io::Result<()>) {
    debug_assert!(done.is_ok());
}

fn write_integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    time::digits(out, value, 1);
}

fn write_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    let sign = if value < 0 { "-" } else { "" };
    let size = value.unsigned_abs();
    match u32::try_from(scale) {
        Ok(0) => written(write!(out, "\"{sign}{size}\"")),
        Ok(places) => {
            let unit = 10_u128.pow(places.min(38));
            let width = places as usize;
            written(write!(
                out,
                "\"{sign}{}.{:0width$}\"",
                size / unit,
                size % unit
            ));
        }
        Err(_) => {
            let zeros = usize::from(scale.unsigned_abs());
            written(write!(out, "\"{sign}{size}{}\"", "0".repeat(zeros)));
        }
    }
}

fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    base64::encode(bytes, out);
    out.push(b'"');
}

/// A key of a map is a string in JSON, whatever its type.
fn write_key(keys: &Values<'_>, entry: usize, out: &mut Vec<u8>) {
    let start = out.len();
    keys.write(entry, out);
    if out.get(start) != Some(&b'"') {
        let text = String::from_utf8_lossy(&out[start..]).into_owned();
        out.truncate(start);
        write_string(&text, out);
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => written(write!(out, "\\u{byte:04x}")),
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}
