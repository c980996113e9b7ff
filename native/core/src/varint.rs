//! Zigzag varints, as Kafka writes them.

/// Take a 32-bit varint from the front of `data`.
#[inline(always)]
pub fn take_i32(data: &mut &[u8]) -> Option<i32> {
    let raw = match short(data) {
        Some(raw) => raw,
        None => u32::try_from(long(data, 5)?).ok()?,
    };
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Take a 64-bit varint from the front of `data`.
#[inline(always)]
pub fn take_i64(data: &mut &[u8]) -> Option<i64> {
    let raw = match short(data) {
        Some(raw) => u64::from(raw),
        None => long(data, 10)?,
    };
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

/// A varint of one or two bytes, which nearly all are.
#[inline(always)]
fn short(data: &mut &[u8]) -> Option<u32> {
    match **data {
        [first, ref rest @ ..] if first < 0x80 => {
            *data = rest;
            Some(u32::from(first))
        }
        [first, second, ref rest @ ..] if second < 0x80 => {
            *data = rest;
            Some(u32::from(first & 0x7F) | u32::from(second) << 7)
        }
        _ => None,
    }
}

#[inline(never)]
fn long(data: &mut &[u8], longest: usize) -> Option<u64> {
    let mut raw = 0u64;
    for (i, &byte) in data.iter().take(longest).enumerate() {
        let bits = u64::from(byte & 0x7F);
        if i == 9 && bits > 1 {
            return None;
        }
        raw |= bits << (7 * i);
        if byte < 0x80 {
            *data = &data[i + 1..];
            return Some(raw);
        }
    }
    None
}

pub fn put_i32(out: &mut Vec<u8>, value: i32) {
    put_raw(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_raw(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_raw(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Bytes that `put_i64` writes (and `put_i32`, for a value in its range).
pub fn size(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    (64 - (raw | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken_again() {
        let edges = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, i32::MAX, i32::MIN];
        for value in edges {
            let mut out = Vec::new();
            put_i32(&mut out, value);
            assert_eq!(out.len(), size(i64::from(value)));
            let mut rest = &out[..];
            assert_eq!(take_i32(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
        for value in [0, 1, -1, i64::MAX, i64::MIN, i64::MAX / 3, 1 << 40] {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            assert_eq!(out.len(), size(value));
            let mut rest = &out[..];
            assert_eq!(take_i64(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn cut_and_overlong_varints_are_refused() {
        assert_eq!(take_i32(&mut &[][..]), None);
        assert_eq!(take_i32(&mut &[0x80][..]), None);
        assert_eq!(take_i32(&mut &[0xFF; 6][..]), None);
        assert_eq!(take_i32(&mut &[0xFF, 0xFF, 0xFF, 0xFF, 0x7F][..]), None);
        assert_eq!(take_i64(&mut &[0xFF; 11][..]), None);
        let mut too_large = [0xFF; 10];
        too_large[9] = 2;
        assert_eq!(take_i64(&mut &too_large[..]), None);
    }
}
