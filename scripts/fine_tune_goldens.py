"""Makes crates/nn/tests/goldens/fine_tune: a Hugging Face folder as `transformers` saves it, with random weights and the
tokenizer of goldens/trained_elsewhere.json, and the loss that `transformers` finds for the start of goldens/corpus.txt.

pip install torch transformers tokenizers; python3 scripts/fine_tune_goldens.py
"""

import json
import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GPT2Config, GPT2LMHeadModel

GOLDENS = Path(__file__).parent.parent / "crates/nn/tests/goldens"
CONTEXT = 64

torch.manual_seed(0)
torch.set_num_threads(1)
tokenizer = Tokenizer.from_file(str(GOLDENS / "trained_elsewhere.json"))
sizes = dict(n_positions=CONTEXT, n_embd=16, n_layer=1, n_head=2)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=tokenizer.get_vocab_size(), resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes)
).eval()
folder = GOLDENS / "fine_tune"
model.save_pretrained(folder)
shutil.copy(GOLDENS / "trained_elsewhere.json", folder / "tokenizer.json")
tokens = torch.tensor([tokenizer.encode((GOLDENS / "corpus.txt").read_text()).ids[: CONTEXT + 1]])
with torch.no_grad():
    scores = model(tokens[:, :-1]).logits
loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).item()
(folder / "expected.json").write_text(json.dumps({"context": CONTEXT, "loss": loss}) + "\n")
print("loss", loss)
