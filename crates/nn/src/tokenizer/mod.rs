//! Text to tokens and back.
//!
//! A [`Tokenizer`] is byte-level byte-pair encoding: text is [split](Split) into words, each word's bytes are merged by a
//! list of merges. Plain bytes are the case with no merges. Any text can be encoded and comes back exactly.
//!
//! ```
//! use bornite_nn::tokenizer::Tokenizer;
//!
//! let tokenizer = Tokenizer::gpt2();
//! let tokens = tokenizer.encode("Hello, world!");
//! assert_eq!(tokens, [15496, 11, 995, 0]);
//! assert_eq!(tokenizer.decode(&tokens), "Hello, world!");
//! ```
//!
//! Files of tokenisers come from anywhere: `hugging_face.rs` believes nothing in them.

mod added;
mod alphabet;
mod classes;
mod encoder;
mod gpt2;
mod hugging_face;
mod merges;
mod split;
mod stream;
mod train;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::located;
use crate::{Error, Result};
use added::Added;
use merges::Merges;

pub use encoder::Encoder;
pub use split::{Split, Words};
pub use stream::StreamDecoder;
pub use train::Trainer;

/// The text of the token that ends a document, in the tokenisers made here.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Texts of tokens that end a document elsewhere, in the order in which they are looked for.
const ENDS: [&str; 4] = [END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "</s>"];

/// What a token that is not in the vocabulary is decoded to.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Turns text into tokens and back. See the [module](self).
pub struct Tokenizer {
    /// The bytes of each token.
    tokens: Vec<Box<[u8]>>,
    /// The token of each byte.
    bytes: [u32; 256],
    merges: Merges,
    split: Split,
    added: Added,
    /// Words that are tokens are taken whole, whatever the merges say: the tokens by their bytes.
    whole: Option<HashMap<Box<[u8]>, u32, RandomState>>,
    /// A space is put before text that does not start with one.
    space_first: bool,
    /// What a tokenizer.json had to say about tokens around a text; kept for whoever reads what is written.
    around: Option<Value>,
    fingerprint: OnceLock<String>,
}

impl Tokenizer {
    /// Every byte a token, and [`END_OF_TEXT`] after them.
    pub fn bytes() -> Tokenizer {
        let tokens = (0..=255).map(|byte| Box::from([byte])).collect();
        let mut tokenizer = Tokenizer::plain(tokens, Merges::default(), Split::Whole);
        tokenizer.add(END_OF_TEXT);
        tokenizer
    }

    /// GPT-2's tokenizer: 50,257 tokens.
    pub fn gpt2() -> Tokenizer {
        gpt2::tokenizer()
    }

    /// Learns a vocabulary of so many tokens from texts, as a [`Trainer`] does.
    #[track_caller]
    pub fn train<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, vocabulary: usize) -> Result<Tokenizer> {
        located(|| {
            let mut trainer = Trainer::new(Split::Gpt2);
            for text in texts {
                trainer.add(text.as_ref());
            }
            trainer.finish(vocabulary, &mut |_, _| {})
        })
    }

    /// Reads a Hugging Face `tokenizer.json` that holds byte-level BPE. What it asks for and cannot be had is an error.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Result<Tokenizer> {
        located(|| hugging_face::read(path.as_ref()))
    }

    /// As [`read`](Tokenizer::read), from the bytes of the file.
    #[track_caller]
    pub fn from_json(json: &[u8]) -> Result<Tokenizer> {
        located(|| hugging_face::parse(json).map_err(Error::tokenizer))
    }

    /// The text of a Hugging Face `tokenizer.json` that makes the same tokens.
    pub fn to_json(&self) -> String {
        hugging_face::write(self)
    }

    /// Of tokens without added ones. The caller has made sure that each byte is a token.
    fn plain(tokens: Vec<Box<[u8]>>, merges: Merges, split: Split) -> Tokenizer {
        let mut bytes = [0; 256];
        for (id, token) in tokens.iter().enumerate() {
            if let [byte] = **token {
                bytes[byte as usize] = id as u32;
            }
        }
        Tokenizer {
            tokens,
            bytes,
            merges,
            split,
            added: Added::default(),
            whole: None,
            space_first: false,
            around: None,
            fingerprint: OnceLock::new(),
        }
    }

    /// Adds a special token after all others.
    fn add(&mut self, text: &str) {
        self.added.push(text.into(), self.tokens.len() as u32, true);
        self.tokens.push(text.as_bytes().into());
    }

    /// The number of tokens; all are smaller.
    pub fn vocabulary(&self) -> usize {
        self.tokens.len()
    }

    /// The token that ends a document: `<|endoftext|>`, or what other vocabularies have in its place.
    pub fn end_of_text(&self) -> Option<u32> {
        ENDS.iter().find_map(|text| self.special(text))
    }

    /// The added token of this text, such as `<|endoftext|>`.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.added.get(text)
    }

    /// The added tokens and their texts.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.added.iter().map(|added| (added.text.as_str(), added.id))
    }

    /// How text is split into words.
    pub fn split(&self) -> Split {
        self.split
    }

    /// The bytes of one token.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(|token| &**token)
    }

    /// The tokens of a text. Nothing in the text is taken for a special token: data cannot end a document by spelling
    /// `<|endoftext|>`. For many texts an [`encoder`](Tokenizer::encoder) is faster.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = vec![];
        self.encoder().encode(text, &mut tokens);
        tokens
    }

    /// The tokens of a text in which the texts of special tokens mean these: for prompts that a person writes.
    pub fn encode_with_special(&self, text: &str) -> Vec<u32> {
        let mut tokens = vec![];
        self.encoder().encode_with_special(text, &mut tokens);
        tokens
    }

    /// Encodes text after text and remembers words. One for each thread.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder::new(self)
    }

    /// The text of tokens. Bytes that are not UTF-8, and tokens that do not exist, become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(tokens)).into_owned()
    }

    /// The bytes of tokens, which need not be UTF-8: a character may be cut between two tokens.
    pub fn decode_bytes(&self, tokens: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(tokens.len() * 4);
        for &id in tokens {
            bytes.extend_from_slice(self.token(id).unwrap_or(REPLACEMENT));
        }
        bytes
    }

    /// Decodes token by token, only ever whole characters.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// A hash of everything that decides the tokens of a text, in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| hex(&Sha256::digest(self.to_json())))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let merges = self.merges.in_order().len();
        write!(f, "Tokenizer({} tokens, {merges} merges, {:?})", self.tokens.len(), self.split)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
