//! Names as text and back.
//!
//! Lockspace and lock names are byte strings: NUL, newlines, quotes and invalid UTF-8 may all
//! occur. One escape serves every text form, so that what is printed can be pasted back as an
//! argument: a byte is shown as `\xHH` unless it is printable ASCII other than `"` and `\`, or
//! part of a letter or digit in valid UTF-8. Different names therefore never look alike (BL-106),
//! and a name never reaches the terminal as a control sequence.

use serde::Serialize;

/// A name in JSON: the text, the bytes in hexadecimal, and whether the text is the escaped form.
///
/// `text` is the name itself where it is valid UTF-8 (JSON has its own escapes), else its escape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct JsonName {
    /// The name, or its `\xHH` form if it is not UTF-8.
    pub(crate) name: String,
    /// Its bytes, two digits each.
    pub(crate) name_hex: String,
    /// Whether `name` holds escapes because the bytes are not UTF-8.
    pub(crate) name_escaped: bool,
}

impl JsonName {
    /// The JSON form of a name.
    pub(crate) fn new(name: &[u8]) -> Self {
        let utf8 = std::str::from_utf8(name);
        Self {
            name: utf8.map_or_else(|_| escape(name), str::to_owned),
            name_hex: hex(name, ""),
            name_escaped: utf8.is_err(),
        }
    }
}

/// The text form of a name; [`unescape`] is its inverse.
pub(crate) fn escape(name: &[u8]) -> String {
    escape_unless(name, |c| matches!(c, ' '..='~') && c != '"' && c != '\\')
}

/// Text that others wrote (labels, program names, log lines), safe to show on a terminal: as
/// [`escape`], but quotes and backslashes stay.
pub(crate) fn printable(text: &str) -> String {
    escape_unless(text.as_bytes(), |c| matches!(c, ' '..='~' | '\t'))
}

fn escape_unless(bytes: &[u8], plain: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if plain(c) || (!c.is_ascii() && c.is_alphanumeric()) {
                text.push(c);
            } else {
                push_escaped(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        push_escaped(&mut text, chunk.invalid());
    }
    text
}

fn push_escaped(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// The bytes of a name written by a person or by [`escape`]: `\xHH` is a byte, `\\` a backslash.
///
/// # Errors
/// A sentence naming the place, if a backslash begins anything else.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            name.push(byte);
        } else if let Some((b'\\', after)) = rest.split_first() {
            name.push(b'\\');
            rest = after;
        } else if let Some(value) =
            rest.strip_prefix(b"x").and_then(|digits| digits.get(..2)).and_then(hex_byte)
        {
            name.push(value);
            rest = &rest[3..];
        } else {
            let place = text.len() - rest.len();
            return Err(format!(
                "character {place} of the name is a backslash: write \\\\ for a backslash, or \
                 \\xHH for a byte by its two hexadecimal digits"
            ));
        }
    }
    Ok(name)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |d: u8| char::from(d).to_digit(16);
    let value = digit(*digits.first()?)? * 16 + digit(*digits.get(1)?)?;
    u8::try_from(value).ok()
}

/// Bytes in hexadecimal, two digits each, with a separator between them.
pub(crate) fn hex(bytes: &[u8], separator: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(separator)
}

/// Whether the old formats print this name as `str` rather than `hex` (libdlm-abi.md 4.8).
pub(crate) fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_person_can_read_stays_as_it_is() {
        for name in ["orders", "a b", "a/b", "-x", "Übergröße", "注文", "%s{}$'`"] {
            assert_eq!(escape(name.as_bytes()), name);
        }
    }

    #[test]
    fn odd_bytes_are_escaped() {
        let table: [(&[u8], &str); 9] = [
            (b"", ""),
            (b"a\0b", r"a\x00b"),
            (b"a\nb", r"a\x0ab"),
            (b"say \"hi\"", r"say \x22hi\x22"),
            (br"a\b", r"a\x5cb"),
            (b"\xff\xfe", r"\xff\xfe"),
            (b"\x1b[2J", r"\x1b[2J"),
            ("\u{202e}x".as_bytes(), r"\xe2\x80\xaex"),
            (b"caf\xc3", r"caf\xc3"),
        ];
        for (name, text) in table {
            assert_eq!(escape(name), text);
            assert_eq!(unescape(text.as_bytes()).as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_backslash_is_itself_only_when_doubled() {
        assert_eq!(unescape(br"a\\b").as_deref(), Ok(&br"a\b"[..]));
        assert_eq!(unescape(br"\x5C\x5c").as_deref(), Ok(&br"\\"[..]));
        for bad in [&br"a\b"[..], br"\", br"\x", br"\x1", br"\x1g", br"\X41"] {
            let sentence = unescape(bad).expect_err("refused");
            assert!(sentence.contains("backslash"), "{sentence}");
        }
        assert!(unescape(br"ab\q").expect_err("refused").starts_with("character 3"));
    }

    #[test]
    fn json_has_the_name_itself_where_it_is_utf8_and_the_bytes_always() {
        let utf8 = JsonName::new(b"a\"\n\\x");
        assert_eq!((utf8.name.as_str(), utf8.name_escaped), ("a\"\n\\x", false));
        let odd = JsonName::new(b"\\\xff");
        assert_eq!((odd.name.as_str(), odd.name_hex.as_str()), (r"\x5c\xff", "5cff"));
        assert!(odd.name_escaped);
    }

    proptest! {
        #[test]
        fn every_name_survives_text(name in proptest::collection::vec(any::<u8>(), 0..65)) {
            let text = escape(&name);
            prop_assert!(!text.contains(|c: char| c.is_control() || c == '"'));
            prop_assert_eq!(unescape(text.as_bytes()), Ok(name));
        }

        #[test]
        fn letters_of_any_script_survive_text(name in "\\PC{0,16}") {
            prop_assert_eq!(unescape(escape(name.as_bytes()).as_bytes()), Ok(name.into_bytes()));
        }

        #[test]
        fn any_text_is_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(name) = unescape(&text) {
                prop_assert_eq!(unescape(escape(&name).as_bytes()), Ok(name));
            }
        }

        #[test]
        fn json_is_valid_for_every_name(name in proptest::collection::vec(any::<u8>(), 0..65)) {
            let json = serde_json::to_string(&JsonName::new(&name)).expect("a document");
            let back: serde_json::Value = serde_json::from_str(&json).expect("valid");
            prop_assert_eq!(&back["name_hex"], &hex(&name, ""));
        }
    }
}
