//! Integer expressions over the sizes of a task, such as `(n + 255) / 256`.

use std::collections::BTreeMap;

/// Sizes of a drawn shape, by name.
pub type Sizes = BTreeMap<String, i64>;

/// Maximum nesting of parentheses.
const MAX_DEPTH: usize = 32;

/// Evaluates an expression: integers, names of sizes, `+ - * / %`, parentheses, `min` and `max`.
/// Division truncates.
pub fn evaluate(text: &str, sizes: &Sizes) -> Result<i64, String> {
    let mut parser = Parser { text, at: 0, sizes, depth: 0 };
    let value = parser.sum().and_then(|value| match parser.peek() {
        None => Ok(value),
        Some(found) => Err(format!("unexpected '{found}'")),
    });
    value.map_err(|why| format!("expression '{text}': {why}"))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    sizes: &'a Sizes,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn accept(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.at += expected.len_utf8();
        }
        found
    }

    fn expect(&mut self, expected: char) -> Result<(), String> {
        if self.accept(expected) { Ok(()) } else { Err(format!("'{expected}' is missing")) }
    }

    /// Longest prefix of characters that satisfy a predicate.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let word: String = rest.chars().take_while(|&c| belongs(c)).collect();
        self.at += word.len();
        word
    }

    fn sum(&mut self) -> Result<i64, String> {
        let mut value = self.product()?;
        loop {
            let sum = if self.accept('+') {
                value.checked_add(self.product()?)
            } else if self.accept('-') {
                value.checked_sub(self.product()?)
            } else {
                return Ok(value);
            };
            value = sum.ok_or("64-bit overflow")?;
        }
    }

    fn product(&mut self) -> Result<i64, String> {
        let mut value = self.operand()?;
        loop {
            let product = if self.accept('*') {
                value.checked_mul(self.operand()?)
            } else if self.accept('/') {
                value.checked_div(self.divisor()?)
            } else if self.accept('%') {
                value.checked_rem(self.divisor()?)
            } else {
                return Ok(value);
            };
            value = product.ok_or("64-bit overflow")?;
        }
    }

    fn divisor(&mut self) -> Result<i64, String> {
        match self.operand()? {
            0 => Err("division by 0".into()),
            divisor => Ok(divisor),
        }
    }

    fn operand(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} deep"));
        }
        let value = match self.peek() {
            Some('(') => {
                self.at += 1;
                let value = self.sum()?;
                self.expect(')')?;
                Ok(value)
            }
            Some('-') => {
                self.at += 1;
                self.operand()?.checked_neg().ok_or("64-bit overflow".into())
            }
            Some('0'..='9') => {
                let digits = self.word(|c| c.is_ascii_digit());
                digits.parse().map_err(|_| format!("{digits} does not fit in 64 bits"))
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let name = self.word(|c| c.is_alphanumeric() || c == '_');
                match name.as_str() {
                    "min" | "max" if self.accept('(') => {
                        let a = self.sum()?;
                        self.expect(',')?;
                        let b = self.sum()?;
                        self.expect(')')?;
                        Ok(if name == "min" { a.min(b) } else { a.max(b) })
                    }
                    _ => self.sizes.get(&name).copied().ok_or_else(|| {
                        let known: Vec<&str> = self.sizes.keys().map(String::as_str).collect();
                        format!("unknown size '{name}'; the sizes are [{}]", known.join(", "))
                    }),
                }
            }
            Some(other) => Err(format!("unexpected '{other}'")),
            None => Err("it ends too early".into()),
        };
        self.depth -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_follow_the_rules_of_c() {
        let sizes = Sizes::from([("n".into(), 1000), ("tile_2".into(), 16)]);
        for (text, expected) in [
            ("n", 1000),
            ("(n + 255) / 256", 4),
            (" 2*3+4 ", 10),
            ("2 + 3 * 4 - 5 % 3", 12),
            ("-(n - 1)", -999),
            ("min(n, tile_2 * tile_2)", 256),
            ("max(1, n / 2000)", 1),
        ] {
            assert_eq!(evaluate(text, &sizes), Ok(expected), "{text}");
        }
        for (text, what) in [
            ("m", "unknown size 'm'"),
            ("n / 0", "division by 0"),
            ("n +", "ends too early"),
            ("(n", "')' is missing"),
            ("n n", "unexpected 'n'"),
            ("9223372036854775807 + 1", "overflow"),
            ("99999999999999999999", "does not fit"),
            ("n & 1", "unexpected '&'"),
        ] {
            let error = evaluate(text, &sizes).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert!(evaluate(&"(".repeat(1000), &sizes).unwrap_err().contains("nested"));
    }
}
