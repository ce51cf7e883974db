//! Debug prints: how values are written, the same on every reader.

use crate::Value;

/// A printed line: each `{}` of the format replaced by the next value. Floats have as many digits as tell them apart,
/// in the manner of C's `%.9g` and `%.17g`.
pub fn line(format: &str, values: &[Value]) -> String {
    let mut pieces = format.split("{}");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for (piece, value) in pieces.zip(values) {
        out += &text(*value);
        out += piece;
    }
    out
}

fn text(value: Value) -> String {
    let scalar = value.scalar();
    match scalar {
        _ if scalar.is_float() => general(value.as_f64(), if scalar.bytes() == 8 { 17 } else { 9 }),
        crate::Scalar::U64 => value.bits().to_string(),
        _ => value.as_i64().to_string(),
    }
}

/// C's `%.{digits}g`.
fn general(x: f64, digits: usize) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{:.*e}", digits - 1, x);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    trim(&format!("{:.*}", (digits as i32 - 1 - exponent).max(0) as usize, x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scalar;

    #[test]
    fn floats_are_written_as_c_does() {
        for (x, digits, expected) in [
            (0.0, 9, "0"),
            (-0.0, 9, "-0"),
            (1.5, 9, "1.5"),
            (0.1f32 as f64, 9, "0.100000001"),
            (1e9, 9, "1e+09"),
            (123456789.0, 9, "123456789"),
            (1e-5, 9, "1e-05"),
            (0.0001, 9, "0.0001"),
            (f64::MAX, 17, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, 9, "-inf"),
        ] {
            assert_eq!(general(x, digits), expected);
        }
        let values = [Value::int(Scalar::I8, -3), Value::from_f64(Scalar::F16, 0.5), Value::int(Scalar::Bool, 1)];
        assert_eq!(line("a {} b {}{}!", &values), "a -3 b 0.51!");
    }
}
