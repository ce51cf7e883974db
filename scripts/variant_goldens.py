"""Makes crates/nn/tests/goldens/variants: tiny GPT-2 and Llama models of `transformers`, one for each option of config.json
that changes what a model computes, with the loss, the logits and the gradient norm that PyTorch finds on a CPU.

pip install torch transformers safetensors; python3 scripts/variant_goldens.py
"""

import json
import shutil
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).parent.parent / "crates/nn/tests/goldens/variants"
VOCABULARY, TOKENS = 24, 40
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0)


def gpt2(**options):
    sizes = dict(vocab_size=VOCABULARY, n_positions=TOKENS, n_embd=8, n_layer=3, n_head=2, n_inner=12)
    dropout = dict(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **dropout, "bos_token_id": 0, "eos_token_id": 23, **options}))


def llama(**options):
    sizes = dict(
        vocab_size=VOCABULARY, max_position_embeddings=128, hidden_size=16, intermediate_size=12,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    )
    return LlamaForCausalLM(LlamaConfig(**{**sizes, "bos_token_id": 0, "eos_token_id": [22, 23], **options}))


def models():
    """The models, by the name of their folder."""
    yield "gpt2-layer-scaled", gpt2(scale_attn_by_inverse_layer_idx=True)
    yield "gpt2-unscaled", gpt2(scale_attn_weights=False)
    yield "gpt2-layer-scaled-only", gpt2(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False)
    yield "gpt2-gelu", gpt2(activation_function="gelu", reorder_and_upcast_attn=True)
    yield "gpt2-untied", gpt2(tie_word_embeddings=False)
    rope = {"rope_theta": 500.0, "original_max_position_embeddings": 64, **LLAMA3}
    yield "llama-rope", llama(rope_parameters=rope)
    yield "llama-head-dim", llama(head_dim=6)
    yield "llama-attention-bias", llama(attention_bias=True, tie_word_embeddings=True)
    yield "llama-mlp-bias", llama(mlp_bias=True)
    yield "llama-all", llama(attention_bias=True, mlp_bias=True, head_dim=12, rope_parameters=rope)


def make(name, model):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    # Wide enough that every option shows; biases too, which start at zero.
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.5).add_(1 if p.dim() == 1 else 0)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    rows = torch.tensor([[(7 * n * n + 3 * n) % VOCABULARY for n in range(TOKENS + 1)]])
    logits = model(rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    seen = {"loss": loss.item(), "gradient_norm": norm.item(), "logits": logits[0, -1].tolist()}
    (folder / "expected.json").write_text(json.dumps(seen) + "\n")
    print(name, seen["loss"], seen["gradient_norm"])


torch.manual_seed(0)
torch.set_num_threads(1)
for name, model in models():
    make(name, model.train())
