//! JSON values to typed Arrow columns, and rows of Arrow columns to JSON.
//!
//! The parser knows the declared columns and which of them are wanted: it fills these as it goes, and walks over the
//! rest, checking it all the same. Whether a row is good follows from what is declared, not from what is wanted of it.
//! Every row is taken whole or not at all: when one is bad, the columns are cut back to where it began, so a bad
//! row costs the others nothing.

mod base64;
mod column;
mod cursor;
mod encode;
mod number;
mod time;

use std::fmt;

use arrow_array::{Array, StructArray};
use arrow_schema::Fields;

use column::Struct;
use cursor::Cursor;
pub use encode::arrow_to_json;

/// Why a row is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no value at all.
    NoValue,
    NotJson,
    WrongType,
    OutOfRange,
    /// Null or nothing where the schema says NOT NULL.
    Missing,
    TooDeep,
}

impl Reason {
    /// The name that Python sees.
    pub fn name(self) -> &'static str {
        match self {
            Reason::NoValue => "no-value",
            Reason::NotJson => "not-json",
            Reason::WrongType => "wrong-type",
            Reason::OutOfRange => "out-of-range",
            Reason::Missing => "missing",
            Reason::TooDeep => "too-deep",
        }
    }
}

/// A row that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    pub row: usize,
    pub reason: Reason,
    pub detail: String,
}

/// What is wrong with a value; columns add their names on the way out.
#[derive(Debug)]
pub(crate) struct Bad {
    reason: Reason,
    detail: String,
}

type Result<T> = std::result::Result<T, Bad>;

impl Bad {
    #[cold]
    fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Bad {
            reason,
            detail: detail.into(),
        }
    }

    #[cold]
    fn within(mut self, name: &str) -> Self {
        if self.reason != Reason::NotJson && self.reason != Reason::TooDeep {
            self.detail = match self.detail.strip_prefix("column ") {
                Some(rest) => format!("column {name}.{rest}"),
                None => format!("column {name}: {}", self.detail),
            };
        }
        self
    }
}

/// A schema or an amount that no row could be taken for.
#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Decode values that are JSON objects; the good ones as rows of `fields`, in order, and the bad ones told.
///
/// With `chosen`, only the fields of these names become columns. The others are checked by the same rules.
pub fn json_to_arrow<'a>(
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    fields: &Fields,
    chosen: Option<&[String]>,
) -> std::result::Result<(StructArray, Vec<BadRow>), Refused> {
    decode(values, fields, chosen, false)
}

/// As `json_to_arrow`, of values that a database had, as Debezium writes them. What a column's type has no room for
/// does not make the row bad: of a decimal what is no number is null, times beyond the years 1 to 9999 are the first
/// or last of them, 0 and 1 are booleans, and in a column of text a value that is no string is its JSON.
pub fn captured_to_arrow<'a>(
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    fields: &Fields,
    chosen: Option<&[String]>,
) -> std::result::Result<(StructArray, Vec<BadRow>), Refused> {
    decode(values, fields, chosen, true)
}

fn decode<'a>(
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    fields: &Fields,
    chosen: Option<&[String]>,
    captured: bool,
) -> std::result::Result<(StructArray, Vec<BadRow>), Refused> {
    let mut root = Struct::new(fields, values.len())?;
    if captured {
        root.capture();
    }
    if let Some(names) = chosen {
        if let Some(name) = names.iter().find(|name| fields.find(name).is_none()) {
            return Err(Refused(format!("there is no column {name:?}")));
        }
        root.choose(|name| names.iter().any(|chosen| chosen == name));
    }
    let mut bad = Vec::new();
    let mut bytes = 0_usize;
    let mut taken = 0;
    for (row, value) in values.enumerate() {
        bytes += value.map_or(0, <[u8]>::len);
        if i32::try_from(bytes).is_err() {
            return Err(Refused("too many bytes for one batch of columns".into()));
        }
        match take(&mut root, value) {
            Ok(()) => taken += 1,
            Err(Bad { reason, detail }) => {
                root.truncate(taken);
                bad.push(BadRow {
                    row,
                    reason,
                    detail,
                });
            }
        }
    }
    let columns = root.finish(taken).map_err(|e| Refused(e.to_string()))?;
    debug_assert_eq!(columns.len(), taken);
    Ok((columns, bad))
}

fn take(root: &mut Struct, value: Option<&[u8]>) -> Result<()> {
    let Some(value) = value else {
        return Err(Bad::new(Reason::NoValue, "the record has no value"));
    };
    let text = std::str::from_utf8(value).map_err(|e| {
        Bad::new(
            Reason::NotJson,
            format!("byte {} is not UTF-8", e.valid_up_to()),
        )
    })?;
    let mut cursor = Cursor::new(text);
    match cursor.peek()? {
        b'{' => root.push_object(&mut cursor)?,
        _ => {
            let found = cursor.found()?;
            cursor.skip_value()?;
            cursor.end()?;
            return Err(Bad::new(
                Reason::WrongType,
                format!("the value is {found}, not an object"),
            ));
        }
    }
    cursor.end()
}
