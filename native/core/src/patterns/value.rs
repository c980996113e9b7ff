//! Values of columns and conditions, with SQL's rules: null is unknown, numbers compare across types, what cannot be
//! computed is a failure of that row.

use std::cmp::Ordering;

use super::program::Op;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

/// Why a condition has no answer for a row.
pub type Failure = &'static str;
pub type Outcome<'a> = Result<Value<'a>, Failure>;

pub const DIVISION: Failure = "division by zero";
pub const RANGE: Failure = "a whole number out of range";
const TYPES: Failure = "values of types that do not go together";

impl<'a> Value<'a> {
    #[inline]
    fn float(self) -> Option<f64> {
        match self {
            Value::Int(value) => Some(value as f64),
            Value::Float(value) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub fn is_true(self) -> bool {
        self == Value::Bool(true)
    }

    /// The order of two values that are not null; not-a-number is after all others and like itself, as in Spark.
    #[inline]
    pub fn order(self, other: Value<'a>) -> Result<Ordering, Failure> {
        Ok(match (self, other) {
            (Value::Int(a), Value::Int(b)) => a.cmp(&b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(&b),
            _ => match (self.float(), other.float()) {
                (Some(a), Some(b)) => a
                    .partial_cmp(&b)
                    .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
                _ => return Err(TYPES),
            },
        })
    }
}

#[inline]
pub fn compare<'a>(op: Op, a: Value<'a>, b: Value<'a>) -> Outcome<'a> {
    if a == Value::Null || b == Value::Null {
        return Ok(Value::Null);
    }
    let order = a.order(b)?;
    Ok(Value::Bool(match op {
        Op::Eq => order.is_eq(),
        Op::Ne => order.is_ne(),
        Op::Lt => order.is_lt(),
        Op::Le => order.is_le(),
        Op::Gt => order.is_gt(),
        _ => order.is_ge(),
    }))
}

#[inline]
pub fn arithmetic<'a>(op: Op, a: Value<'a>, b: Value<'a>) -> Outcome<'a> {
    if a == Value::Null || b == Value::Null {
        return Ok(Value::Null);
    }
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        if op != Op::Div {
            return whole(op, a, b);
        }
    }
    let (Some(a), Some(b)) = (a.float(), b.float()) else {
        return Err(TYPES);
    };
    Ok(Value::Float(match op {
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        _ if b == 0.0 => return Err(DIVISION),
        Op::Div => a / b,
        _ => a % b,
    }))
}

#[inline]
fn whole<'a>(op: Op, a: i64, b: i64) -> Outcome<'a> {
    let found = match op {
        Op::Add => a.checked_add(b),
        Op::Sub => a.checked_sub(b),
        Op::Mul => a.checked_mul(b),
        _ if b == 0 => return Err(DIVISION),
        _ => Some(a.wrapping_rem(b)),
    };
    found.map(Value::Int).ok_or(RANGE)
}

#[inline]
pub fn negative(value: Value<'_>) -> Outcome<'_> {
    Ok(match value {
        Value::Null => Value::Null,
        Value::Int(value) => Value::Int(value.checked_neg().ok_or(RANGE)?),
        Value::Float(value) => Value::Float(-value),
        _ => return Err(TYPES),
    })
}

#[inline]
pub fn absolute(value: Value<'_>) -> Outcome<'_> {
    match value {
        Value::Int(number) if number < 0 => negative(value),
        Value::Float(number) => Ok(Value::Float(number.abs())),
        Value::Int(_) | Value::Null => Ok(value),
        _ => Err(TYPES),
    }
}

#[inline]
pub fn and<'a>(a: Value<'a>, b: Value<'a>) -> Outcome<'a> {
    Ok(match (a, b) {
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (Value::Bool(true), Value::Bool(true)) => Value::Bool(true),
        (Value::Null | Value::Bool(_), Value::Null | Value::Bool(_)) => Value::Null,
        _ => return Err(TYPES),
    })
}

#[inline]
pub fn or<'a>(a: Value<'a>, b: Value<'a>) -> Outcome<'a> {
    Ok(match (a, b) {
        (Value::Bool(true), _) | (_, Value::Bool(true)) => Value::Bool(true),
        (Value::Bool(false), Value::Bool(false)) => Value::Bool(false),
        (Value::Null | Value::Bool(_), Value::Null | Value::Bool(_)) => Value::Null,
        _ => return Err(TYPES),
    })
}

#[inline]
pub fn not(value: Value<'_>) -> Outcome<'_> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Bool(value) => Ok(Value::Bool(!value)),
        _ => Err(TYPES),
    }
}

/// Whether a value is one of some.
pub fn within<'a>(value: Value<'a>, choices: &[Value<'a>]) -> Outcome<'a> {
    let mut unknown = value == Value::Null;
    for &choice in choices {
        match compare(Op::Eq, value, choice)? {
            Value::Bool(true) => return Ok(Value::Bool(true)),
            Value::Null => unknown = true,
            _ => {}
        }
    }
    Ok(if unknown {
        Value::Null
    } else {
        Value::Bool(false)
    })
}

pub fn like<'a>(value: Value<'a>, pattern: &str) -> Outcome<'a> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Text(text) => Ok(Value::Bool(is_like(text, pattern))),
        _ => Err(TYPES),
    }
}

/// SQL's LIKE: `%` any text, `_` any character, `\` takes the next as it is. Linear but for the last `%`.
fn is_like(text: &str, pattern: &str) -> bool {
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    let mut retry = None;
    loop {
        let rest = pattern.clone();
        let fits = match pattern.next() {
            Some('%') => {
                retry = Some((text.clone(), pattern.clone()));
                continue;
            }
            Some('_') => text.next().is_some(),
            Some('\\') => {
                let plain = pattern.next().unwrap_or('\\');
                text.next() == Some(plain)
            }
            Some(plain) => text.next() == Some(plain),
            None if text.as_str().is_empty() => return true,
            None => false,
        };
        if !fits {
            drop(rest);
            let Some((mut later, after)) = retry else {
                return false;
            };
            if later.next().is_none() {
                return false;
            }
            text = later.clone();
            pattern = after.clone();
            retry = Some((later, after));
        }
    }
}

pub fn to_int(value: Value<'_>) -> Outcome<'_> {
    Ok(match value {
        Value::Null | Value::Int(_) => value,
        Value::Bool(value) => Value::Int(value.into()),
        Value::Float(value) if value.abs() < 9.2e18 => Value::Int(value as i64),
        Value::Float(_) => return Err(RANGE),
        Value::Text(text) => text
            .trim()
            .parse()
            .map(Value::Int)
            .map_err(|_| "text that is no whole number")?,
    })
}

pub fn to_float(value: Value<'_>) -> Outcome<'_> {
    Ok(match value {
        Value::Null | Value::Float(_) => value,
        Value::Bool(value) => Value::Float(value.into()),
        Value::Int(value) => Value::Float(value as f64),
        Value::Text(text) => text
            .trim()
            .parse()
            .map(Value::Float)
            .map_err(|_| "text that is no number")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_unknown_but_false_and_true_decide() {
        assert_eq!(and(Value::Null, Value::Bool(false)), Ok(Value::Bool(false)));
        assert_eq!(and(Value::Null, Value::Bool(true)), Ok(Value::Null));
        assert_eq!(or(Value::Null, Value::Bool(true)), Ok(Value::Bool(true)));
        assert_eq!(or(Value::Bool(false), Value::Null), Ok(Value::Null));
        assert_eq!(
            within(Value::Int(1), &[Value::Null, Value::Int(1)]),
            Ok(Value::Bool(true))
        );
        assert_eq!(
            within(Value::Int(2), &[Value::Null, Value::Int(1)]),
            Ok(Value::Null)
        );
    }

    #[test]
    fn what_cannot_be_computed_is_a_failure() {
        assert_eq!(
            arithmetic(Op::Div, Value::Int(1), Value::Int(0)),
            Err(DIVISION)
        );
        assert_eq!(
            arithmetic(Op::Mod, Value::Int(1), Value::Int(0)),
            Err(DIVISION)
        );
        assert_eq!(
            arithmetic(Op::Add, Value::Int(i64::MAX), Value::Int(1)),
            Err(RANGE)
        );
        assert_eq!(
            arithmetic(Op::Mod, Value::Int(i64::MIN), Value::Int(-1)),
            Ok(Value::Int(0))
        );
        assert_eq!(negative(Value::Int(i64::MIN)), Err(RANGE));
        assert!(to_int(Value::Text("one")).is_err());
        assert!(to_int(Value::Float(f64::NAN)).is_err());
    }

    #[test]
    fn like_knows_its_two_signs_and_the_escape() {
        for (text, pattern, found) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "a_c", true),
            ("abc", "a_", false),
            ("aXbXc", "a%X_", true),
            ("abab", "%ab", true),
            ("100%", "100\\%", true),
            ("1000", "100\\%", false),
            ("ééé", "é_é", true),
        ] {
            assert_eq!(is_like(text, pattern), found, "{text} like {pattern}");
        }
    }
}
