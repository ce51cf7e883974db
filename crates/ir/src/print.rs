//! Formatting of debug prints, identical on every backend.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Scalar, Value};

/// Piece of a format string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrintPiece<'a> {
    /// Literal text.
    Text(&'a str),
    /// Placeholder for the next value, with a `printf` conversion such as `5d`. By default a value
    /// is printed with enough digits to be unique.
    Value(Option<&'a str>),
}

/// Splits a format string: `{}` and `{%5d}` are placeholders, `{%{}` is a literal brace, everything
/// else is text.
pub fn print_format_pieces(format: &str) -> Vec<PrintPiece<'_>> {
    let mut all = vec![];
    let (mut from, mut at) = (0, 0);
    while let Some(brace) = format[at..].find('{').map(|n| at + n) {
        let rest = &format[brace + 1..];
        let (piece, bytes) = if rest.starts_with('}') {
            (PrintPiece::Value(None), 1)
        } else if rest.starts_with("%{}") {
            (PrintPiece::Text("{"), 3)
        } else if let Some(end) = rest.find('}').filter(|_| rest.starts_with('%')) {
            (PrintPiece::Value(Some(&rest[1..end])), end + 1)
        } else {
            at = brace + 1;
            continue;
        };
        if from < brace {
            all.push(PrintPiece::Text(&format[from..brace]));
        }
        all.push(piece);
        from = brace + 1 + bytes;
        at = from;
    }
    if from < format.len() {
        all.push(PrintPiece::Text(&format[from..]));
    }
    all
}

/// Converts a C `printf` format for values of the given types; on failure, returns a description of
/// the error.
pub fn print_format_from_printf(text: &str, types: &[Scalar]) -> Result<String, String> {
    let mut format = String::new();
    let mut types = types.iter();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '%' if rest.starts_with('%') => {
                rest = &rest[1..];
                format.push('%');
            }
            '%' => {
                let length =
                    rest.find(|c: char| c.is_ascii_alphabetic() && !"hlzjt".contains(c)).map_or(rest.len(), |n| n + 1);
                let written = &rest[..length];
                rest = &rest[length..];
                let spec = written.replace(['h', 'l', 'z', 'j', 't'], "").replace('i', "d");
                let Some(conversion) = Conversion::of(&spec) else {
                    return Err(format!(
                        "conversion '%{written}' is not supported; expected one of %d %u %x %o %c %f %e %g"
                    ));
                };
                let Some(&scalar) = types.next() else { return Err("fewer values than conversions".into()) };
                if conversion.is_float() != scalar.is_float() {
                    return Err(format!("'%{written}' does not match a value of type {}", scalar.name()));
                }
                let usual = match scalar {
                    Scalar::F64 => ".17g",
                    _ if scalar.is_float() => ".9g",
                    Scalar::U32 | Scalar::U64 => "u",
                    _ => "d",
                };
                format += &if spec == usual { "{}".to_owned() } else { format!("{{%{spec}}}") };
            }
            '{' => format += "{%{}",
            c => format.push(c),
        }
    }
    if types.next().is_some() {
        return Err("more values than conversions".into());
    }
    Ok(format)
}

/// A `printf` conversion specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Conversion {
    left: bool,
    zeros: bool,
    sign: Option<char>,
    marked: bool,
    width: usize,
    precision: Option<usize>,
    letter: char,
}

impl Conversion {
    /// Parses the characters after the `%`, without length modifiers.
    fn of(spec: &str) -> Option<Conversion> {
        let letter = spec.chars().last().filter(|c| "duxXocfFeEgG".contains(*c))?;
        // For other conversions, `#` changes decimal points and trailing zeros; not supported.
        if spec.contains('#') && !"xX".contains(letter) {
            return None;
        }
        let flags = spec.len() - spec.trim_start_matches(['-', '+', ' ', '#', '0']).len();
        let (flags, numbers) = spec[..spec.len() - 1].split_at_checked(flags)?;
        let (width, precision) = match numbers.split_once('.') {
            Some((width, precision)) => (width, Some(precision)),
            None => (numbers, None),
        };
        // Limit on width and precision.
        let number = |text: &str| match text {
            "" => Some(0),
            text => text.parse().ok().filter(|n| *n <= 100 && text.bytes().all(|b| b.is_ascii_digit())),
        };
        let sign = if flags.contains('+') { Some('+') } else { flags.contains(' ').then_some(' ') };
        Some(Conversion {
            left: flags.contains('-'),
            zeros: flags.contains('0'),
            sign,
            marked: flags.contains('#'),
            width: number(width)?,
            precision: precision.map(number).map_or(Some(None), |n| n.map(Some))?,
            letter,
        })
    }

