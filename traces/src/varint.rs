//! LEB128 numbers: seven bits a byte, lowest first, the top bit set on all but the last byte.

/// Appends `value`; 1 to 10 bytes.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front of `input`; `None` if it is cut short or needs more than 64 bits.
#[inline(always)]
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    if first < 0x80 {
        *input = rest;
        return Some(u64::from(first));
    }
    take_long(input)
}

#[inline]
fn take_long(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().take(10).enumerate() {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *input = &input[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a number that must fit `T`.
pub(crate) fn take_as<T: TryFrom<u64>>(input: &mut &[u8]) -> Option<T> {
    T::try_from(take(input)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                bytes.push(0xAA);
                let mut rest = bytes.as_slice();
                assert_eq!(take(&mut rest), Some(value));
                assert_eq!(rest, [0xAA]);
            }
        }
    }

    #[test]
    fn cut_and_overlong_numbers_are_refused() {
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 9][..]), None);
        assert_eq!(take(&mut &[0xff; 12][..]), None);
        let mut sixty_five_bits = [0xff; 10];
        sixty_five_bits[9] = 2;
        assert_eq!(take(&mut &sixty_five_bits[..]), None);
    }
}
