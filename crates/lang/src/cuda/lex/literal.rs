//! Literals: numbers, characters.

use bornite_ir::Scalar;

use super::{Interner, TokenKind};

/// Parses a hexadecimal float, `0x1.8p3`; `None` if it has more digits than a double holds.
fn parse_hex_float(text: &str) -> Option<f64> {
    let (digits, exponent) = text.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mantissa = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok().filter(|n| *n <= 1 << 53)?;
    let exponent: i32 = exponent.parse().ok().filter(|n| (-2000..=2000).contains(n))?;
    let exponent = exponent - 4 * fraction.len() as i32;
    // In two steps: a single power of two could underflow.
    let half = exponent / 2;
    Some(mantissa as f64 * 2f64.powi(half) * 2f64.powi(exponent - half))
}

/// Parses a number from `at`, which it advances; an error message if it is not one.
pub fn number_literal(text: &str, at: &mut usize, names: &mut Interner) -> Result<TokenKind, String> {
    let bytes = text.as_bytes();
    let start = *at;
    let hex = text[start..].starts_with("0x") || text[start..].starts_with("0X");
    let binary = text[start..].starts_with("0b") || text[start..].starts_with("0B");
    while *at < bytes.len() {
        let (byte, before) = (bytes[*at], if *at > start { bytes[*at - 1] } else { b' ' });
        let exponent = !hex && matches!(before, b'e' | b'E') || hex && matches!(before, b'p' | b'P');
        let part = byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'\'' && *at > start;
        if !(part || matches!(byte, b'+' | b'-') && exponent) {
            break;
        }
        *at += 1;
    }
    let whole = text[start..*at].replace('\'', "");
    let symbol = names.intern(&text[start..*at]);
    let float = |bits: u64, scalar| Ok(TokenKind::Float { bits, scalar, text: symbol });
    let lower = whole.to_ascii_lowercase();
    let is_float = !hex && !binary && (lower.contains('.') || lower.contains('e') || lower.ends_with('f'));
    if hex && lower.contains('p') {
        let (digits, scalar) = match lower.strip_suffix('f') {
            Some(digits) => (digits, Scalar::F32),
            None => (lower.as_str(), Scalar::F64),
        };
        return match parse_hex_float(digits) {
            Some(x) if scalar == Scalar::F32 => float((x as f32).to_bits() as u64, scalar),
            Some(x) => float(x.to_bits(), scalar),
            None => Err(format!("'{whole}' is not a hexadecimal number that fits in a double")),
        };
    }
    if is_float {
        let (digits, scalar) = match lower.strip_suffix('f') {
            Some(digits) => (digits, Scalar::F32),
            None => (lower.as_str(), Scalar::F64),
        };
        let bits = match scalar {
            Scalar::F32 => digits.parse::<f32>().map(|x| x.to_bits() as u64),
            _ => digits.parse::<f64>().map(f64::to_bits),
        };
        return match bits {
            Ok(bits) => float(bits, scalar),
            Err(_) => Err(format!("'{whole}' is not a number")),
        };
    }
    let digits = lower.trim_end_matches(['u', 'l', 'z']);
    let suffix = &lower[digits.len()..];
    let (radix, digits) = match () {
        () if hex => (16, &digits[2..]),
        () if binary => (2, &digits[2..]),
        () if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        () => (10, digits),
    };
    let Ok(value) = u64::from_str_radix(digits, radix) else {
        return Err(format!("'{whole}' is not an integer of at most 64 bits"));
    };
    let (unsigned, long) = (suffix.contains('u'), suffix.contains(['l', 'z']));
    if suffix.len() > 3 {
        return Err(format!("'{whole}' has an unknown suffix"));
    }
    // C++ takes the first of these types that holds the number; decimal literals without 'u' are
    // never unsigned.
    let fits = |scalar: Scalar| value as i128 <= scalar.int_range().1;
    let scalar = [Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64].into_iter().find(|scalar| {
        let allowed = if unsigned { !scalar.is_signed() } else { scalar.is_signed() || radix != 10 };
        allowed && fits(*scalar) && (!long || scalar.bytes() == 8)
    });
    Ok(TokenKind::Int { value, scalar: scalar.unwrap_or(Scalar::U64), hex, text: symbol })
}

/// Parses a character literal after its opening quote: its value and its length in bytes.
pub fn char_literal(text: &str) -> (u64, usize) {
    let bytes = text.as_bytes();
    let digits = |from: usize, max_digits: usize, radix: u32| {
        let length = bytes[from..].iter().take(max_digits).take_while(|byte| (**byte as char).is_digit(radix)).count();
        (u64::from_str_radix(&text[from..from + length], radix).unwrap_or(0) & 0xff, from + length)
    };
    match bytes {
        [b'\\', b'x', ..] => digits(2, 8, 16),
        [b'\\', b'0'..=b'7', ..] => digits(1, 3, 8),
        [b'\\', byte, ..] if byte.is_ascii() => {
            let value = match byte {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'a' => 7,
                b'b' => 8,
                b'f' => 12,
                b'v' => 11,
                other => *other,
            };
            (value as u64, 2)
        }
        [b'\\', ..] => (0, 1),
        [byte, ..] if byte.is_ascii() && !matches!(byte, b'\'' | b'\n') => (*byte as u64, 1),
        _ => (0, 0),
    }
}
