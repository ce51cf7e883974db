//! Byte-to-character mapping of byte-level vocabularies in text files (GPT-2's `bytes_to_unicode`).
//!
//! Bytes that are printable in Latin-1 map to themselves, the others to the characters from U+0100
//! on, in order.

/// Returns the bytes in the order of their characters, which is the order of GPT-2's first 256
/// tokens.
pub(super) fn bytes_in_order() -> impl Iterator<Item = u8> {
    (0..=255).filter(|&byte| printable(byte)).chain((0..=255).filter(|&byte| !printable(byte)))
}

fn printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The mapping in both directions.
pub(super) struct ByteAlphabet {
    chars: [char; 256],
    /// By code point; all are below 0x144.
    bytes: [Option<u8>; 0x144],
}

impl ByteAlphabet {
    pub(super) fn new() -> ByteAlphabet {
        let mut alphabet = ByteAlphabet { chars: ['\0'; 256], bytes: [None; 0x144] };
        let mut next = 0x100;
        for byte in 0..=255u8 {
            let code = if printable(byte) {
                byte as u32
            } else {
                next += 1;
                next - 1
            };
            alphabet.chars[byte as usize] = char::from_u32(code).unwrap_or_default();
            alphabet.bytes[code as usize] = Some(byte);
        }
        alphabet
    }

    pub(super) fn text(&self, bytes: &[u8]) -> String {
        bytes.iter().map(|&byte| self.chars[byte as usize]).collect()
    }

    /// Returns the bytes of a text; `None` if it has characters outside the mapping.
    pub(super) fn bytes(&self, text: &str) -> Option<Vec<u8>> {
        text.chars().map(|char| self.bytes.get(char as usize).copied().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_is_bijective() {
        let alphabet = ByteAlphabet::new();
        let all: Vec<u8> = (0..=255).collect();
        let text = alphabet.text(&all);
        assert_eq!(alphabet.bytes(&text).as_deref(), Some(&all[..]));
        assert_eq!(alphabet.text(b"a b\n"), "aĠbĊ");
        assert_eq!(alphabet.bytes("日"), None);
        let order: Vec<u8> = bytes_in_order().collect();
        assert!(order.is_sorted_by_key(|&byte| alphabet.text(&[byte])));
    }
}
