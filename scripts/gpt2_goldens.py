"""Makes crates/nn/tests/goldens/{gpt2,llama}: small models of `transformers` with random weights, and what PyTorch does
with them on a CPU: logits, the gradients of a first step, the losses of 50 steps of AdamW, 200 tokens by greedy decoding.

pip install torch transformers safetensors; python3 scripts/gpt2_goldens.py
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).parent.parent / "crates/nn/tests/goldens"
BATCH, TOKENS, STEPS, GREEDY = 4, 32, 50, 200


def models():
    """The models, by name."""
    sizes = dict(vocab_size=96, bos_token_id=0, eos_token_id=95)
    yield "gpt2", GPT2LMHeadModel(
        GPT2Config(n_positions=224, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **sizes)
    )
    yield "llama", LlamaForCausalLM(
        LlamaConfig(
            max_position_embeddings=224, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5, **sizes
        )
    )


def batches():
    """Texts with something to learn: sums of the tokens before, some noise."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        rows = torch.randint(0, 96, (BATCH, TOKENS + 1), generator=generator)
        for n in range(2, TOKENS + 1):
            follows = torch.rand(BATCH, generator=generator) < 0.8
            rows[:, n] = torch.where(follows, (rows[:, n - 1] + rows[:, n - 2]) % 96, rows[:, n])
        yield rows


def decayed(model):
    """Parameters in two groups: matrices decay, norms and biases do not."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def greedy(model, start):
    """Tokens by greedy decoding, each from the whole text before it."""
    tokens = start.clone()
    with torch.no_grad():
        for _ in range(GREEDY):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens[0, start.shape[1]:]


def make(name, model):
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    # Larger than usual: a model of this size would otherwise say the same whatever it reads.
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() >= 2:
                p.normal_(0, 0.15)
    model.train()
    model.save_pretrained(folder, safe_serialization=True)
    rows = list(batches())
    x, y = rows[0][:, :-1], rows[0][:, 1:]
    seen = {"tokens": torch.stack(rows).to(torch.int32)}
    with torch.no_grad():
        seen["logits"] = model(x).logits.contiguous()
        seen["greedy"] = greedy(model, x[:1, :8]).to(torch.int32)
    optimiser = torch.optim.AdamW(decayed(model), lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for n, row in enumerate(rows):
        x, y = row[:, :-1], row[:, 1:]
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
        loss.backward()
        if n == 0:
            for key, p in model.named_parameters():
                seen[f"gradient.{key}"] = p.grad.clone()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimiser.step()
        losses.append(loss.item())
    save_file(seen, folder / "seen.safetensors")
    (folder / "losses.json").write_text(json.dumps({"losses": losses, "norms": norms}, indent=1) + "\n")
    print(name, "losses", losses[0], "to", losses[-1])


torch.manual_seed(0)
torch.set_num_threads(1)
for name, model in models():
    make(name, model)
