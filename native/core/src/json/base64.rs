//! Base64 with the standard alphabet and padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Write bytes as base64.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            out.push(if place <= chunk.len() {
                ALPHABET[(bits >> (18 - 6 * place)) as usize & 63]
            } else {
                b'='
            });
        }
    }
}

/// Append the bytes of base64 text; false, with `out` as it was, if it is none.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let done = decode_groups(text, out).is_some();
    if !done {
        out.truncate(start);
    }
    done
}

fn decode_groups(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if text.len() % 4 != 0 {
        return None;
    }
    let groups = text.len() / 4;
    for (number, group) in text.chunks(4).enumerate() {
        let padding = group.iter().rev().take_while(|&&b| b == b'=').count();
        if padding > 2 || (padding > 0 && number + 1 < groups) {
            return None;
        }
        let mut bits = 0;
        for &byte in &group[..4 - padding] {
            bits = bits << 6 | sextet(byte)?;
        }
        bits <<= 6 * padding;
        let bytes = bits.to_be_bytes();
        if bytes[4 - padding..].iter().any(|&b| b != 0) {
            return None; // bits that the encoder would have left zero
        }
        out.extend_from_slice(&bytes[1..4 - padding]);
    }
    Some(())
}

fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for length in 0..50_u8 {
            let bytes: Vec<u8> = (0..length).map(|i| i.wrapping_mul(97)).collect();
            let (mut text, mut back) = (Vec::new(), Vec::new());
            encode(&bytes, &mut text);
            assert!(decode(&text, &mut back));
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn what_is_no_base64() {
        for text in [
            "a", "ab==c", "====", "aa=a", "ab=c", "a b=", "aB==", "Zm9vYg==",
        ] {
            let mut out = vec![1];
            let good = decode(text.as_bytes(), &mut out);
            assert_eq!(good, text == "Zm9vYg==", "{text}");
            assert!(good || out == [1]);
        }
    }
}
