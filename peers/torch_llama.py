"""A Llama of 1 B parameters in PyTorch: the time of a training step, eager and compiled.

    python3 peers/torch_llama.py > torch_llama.jsonl      # then: bornite bench gpt2 --model llama-1b \\
                                                          #     --vocab 128256 --batch 8 --peer torch_llama.jsonl
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

import common
import torch_gpt2

LAYERS, HEADS, KV_HEADS, WIDTH, HIDDEN, VOCABULARY = 16, 32, 8, 2048, 8192, 128_256
ROPE_BASE = 500_000.0


def rotate(x, cos, sin):
    """Rotary embedding of `[batch, heads, tokens, features]`."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Block(nn.Module):
    """Grouped-query attention and SwiGLU, each after an RMS norm."""

    def __init__(self):
        super().__init__()
        head = WIDTH // HEADS
        self.norm_attn, self.norm_ff = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * head, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        head = WIDTH // HEADS
        parts = self.qkv(self.norm_attn(x)).split((WIDTH, KV_HEADS * head, KV_HEADS * head), 2)
        q, k, v = (part.view(b, t, -1, head).transpose(1, 2) for part in parts)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        gate, up = self.gate_up(self.norm_ff(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """A Llama with tied embeddings; weights are random, times do not depend on them."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        for param in self.parameters():
            if param.dim() > 1:
                nn.init.normal_(param, std=0.02)

    def forward(self, tokens, targets):
        """The loss of a batch."""
        head = WIDTH // HEADS
        step = torch.arange(0, head, 2, device=tokens.device).float() / head
        angles = torch.outer(torch.arange(tokens.size(1), device=tokens.device).float(), ROPE_BASE**-step)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description="Time a Llama of 1 B parameters; prints JSON lines.")
    parser.add_argument("--batch", type=int, default=8, metavar="B")
    parser.add_argument("--context", type=int, default=2048, metavar="T")
    parser.add_argument("--only", choices=("compiled",))
    parser.add_argument(
        "--peak-tflops", type=float, default=989.0, help="dense bf16 of this GPU (default: H200)"
    )
    arguments = parser.parse_args()
    common.require("cuda")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    common.print_machine("cuda")
    sizes = (arguments.batch, arguments.context, arguments.peak_tflops)
    model = {"build": Llama, "row": f"llama_1b_v{VOCABULARY}", "attention": LAYERS * WIDTH}
    if not arguments.only:
        torch_gpt2.train("eager", *sizes, **model)
    torch_gpt2.train("compiled", *sizes, compiled=True, **model)


if __name__ == "__main__":
    main()
