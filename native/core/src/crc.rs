//! CRC-32C (Castagnoli), with the processor's own instructions where there are any.

/// The checksum of `data`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// The checksum of what `value` is the checksum of, followed by `data`.
pub fn crc32c_from(value: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(value, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    }

    #[test]
    fn going_on_equals_doing_it_at_once() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 31 % 251) as u8).collect();
        for cut in [0, 1, 7, 8, 63, 64, 1000, 4999, 5000] {
            assert_eq!(
                crc32c_from(crc32c(&data[..cut]), &data[cut..]),
                crc32c(&data)
            );
        }
    }
}
