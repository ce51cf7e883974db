#!/usr/bin/env python3
"""Tokens of many texts by other people's tokenisers: what crates/nn/tests/tokenizer compares ours with.

    pip install tiktoken==0.14.0 tokenizers==0.23.3
    scripts/tokenizer_goldens.py VOCAB_BPE

VOCAB_BPE is GPT-2's list of merges as published (`vocab.bpe`; the crate gpt_tokenizer carries it). It writes
crates/nn/tests/goldens/*.json. `ours.json` there is written by our test (BLESS=1 cargo test -p bornite-nn) and read here,
to see that others read what we write; so: script, BLESS, script.
"""

import base64
import hashlib
import json
import pathlib
import random
import sys
import unicodedata

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parent.parent / "crates/nn/tests/goldens"
MERGES_HASH = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
RANKS_HASH = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"  # of r50k_base.tiktoken, as tiktoken has it
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
END = "<|endoftext|>"


def gpt2(path):
    text = pathlib.Path(path).read_bytes()
    assert hashlib.sha256(text).hexdigest() == MERGES_HASH, "not the published vocab.bpe"
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xFF and b != 0xAD]
    rest = [b for b in range(256) if b not in printable]
    to_byte = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(rest)}
    ranks = {bytes([b]): n for n, b in enumerate(printable + rest)}
    for line in text.decode().split("\n")[1:-1]:
        ranks[bytes(to_byte[c] for c in line.replace(" ", ""))] = len(ranks)
    file = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    assert hashlib.sha256(file.encode()).hexdigest() == RANKS_HASH, "not the ranks of r50k_base"
    return tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={END: len(ranks)})


WRITTEN = [
    "",
    " ",
    "  ",
    "\n",
    "a",
    " a",
    "a ",
    "Hello, world!",
    "It's we're they've I'm you'll he'd IT'S WE'RE 'S 's' 'tis ''s 'ſ 'LL 'lL don't o'clock",
    "1 12 123 1234 12345 123456789 3.14159 1,000,000 ١٢٣٤٥ Ⅷ ½ ²³ 一二三 1a2b3c a1 1a",
    "tabs\tand\t\tmore\t \t mixed \n\n\n newlines\r\n\r\nand\rreturns \r \n end  ",
    "    def f(x):\n        return x ** 2  # comment\n\n\n    class A:\n\t\tpass\n",
    "trailing spaces   \nand   \n   leading",
    "non-breaking\u00a0space\u3000ideographic\u2003em\u200bzero\u2028line\u2029par\x85next\x0b\x0c\x1c\x1d\x1e\x1f\x00\x01\x7f",
    "Ünïcödé naïve café cafe\u0301 Ångström ﬁ ﬂ ﬃ Straße ǅ ʰʷ ª º",
    "Русский язык, українська, български",
    "Ελληνικά, ἀρχαία",
    "עברית עם נִקּוּד",
    "العربية مع تَشْكِيل ٠١٢٣",
    "हिन्दी देवनागरी क्षत्रिय",
    "বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ไทย ລາວ ខ្មែរ မြန်မာ བོད་ཡིག",
    "中文汉字，没有空格。日本語ひらがなカタカナ、漢字。한국어 한글",
    "ქართული հայերեն አማርኛ ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ",
    "😀😃 👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ☃️ ✈ ❤️‍🔥 #️⃣",
    "math ∑∫∂√≤≥ → ⇒ ∀x∈ℝ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 ℵ",
    "\ufeffBOM, \ufffd replacement, \ufffe not a character, \U0010ffff last, \ue000 private",
    "url https://example.com/path?q=1&r=%20#x e-mail a.b@c.org /usr/bin/env C:\\dir",
    "<|endoftext|> <|endoftext <|end|> a<|endoftext|>b<|endoftext|><|endoftext|>",
    "a" * 300 + " " + "ab" * 200 + " " + "é" * 120 + "!?" * 100 + " " * 130 + "\n" * 110 + "7" * 150,
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    "#include <stdio.h>\nint main(void) { for (int i = 0; i < 10; ++i) printf(\"%d\\n\", i); return 0; }\n",
    '{"key": [1, 2.5e-3, null, true], "nested": {"a": "b\\u00e9"}}\n',
]


