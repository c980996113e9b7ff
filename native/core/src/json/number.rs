//! Numbers from the text of a JSON number, exactly.

/// A number times a power of ten, rounded half up (away from zero) to an integer.
pub struct Scaled {
    pub value: i128,
    /// Nothing but zeros was rounded away.
    pub exact: bool,
}

/// Digits that an i128 surely holds; also the most that a decimal may have.
const MAX_DIGITS: i64 = 38;

/// A plain integer of at most 18 digits, which nearly all are.
#[inline]
pub fn small_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0_i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -value } else { value })
}

/// `text`, a JSON number or digits like one, times 10^`scale`; None if it is no number or has more than 38 digits.
pub fn scaled(text: &str, scale: i32) -> Option<Scaled> {
    let (negative, rest) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let end = rest.iter().position(|b| matches!(b, b'e' | b'E'));
    let (mantissa, exponent) = match end {
        Some(at) => (&rest[..at], exponent(&rest[at + 1..])?),
        None => (rest, 0),
    };
    let point = mantissa.iter().position(|&b| b == b'.');
    let fraction = point.map_or(0, |at| mantissa.len() - at - 1);
    let digits: Vec<u8> = mantissa.iter().copied().filter(|&b| b != b'.').collect();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|&&b| b == b'0').count();
    let digits = &digits[zeros..];
    if digits.is_empty() {
        return Some(Scaled {
            value: 0,
            exact: true,
        });
    }
    let shift = exponent.saturating_add(i64::from(scale)) - fraction as i64;
    let kept = (digits.len() as i64).saturating_add(shift);
    if kept > MAX_DIGITS {
        return None;
    }
    let digit = |at: i64| match usize::try_from(at) {
        Ok(at) => digits.get(at).map_or(0, |b| b - b'0'),
        Err(_) => 0,
    };
    let mut value = 0_i128;
    for at in 0..kept {
        value = value * 10 + i128::from(digit(at));
    }
    if digit(kept) >= 5 {
        value += 1;
    }
    let first_dropped = usize::try_from(kept).unwrap_or(0);
    let exact = digits
        .get(first_dropped..)
        .is_none_or(|dropped| dropped.iter().all(|&b| b == b'0'));
    let value = if negative { -value } else { value };
    Some(Scaled { value, exact })
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'));
    }
    let value = value.min(1 << 40);
    Some(if negative { -value } else { value })
}

/// Whether a text says that a numeric of a database is no number, or not finite.
pub fn is_no_number(text: &str) -> bool {
    let word = text.trim_start_matches('-');
    ["nan", "infinity", "positive_infinity", "negative_infinity"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exactly(text: &str, scale: i32) -> Option<(i128, bool)> {
        scaled(text, scale).map(|s| (s.value, s.exact))
    }

    #[test]
    fn numbers_are_exact_or_rounded_half_away_from_zero() {
        assert_eq!(exactly("12.345", 2), Some((1235, false)));
        assert_eq!(exactly("-12.345", 2), Some((-1235, false)));
        assert_eq!(exactly("12.344", 2), Some((1234, false)));
        assert_eq!(exactly("1e3", 0), Some((1000, true)));
        assert_eq!(exactly("1500e-2", 0), Some((15, true)));
        assert_eq!(exactly("0.5", 0), Some((1, false)));
        assert_eq!(exactly("0.05", 0), Some((0, false)));
        assert_eq!(exactly("0.0", 5), Some((0, true)));
        assert_eq!(exactly("0e999999999999999999", 0), Some((0, true)));
        assert_eq!(exactly("1e999999999999999999", 0), None);
        assert_eq!(exactly("1e-999999999999999999", 0), Some((0, false)));
        assert_eq!(exactly(&"9".repeat(38), 0).map(|s| s.1), Some(true));
        assert_eq!(exactly(&"9".repeat(39), 0), None);
    }

    #[test]
    fn small_integers() {
        assert_eq!(small_integer("-0"), Some(0));
        assert_eq!(small_integer("-17"), Some(-17));
        assert_eq!(small_integer("1.0"), None);
        assert_eq!(small_integer("9223372036854775808"), None);
    }
}
