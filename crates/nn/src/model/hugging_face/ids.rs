//! Begin- and end-of-text tokens in `config.json`, `generation_config.json` and
//! `tokenizer_config.json`.

use serde_json::{Map, Value, json};

use crate::model::config::GptConfig;
use crate::tokenizer::Tokenizer;

/// SpecialTokenIds of the begin- and end-of-text tokens. Without them `generate()` of
/// `transformers` does not stop.
pub(super) struct SpecialTokenIds {
    bos: Option<u32>,
    /// The tokenizer's token comes first.
    eos: Vec<u32>,
}

impl SpecialTokenIds {
    /// Takes the ids of a model and those of a tokenizer. In our training data a text begins with
    /// the end-of-text token.
    pub fn new(config: &GptConfig, tokenizer: Option<&Tokenizer>) -> SpecialTokenIds {
        let end = tokenizer.and_then(Tokenizer::end_of_text);
        let others = config.eos.iter().copied().filter(|id| Some(*id) != end);
        SpecialTokenIds { bos: config.bos.or(end), eos: end.into_iter().chain(others).collect() }
    }

    /// Returns `bos_token_id` and `eos_token_id`; the latter is a list if there are several, null
    /// if there is none.
    pub fn json(&self) -> [Value; 2] {
        let eos = match &self.eos[..] {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        };
        [json!(self.bos), eos]
    }

    pub fn generation_config(&self) -> String {
        let [bos, eos] = self.json();
        format!("{:#}\n", json!({ "bos_token_id": bos, "eos_token_id": eos }))
    }

    pub fn tokenizer_config(&self, tokenizer: &Tokenizer, context: usize) -> String {
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
        config.insert("model_max_length".into(), json!(context));
        config.insert("clean_up_tokenization_spaces".into(), json!(false));
        for (key, id) in [("bos_token", self.bos), ("eos_token", self.eos.first().copied())] {
            let text = tokenizer.specials().find(|(_, special)| Some(*special) == id).map(|(text, _)| text);
            config.extend(text.map(|text| (key.to_string(), json!(text))));
        }
        format!("{:#}\n", Value::Object(config))
    }
}