    fn is_float(self) -> bool {
        "fFeEgG".contains(self.letter)
    }

    fn text(self, value: Value) -> String {
        let (sign, digits) = if self.is_float() { self.float(value.as_f64()) } else { self.int(value) };
        let missing = self.width.saturating_sub(sign.len() + digits.chars().count());
        // With a precision, integers are not zero-padded; neither are infinity and NaN.
        let zeros = self.zeros
            && !self.left
            && digits.ends_with(|c: char| c.is_ascii_hexdigit())
            && self.letter != 'c'
            && (self.is_float() || self.precision.is_none())
            && !digits.starts_with(['i', 'I', 'n', 'N']);
        match (self.left, zeros) {
            (true, _) => format!("{sign}{digits}{}", " ".repeat(missing)),
            (_, true) => format!("{sign}{}{digits}", "0".repeat(missing)),
            _ => format!("{}{sign}{digits}", " ".repeat(missing)),
        }
    }

    fn signed(self, negative: bool) -> String {
        if negative { "-".into() } else { self.sign.map(String::from).unwrap_or_default() }
    }

    fn int(self, value: Value) -> (String, String) {
        // Integer promotion as in C.
        let wide = value.scalar().bytes() == 8;
        let bits = if wide { value.bits() } else { value.as_i64() as u32 as u64 };
        let signed = if wide { bits as i64 } else { bits as u32 as i32 as i64 };
        let (sign, digits) = match self.letter {
            'c' => {
                let shown = char::from(bits as u8);
                return (
                    String::new(),
                    if shown.is_ascii() && (!shown.is_control() || shown == '\t') { shown } else { '?' }.into(),
                );
            }
            'd' => (self.signed(signed < 0), signed.unsigned_abs().to_string()),
            'u' => (String::new(), bits.to_string()),
            'o' => (String::new(), format!("{bits:o}")),
            'X' => (if self.marked && bits != 0 { "0X" } else { "" }.to_owned(), format!("{bits:X}")),
            _ => (if self.marked && bits != 0 { "0x" } else { "" }.to_owned(), format!("{bits:x}")),
        };
        if bits == 0 && self.precision == Some(0) {
            return (sign, String::new());
        }
        let fill = self.precision.unwrap_or(1).saturating_sub(digits.len());
        (sign, "0".repeat(fill) + &digits)
    }

    fn float(self, x: f64) -> (String, String) {
        let precision = self.precision.unwrap_or(6);
        let size = x.abs();
        let digits = match self.letter {
            _ if !x.is_finite() => general(size, 1),
            'f' | 'F' => format!("{size:.precision$}"),
            'e' | 'E' => {
                let scientific = format!("{size:.precision$e}");
                let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
                exponential(mantissa, exponent.parse().unwrap_or(0))
            }
            _ => general(size, precision.max(1)),
        };
        let negative = x.is_sign_negative() && !x.is_nan();
        (self.signed(negative), if self.letter.is_ascii_uppercase() { digits.to_uppercase() } else { digits })
    }
}

/// Checks a format string against the types of its values; returns a description of the error.
pub fn check_print_format(format: &str, types: &[Scalar]) -> Option<String> {
    let holes: Vec<Option<&str>> = print_format_pieces(format)
        .into_iter()
        .filter_map(|piece| if let PrintPiece::Value(spec) = piece { Some(spec) } else { None })
        .collect();
    if holes.len() != types.len() || types.len() > 16 {
        return Some(format!(
            "a print has {} values for {} placeholders; at most 16 are supported",
            types.len(),
            holes.len()
        ));
    }
    if format.chars().any(|c| c.is_control() || c == '"' || c == '\\') || format.len() > 200 {
        return Some(
            "a print format cannot contain quotes, backslashes or control characters, or exceed 200 bytes".into(),
        );
    }
    holes.iter().zip(types).find_map(|(spec, scalar)| {
        let wrong = spec.filter(|spec| Conversion::of(spec).is_none_or(|of| of.is_float() != scalar.is_float()));
        wrong.map(|spec| format!("'%{spec}' does not match a value of type {}", scalar.name()))
    })
}

static PRINTS_TO_STDERR: AtomicBool = AtomicBool::new(false);

/// Prints of kernels go to stderr from now on, so that stdout holds the program's output only.
pub fn print_to_stderr() {
    PRINTS_TO_STDERR.store(true, Ordering::Relaxed);
}

