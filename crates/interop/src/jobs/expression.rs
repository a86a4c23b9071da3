//! Evaluates arithmetic expressions in option values.

use super::suffix::suffix;

/// Maximum nesting depth of parentheses.
const DEEPEST: usize = 64;

/// Evaluates an expression of whole numbers, `+ - * / % ^` and parentheses. Numbers may have size suffixes.
///
/// # Errors
/// The reason, without quoting the expression.
pub(super) fn evaluate(text: &str, kb_base: u64) -> Result<i128, String> {
    let mut reader = Reader { rest: text.trim_start(), kb_base, depth: 0 };
    let value = reader.sum()?;
    if reader.rest.is_empty() { Ok(value) } else { Err(format!("{:?} is one too many", reader.rest)) }
}

struct Reader<'a> {
    rest: &'a str,
    kb_base: u64,
    depth: usize,
}

impl Reader<'_> {
    fn take(&mut self, signs: &[char]) -> Option<char> {
        let sign = self.rest.chars().next().filter(|sign| signs.contains(sign))?;
        self.rest = self.rest[sign.len_utf8()..].trim_start();
        Some(sign)
    }

    fn sum(&mut self) -> Result<i128, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.take(&['+', '-']) {
            let next = self.product()?;
            let sum = if sign == '+' { value.checked_add(next) } else { value.checked_sub(next) };
            value = sum.ok_or_else(too_large)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i128, String> {
        let mut value = self.power()?;
        while let Some(sign) = self.take(&['*', '/', '%']) {
            let next = self.power()?;
            let product = match sign {
                '*' => value.checked_mul(next).ok_or_else(too_large)?,
                _ if next == 0 => return Err("it divides by 0".into()),
                '/' => value.checked_div(next).ok_or_else(too_large)?,
                _ => value.checked_rem(next).ok_or_else(too_large)?,
            };
            value = product;
        }
        Ok(value)
    }

    fn power(&mut self) -> Result<i128, String> {
        let base = self.one()?;
        if self.take(&['^']).is_none() {
            return Ok(base);
        }
        self.deeper()?;
        let exponent = self.power()?;
        self.depth -= 1;
        u32::try_from(exponent).ok().and_then(|exponent| base.checked_pow(exponent)).ok_or_else(too_large)
    }

    fn one(&mut self) -> Result<i128, String> {
        if self.take(&['(']).is_some() {
            self.deeper()?;
            let value = self.sum()?;
            self.depth -= 1;
            return self.take(&[')']).map(|_| value).ok_or_else(|| "a parenthesis is not closed".into());
        }
        if self.take(&['-']).is_some() {
            self.deeper()?;
            let value = self.one()?;
            self.depth -= 1;
            return value.checked_neg().ok_or_else(too_large);
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let value = number(word, self.kb_base)?;
        self.rest = rest.trim_start();
        Ok(value)
    }

    fn deeper(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(format!("it is nested deeper than {DEEPEST}")) } else { Ok(()) }
    }
}

fn number(word: &str, kb_base: u64) -> Result<i128, String> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (digits, letters) = word.split_at(end);
    let refuse = || format!("{word:?} is not a number");
    let number: i128 = digits.parse().map_err(|_| refuse())?;
    let unit = suffix(letters, kb_base).ok_or_else(refuse)?;
    number.checked_mul(unit.into()).ok_or_else(too_large)
}

fn too_large() -> String {
    "it is larger than any number".into()
}