def random_texts(dice):
    """Every kind of character beside every other; old enough that all tables of Unicode have them."""
    kinds = {}
    for code in range(0x110000):
        kind = unicodedata.category(chr(code))
        if kind not in ("Cs", "Cn"):
            kinds.setdefault(kind, []).append(chr(code))
    kinds["space"] = list(" \t\n\r\x0b\x0c\x85\xa0\u2002\u2009\u2028\u2029\u3000")
    kinds["line"] = list("\r\n")
    kinds["blank"] = [" "]
    kinds["ascii"] = [chr(c) for c in range(32, 127)]
    kinds["contraction"] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'x"]
    names = sorted(kinds)
    for _ in range(500):
        few = dice.sample(names, dice.randint(1, 4)) + ["blank"] * dice.randint(0, 2)
        yield "".join(dice.choice(kinds[dice.choice(few)]) * dice.choice([1, 1, 1, 2, 5]) for _ in range(dice.randint(1, 40)))


def corpus(dice):
    """Text with a vocabulary of its own, Zipf's law included; ties among pairs on purpose."""
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ä", "щ", "ни")]
    words = ["".join(dice.choice(syllables) for _ in range(dice.randint(1, 4))) for _ in range(1500)]
    weights = [1 / (n + 1) for n in range(len(words))]
    lines = []
    for _ in range(600):
        line = " ".join(dice.choices(words, weights, k=dice.randint(3, 14)))
        lines.append(line.capitalize() + dice.choice([".", "!", "?", " 42", "'s", " 😀", "  --", ""]))
    return "\n".join(lines) + "\n"


def words(pattern, text):
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    return [word for word, _ in splitter.pre_tokenize_str(text)]


def save(name, value):
    path = FOLDER / name
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    dice = random.Random(8)
    texts = WRITTEN + list(random_texts(dice))
    encoding = gpt2(sys.argv[1])
    rows = []
    for text in texts:
        ids = encoding.encode_ordinary(text)
        special = encoding.encode(text, allowed_special="all")
        llama3, qwen2 = words(LLAMA3, text), words(QWEN2, text)
        assert "".join(llama3) == text and "".join(qwen2) == text
        rows.append({"text": text, "gpt2": ids, "special": special, "llama3": [len(word) for word in llama3],
                     "qwen2": [len(word) for word in qwen2]})
    save("texts.json", rows)

    # Training: their trainer on our corpus.
    text = corpus(dice)
    (FOLDER / "corpus.txt").write_text(text)
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=899, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    theirs.train_from_iterator([text], trainer)
    theirs.add_special_tokens([END])
    theirs.save(str(FOLDER / "trained_elsewhere.json"), pretty=False)

    # The manner of Llama 3, small.
    llama = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated", invert=False)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    llama.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    llama.decoder = decoders.ByteLevel()
    llama.train_from_iterator([text, " ".join(WRITTEN)], trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, show_progress=False, special_tokens=["<|begin_of_text|>"]))
    llama.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool> more", normalized=False)])
    llama.add_special_tokens(["<|end_of_text|>"])
    llama.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", llama.token_to_id("<|begin_of_text|>"))])
    llama.save(str(FOLDER / "llama_elsewhere.json"), pretty=False)
    with_special = ["x<tool>y<tool> more<|end_of_text|>z", "<|begin_of_text|>", "<tool>", "a <tool>  b"]
    spaced = Tokenizer.from_str(theirs.to_str())
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    spaced.save(str(FOLDER / "spaced_elsewhere.json"), pretty=False)

    some = WRITTEN + with_special + [row["text"] for row in rows[len(WRITTEN):len(WRITTEN) + 100]]
    encoded = {}
    readers = [("trained_elsewhere", theirs), ("llama_elsewhere", llama), ("spaced_elsewhere", spaced)]
    ours = FOLDER / "ours.json"
    if ours.exists():
        readers.append(("ours", Tokenizer.from_file(str(ours))))
    for name, tokenizer in readers:
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in some]
        back = [tokenizer.decode(tokens, skip_special_tokens=False) for tokens in ids]
        assert name == "spaced_elsewhere" or back == some, name
        encoded[name] = ids
    save("encoded.json", {"texts": some, "tokens": encoded})


if __name__ == "__main__":
    main()
