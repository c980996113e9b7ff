//! Walking over JSON text, strictly as RFC 8259 has it.

use super::{Bad, Reason, Result};

/// How deep objects and lists may lie in each other.
pub const MAX_DEPTH: usize = 128;

/// A place in a JSON text. All of the text is UTF-8; what is between two ASCII bytes is so too.
pub struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

/// A string: as it stands in the text, or unescaped into the caller's scratch.
pub enum Text<'a> {
    Plain(&'a str),
    Unescaped,
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Cursor {
            text,
            bytes: text.as_bytes(),
            at: 0,
            depth: 0,
        }
    }

    #[cold]
    pub fn wrong(&self, expected: &str) -> Bad {
        let detail = match self.text[self.at..].chars().next() {
            Some(found) => format!("{found:?} at byte {}, where {expected} belongs", self.at),
            None => format!("it ends at byte {}, where {expected} belongs", self.at),
        };
        Bad::new(Reason::NotJson, detail)
    }

    /// The next byte that is no white space.
    #[inline]
    pub fn peek(&mut self) -> Result<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(self.wrong("a value"))
    }

    #[inline]
    pub fn expect(&mut self, byte: u8, name: &str) -> Result<()> {
        if self.peek()? != byte {
            return Err(self.wrong(name));
        }
        self.at += 1;
        Ok(())
    }

    /// Nothing but white space may be left.
    pub fn end(&mut self) -> Result<()> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => Err(self.wrong("the end")),
        }
    }

    /// One level deeper.
    #[inline]
    pub fn enter(&mut self) -> Result<()> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let detail = format!("objects and lists lie more than {MAX_DEPTH} deep in each other");
            return Err(Bad::new(Reason::TooDeep, detail));
        }
        Ok(())
    }

    /// After an element: whether another follows; passes the comma or the closing byte.
    #[inline]
    pub fn more(&mut self, close: u8) -> Result<bool> {
        match self.peek()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ => Err(self.wrong(if close == b'}' {
                "a comma or the object's end"
            } else {
                "a comma or the list's end"
            })),
        }
    }

    /// At the first element: whether there is none; passes the closing byte then.
    #[inline]
    pub fn is_empty(&mut self, close: u8) -> Result<bool> {
        if self.peek()? != close {
            return Ok(false);
        }
        self.at += 1;
        self.depth -= 1;
        Ok(true)
    }

    /// The name of a field, and the colon after it.
    #[inline]
    pub fn name(&mut self, scratch: &mut Vec<u8>) -> Result<Text<'a>> {
        if self.peek()? != b'"' {
            return Err(self.wrong("a field's name"));
        }
        let name = self.string(scratch)?;
        self.expect(b':', "a colon")?;
        Ok(name)
    }

    /// If the next name is exactly this one, followed by a colon, pass both.
    #[inline]
    pub fn pass_name(&mut self, name: &[u8]) -> Result<bool> {
        if self.peek()? != b'"' {
            return Err(self.wrong("a field's name"));
        }
        let start = self.at + 1;
        let end = start + name.len();
        let same = self.bytes.get(end) == Some(&b'"') && &self.bytes[start..end] == name;
        if same {
            self.at = end + 1;
            self.expect(b':', "a colon")?;
        }
        Ok(same)
    }

    /// A string; the cursor is at its first quote. One with escapes goes to `scratch`, which is emptied first.
    #[inline]
    pub fn string(&mut self, scratch: &mut Vec<u8>) -> Result<Text<'a>> {
        let start = self.at + 1;
        self.at = start;
        self.run()?;
        if self.bytes[self.at] == b'"' {
            self.at += 1;
            return Ok(Text::Plain(&self.text[start..self.at - 1]));
        }
        scratch.clear();
        self.unescape(start, Some(scratch))?;
        Ok(Text::Unescaped)
    }

    /// Go to the next quote or backslash.
    #[inline]
    fn run(&mut self) -> Result<()> {
        loop {
            let Some(chunk) = self.bytes[self.at..].first_chunk::<8>() else {
                break;
            };
            let word = u64::from_le_bytes(*chunk);
            let has = |byte: u8| {
                let x = word ^ (ONES * u64::from(byte));
                x.wrapping_sub(ONES) & !x
            };
            let small = word.wrapping_sub(ONES * 0x20) & !word;
            let hit = (has(b'"') | has(b'\\') | small) & HIGH;
            if hit != 0 {
                self.at += (hit.trailing_zeros() / 8) as usize;
                break;
            }
            self.at += 8;
        }
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' | b'\\' => return Ok(()),
                0..0x20 => return Err(self.wrong("no control character")),
                _ => self.at += 1,
            }
        }
        Err(self.wrong("the string's end"))
    }

    /// From the first backslash of a string that began at `start`, to after its end.
    #[cold]
    fn unescape(&mut self, start: usize, mut out: Option<&mut Vec<u8>>) -> Result<()> {
        let mut from = start;
        loop {
            if let Some(out) = out.as_deref_mut() {
                out.extend_from_slice(&self.bytes[from..self.at]);
            }
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Ok(());
            }
            let character = self.escape()?;
            if let Some(out) = out.as_deref_mut() {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            from = self.at;
            self.run()?;
        }
    }

    fn escape(&mut self) -> Result<char> {
        self.at += 1;
        let found = match self.bytes.get(self.at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return Err(self.wrong("an escape")),
        };
        self.at += 1;
        Ok(found)
    }

    fn code_point(&mut self) -> Result<char> {
        let first = self.four_digits()?;
        let code = match first {
            0xd800..0xdc00 if self.bytes[self.at..].starts_with(b"\\u") => {
                self.at += 1;
                match self.four_digits()? {
                    second @ 0xdc00..0xe000 => {
                        0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => first,
                }
            }
            _ => first,
        };
        char::from_u32(code).ok_or_else(|| {
            let detail = format!("half a surrogate pair before byte {}", self.at);
            Bad::new(Reason::NotJson, detail)
        })
    }

    /// The cursor is at the `u`.
    fn four_digits(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            self.at += 1;
            let digit = self.bytes.get(self.at).map(|&b| char::from(b));
            match digit.and_then(|digit| digit.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => return Err(self.wrong("a hexadecimal digit")),
            }
        }
        self.at += 1;
        Ok(code)
    }

    /// The text of a number; the cursor is at its first byte, a digit or a minus.
    #[inline]
    pub fn number(&mut self) -> Result<&'a str> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.wrong("a digit")),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    #[inline]
    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<()> {
        let start = self.at;
        self.digits();
        if self.at == start {
            return Err(self.wrong("a digit"));
        }
        Ok(())
    }

    /// `true`, `false` or `null`.
    #[inline]
    pub fn literal(&mut self, word: &str) -> Result<()> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// What kind of value comes next, for people.
    #[cold]
    pub fn found(&mut self) -> Result<&'static str> {
        Ok(match self.peek()? {
            b'{' => "an object",
            b'[' => "a list",
            b'"' => "a string",
            b't' | b'f' => "a boolean",
            b'n' => "null",
            b'-' | b'0'..=b'9' => "a number",
            _ => return Err(self.wrong("a value")),
        })
    }

    /// Walk over a value, checking it, and give it as it stands in the text.
    pub fn raw_value(&mut self) -> Result<&'a str> {
        self.peek()?;
        let start = self.at;
        self.skip_value()?;
        Ok(&self.text[start..self.at])
    }

    /// Walk over a value, checking it.
    pub fn skip_value(&mut self) -> Result<()> {
        let floor = self.depth;
        let mut objects: u128 = 0; // a bit per level: whether it is an object
        'value: loop {
            match self.peek()? {
                b'"' => self.skip_string()?,
                b'-' | b'0'..=b'9' => {
                    self.number()?;
                }
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                open @ (b'{' | b'[') => {
                    self.enter()?;
                    objects = objects << 1 | u128::from(open == b'{');
                    let close = if open == b'{' { b'}' } else { b']' };
                    if !self.is_empty(close)? {
                        if open == b'{' {
                            self.skip_name()?;
                        }
                        continue 'value;
                    }
                    objects >>= 1;
                }
                _ => return Err(self.wrong("a value")),
            }
            while self.depth > floor {
                let object = objects & 1 == 1;
                if self.more(if object { b'}' } else { b']' })? {
                    if object {
                        self.skip_name()?;
                    }
                    continue 'value;
                }
                objects >>= 1;
            }
            return Ok(());
        }
    }

    #[inline]
    fn skip_string(&mut self) -> Result<()> {
        let start = self.at + 1;
        self.at = start;
        self.run()?;
        if self.bytes[self.at] == b'"' {
            self.at += 1;
            return Ok(());
        }
        self.unescape(start, None)
    }

    fn skip_name(&mut self) -> Result<()> {
        if self.peek()? != b'"' {
            return Err(self.wrong("a field's name"));
        }
        self.skip_string()?;
        self.expect(b':', "a colon")
    }
}
