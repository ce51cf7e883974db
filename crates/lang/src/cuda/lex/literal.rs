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
        // A sign after any of these letters, so that `0xe+1` is one invalid token, as in C++.
        let exponent = matches!(before, b'e' | b'E' | b'p' | b'P');
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let separates = byte == b'\'' && *at > start && bytes.get(*at + 1).copied().is_some_and(is_letter);
        if !(is_letter(byte) || byte == b'.' || separates || matches!(byte, b'+' | b'-') && exponent) {
            break;
        }
        *at += 1;
    }
    let whole = text[start..*at].replace('\'', "");
    let symbol = names.intern(&text[start..*at]);
    let float = |bits: u64, scalar| Ok(TokenKind::Float { bits, scalar, text: symbol });
    let lower = whole.to_ascii_lowercase();
    let is_float = !hex && !binary && (lower.contains('.') || lower.contains('e'));
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
    let is_digit = |c: char| if hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let prefix = if hex || binary { 2 } else { 0 };
    let digits = &lower[..prefix + lower[prefix..].find(|c| !is_digit(c)).unwrap_or(lower.len() - prefix)];
    let suffix = &lower[digits.len()..];
    let (radix, digits) = match () {
        () if hex => (16, &digits[2..]),
        () if binary => (2, &digits[2..]),
        () if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        () => (10, digits),
    };
    let is_known = matches!(suffix, "" | "u" | "l" | "ul" | "lu" | "ll" | "ull" | "llu" | "z" | "uz" | "zu");
    if !digits.is_empty() && (!is_known || whole.contains("lL") || whole.contains("Ll")) {
        return Err(format!("'{whole}' has an unknown suffix"));
    }
    let Ok(value) = u64::from_str_radix(digits, radix) else {
        return Err(format!("'{whole}' is not an integer of at most 64 bits"));
    };
    let (unsigned, long) = (suffix.contains('u'), suffix.contains(['l', 'z']));
    // C++ takes the first of these types that holds the number; decimal literals without 'u' are
    // never unsigned.
    let fits = |scalar: Scalar| value as i128 <= scalar.int_range().1;
    let scalar = [Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64].into_iter().find(|scalar| {
        let allowed = if unsigned { !scalar.is_signed() } else { scalar.is_signed() || radix != 10 };
        allowed && fits(*scalar) && (!long || scalar.bytes() == 8)
    });
    Ok(TokenKind::Int { value, scalar: scalar.unwrap_or(Scalar::U64), hex, text: symbol })
}

/// Parses a character literal after its opening quote: its value, or an error message, and its
/// length in bytes.
pub fn char_literal(text: &str) -> (Result<u64, String>, usize) {
    let bytes = text.as_bytes();
    let digits = |from: usize, max_digits: usize, radix: u32| {
        let length = bytes[from..].iter().take(max_digits).take_while(|byte| (**byte as char).is_digit(radix)).count();
        let value = u64::from_str_radix(&text[from..from + length], radix).ok().filter(|value| *value <= 0xff);
        let what = || format!("the escape sequence '{}' is not a character", &text[..from + length]);
        (value.ok_or_else(what), from + length)
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
                b'\\' | b'\'' | b'"' | b'?' => *byte,
                _ => return (Err(format!("unknown escape sequence '{}'", &text[..2])), 2),
            };
            (Ok(value as u64), 2)
        }
        [b'\\', ..] => (Ok(0), 1),
        [byte, ..] if byte.is_ascii() && !matches!(byte, b'\'' | b'\n') => (Ok(*byte as u64), 1),
        _ => (Ok(0), 0),
    }
}