/// Writes a line that a kernel prints. Errors, such as a closed stdout, are ignored.
pub fn write_print_line(line: &str) {
    let _ = match PRINTS_TO_STDERR.load(Ordering::Relaxed) {
        true => writeln!(std::io::stderr(), "{line}"),
        false => writeln!(std::io::stdout(), "{line}"),
    };
}

/// Formats a line: each placeholder is replaced by the next value. By default, floats are printed
/// like C's `%.9g` (f32) or `%.17g` (f64), which round-trip.
pub fn format_print_line(format: &str, values: &[Value]) -> String {
    let mut values = values.iter();
    let mut out = String::new();
    for piece in print_format_pieces(format) {
        match (piece, values.as_slice().first()) {
            (PrintPiece::Text(text), _) => out += text,
            (PrintPiece::Value(_), None) => {}
            (PrintPiece::Value(spec), Some(value)) => {
                values.next();
                out +=
                    &spec.and_then(Conversion::of).map_or_else(|| text(*value), |conversion| conversion.text(*value));
            }
        }
    }
    out
}

fn text(value: Value) -> String {
    let scalar = value.scalar();
    match scalar {
        _ if scalar.is_float() => general(value.as_f64(), if scalar.bytes() == 8 { 17 } else { 9 }),
        Scalar::U64 => value.bits().to_string(),
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
        return exponential(&trim(mantissa), exponent);
    }
    trim(&format!("{:.*}", (digits as i32 - 1 - exponent).max(0) as usize, x))
}

fn exponential(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_formatted_like_printf() {
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
        assert_eq!(format_print_line("a {} b {}{}!", &values), "a -3 b 0.51!");
    }

    #[test]
    fn conversions_match_printf() {
        let int = |n: i64| Value::int(Scalar::I32, n);
        let float = |x: f64| Value::from_f64(Scalar::F64, x);
        // Expected output of glibc's printf.
        for (c, value, expected) in [
            ("%5d|", int(-42), "  -42|"),
            ("%-5d|", int(42), "42   |"),
            ("%05d", int(-42), "-0042"),
            ("%+d", int(7), "+7"),
            ("% i", int(7), " 7"),
            ("%.4d", int(7), "0007"),
            ("%06.4d", int(7), "  0007"),
            ("%u", int(-1), "4294967295"),
            ("%x", int(255), "ff"),
            ("%#06X", int(255), "0X00FF"),
            ("%o", int(-1), "37777777777"),
            ("[%3.0d]", int(0), "[   ]"),
            ("%c%%", int(97), "a%"),
            ("%lld", Value::int(Scalar::I64, i64::MIN), "-9223372036854775808"),
            ("%llx", Value::int(Scalar::I64, -1), "ffffffffffffffff"),
            ("%d", Value::int(Scalar::U32, 0xffff_ffff), "-1"),
            ("%u", Value::int(Scalar::I8, -1), "4294967295"),
            ("%f", float(12345.6789), "12345.678900"),
            ("%.2f", float(0.005), "0.01"),
            ("%08.3f", float(-4.14159), "-004.142"),
            ("%e", float(12345.678), "1.234568e+04"),
            ("%.0e", float(0.00025), "3e-04"),
            ("%E", float(0.0), "0.000000E+00"),
            ("%g", float(0.0001), "0.0001"),
            ("%g", float(1e-5), "1e-05"),
            ("%.3g|", float(1234567.0), "1.23e+06|"),
            ("%6.1f", float(f64::INFINITY), "   inf"),
            ("%06F", float(f64::NEG_INFINITY), "  -INF"),
            ("{}{%d}", int(3), "{}{3}"),
        ] {
            let format = print_format_from_printf(c, &[value.scalar()]).unwrap();
            assert_eq!(check_print_format(&format, &[value.scalar()]), None, "{format}");
            assert_eq!(format_print_line(&format, &[value]), expected, "{c}");
        }
        for (c, types) in [
            ("%s", &[Scalar::I32][..]),
            ("%d", &[Scalar::F32]),
            ("%g", &[Scalar::I32]),
            ("%d", &[]),
            ("", &[Scalar::I32]),
            ("%999d", &[Scalar::I32]),
            ("%#g", &[Scalar::F32]),
            ("%", &[Scalar::I32]),
            ("%5.é", &[Scalar::I32]),
        ] {
            assert!(print_format_from_printf(c, types).is_err(), "{c}");
        }
    }
}
