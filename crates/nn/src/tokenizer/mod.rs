//! Tokenizers.
//!
//! A [`Tokenizer`] is a byte-level BPE: a [pre-tokenizer](PreTokenizer) splits text into words, and
//! the bytes of each word are merged by a list of merges. Byte tokens are the case without merges.
//! Any text can be encoded, and decoding is exact.
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
//! Tokenizer files are untrusted: `hugging_face.rs` validates everything in them. Nothing here
//! knows models or training.

mod added;
mod byte_alphabet;
mod classes;
mod encoder;
mod gpt2;
mod hugging_face;
mod merges;
mod pre_tokenizer;
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
use added::AddedTokens;
use merges::Merges;

pub use encoder::Encoder;
pub use pre_tokenizer::{PreTokenizer, Words};
pub use stream::StreamDecoder;
pub use train::BpeTrainer;

/// Text of the end-of-text token in tokenizers that are trained here.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Texts of end-of-text tokens, in order of preference.
const END_TOKENS: [&str; 4] = [END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "</s>"];

/// Text that a token outside the vocabulary is decoded to.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Encodes text to tokens and decodes tokens to text; see the [module](self).
pub struct Tokenizer {
    /// Bytes of each token.
    tokens: Vec<Box<[u8]>>,
    /// Token of each byte.
    bytes: [u32; 256],
    merges: Merges,
    pre_tokenizer: PreTokenizer,
    added: AddedTokens,
    /// Tokens by their bytes, if words that are tokens skip the merges (`ignore_merges`).
    word_tokens: Option<HashMap<Box<[u8]>, u32, RandomState>>,
    /// Prepends a space to text that does not start with one.
    add_prefix_space: bool,
    /// Post-processor of a tokenizer.json. Not used for encoding; written back on export.
    post_processor: Option<Value>,
    fingerprint: OnceLock<String>,
}

impl Tokenizer {
    /// Returns the byte tokenizer: one token per byte, and [`END_OF_TEXT`].
    pub fn bytes() -> Tokenizer {
        let tokens = (0..=255).map(|byte| Box::from([byte])).collect();
        let mut tokenizer = Tokenizer::without_added_tokens(tokens, Merges::default(), PreTokenizer::None);
        tokenizer.add(END_OF_TEXT);
        tokenizer
    }

    /// Returns the GPT-2 tokenizer with 50,257 tokens.
    pub fn gpt2() -> Tokenizer {
        gpt2::tokenizer()
    }

    /// Trains a BPE tokenizer with `vocabulary` tokens on texts; see [`BpeTrainer`].
    #[track_caller]
    pub fn train<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, vocabulary: usize) -> Result<Tokenizer> {
        located(|| {
            let mut trainer = BpeTrainer::new(PreTokenizer::Gpt2);
            for text in texts {
                trainer.add(text.as_ref());
            }
            trainer.finish(vocabulary, &mut |_, _| {})
        })
    }

    /// Reads a Hugging Face `tokenizer.json` of a byte-level BPE. Unsupported features are errors.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Result<Tokenizer> {
        located(|| hugging_face::read(path.as_ref()))
    }

    /// As [`read`](Tokenizer::read), from the bytes of the file.
    #[track_caller]
    pub fn from_json(json: &[u8]) -> Result<Tokenizer> {
        located(|| hugging_face::parse(json).map_err(Error::tokenizer))
    }

    /// Returns the text of an equivalent Hugging Face `tokenizer.json`.
    pub fn to_json(&self) -> String {
        hugging_face::write(self)
    }

    /// Creates a tokenizer without added tokens. Every byte must be a token.
    fn without_added_tokens(tokens: Vec<Box<[u8]>>, merges: Merges, pre_tokenizer: PreTokenizer) -> Tokenizer {
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
            pre_tokenizer,
            added: AddedTokens::default(),
            word_tokens: None,
            add_prefix_space: false,
            post_processor: None,
            fingerprint: OnceLock::new(),
        }
    }

    /// Adds a special token after all others.
    fn add(&mut self, text: &str) {
        self.added.push(text.into(), self.tokens.len() as u32, true);
        self.tokens.push(text.as_bytes().into());
    }

    /// Returns the number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the end-of-text token: `<|endoftext|>` or its equivalent in other vocabularies.
    pub fn end_of_text(&self) -> Option<u32> {
        END_TOKENS.iter().find_map(|text| self.special(text))
    }

    /// Returns the added token with this text, such as `<|endoftext|>`.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.added.get(text)
    }

    /// Iterates over the added tokens and their texts.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.added.iter().map(|added| (added.text.as_str(), added.id))
    }

    /// Returns the pre-tokenizer.
    pub fn pre_tokenizer(&self) -> PreTokenizer {
        self.pre_tokenizer
    }

    /// Returns the bytes of a token.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(|token| &**token)
    }

    /// Encodes a text. Special tokens in the text are encoded as ordinary text, so that data cannot
    /// inject `<|endoftext|>`. For many texts an [`encoder`](Tokenizer::encoder) is faster.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = vec![];
        self.encoder().encode(text, &mut tokens);
        tokens
    }

    /// Encodes a text in which the texts of special tokens become these tokens, for prompts of a
    /// user.
    pub fn encode_with_special(&self, text: &str) -> Vec<u32> {
        let mut tokens = vec![];
        self.encoder().encode_with_special(text, &mut tokens);
        tokens
    }

    /// Returns an encoder that caches words, for encoding many texts on one thread.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder::new(self)
    }

    /// Decodes tokens to text. Invalid UTF-8 and tokens outside the vocabulary become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(tokens)).into_owned()
    }

    /// Decodes tokens to bytes, which need not be UTF-8: a character may span two tokens.
    pub fn decode_bytes(&self, tokens: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(tokens.len() * 4);
        for &id in tokens {
            bytes.extend_from_slice(self.token(id).unwrap_or(REPLACEMENT));
        }
        bytes
    }

    /// Returns a streaming decoder that emits complete characters.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// Returns a hash of everything that affects encoding, in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| hex(&Sha256::digest(self.to_json())))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let merges = self.merges.in_order().len();
        write!(f, "Tokenizer({} tokens, {merges} merges, {:?})", self.tokens.len(), self.pre_tokenizer)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
