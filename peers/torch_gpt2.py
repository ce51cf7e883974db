"""GPT-2 in PyTorch: the time of a training step and of a decoded token, eager and compiled.

    python3 peers/torch_gpt2.py > torch_gpt2.jsonl
    python3 peers/torch_gpt2.py --model gpt2-355m --batch 16 --only train
    python3 peers/torch_gpt2.py --vocabulary 50257 --only train
"""

import argparse
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import common

TEXT_VOCABULARY = 50257
MAX_CONTEXT = 1024
# Layers, heads, width.
SIZES = {
    "gpt2-124m": (12, 12, 768),
    "gpt2-355m": (24, 16, 1024),
    "gpt2-774m": (36, 20, 1280),
    "gpt2-1558m": (48, 25, 1600),
}
# Set by `main` from the arguments.
MODEL, VOCABULARY = "gpt2-124m", 50304
LAYERS, HEADS, WIDTH = SIZES[MODEL]
DECODED_TOKENS = 400


class Block(nn.Module):
    """Attention and the feed-forward layers, each after a norm."""

    def __init__(self):
        super().__init__()
        self.norm_attn, self.norm_ff = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.fc_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache=None, position=None):
        b, t, _ = x.shape
        q, k, v = (
            part.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm_attn(x)).split(WIDTH, 2)
        )
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys, values = cache
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            seen = (torch.arange(keys.size(2), device=x.device) <= position)[None, None, None]
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.fc_proj(F.gelu(self.fc(self.norm_ff(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with tied embeddings; weights are random, times do not depend on them."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(MAX_CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        for param in self.parameters():
            if param.dim() > 1:
                nn.init.normal_(param, std=0.02)

    def forward(self, tokens, targets):
        """The loss of a batch."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))

    def next_token(self, token, caches, position):
        """Greedy decoding of one token."""
        x = self.tokens(token) + self.positions(position)
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, position)
        return self.head(self.norm(x)).argmax(-1)


def row_name():
    """The model's name in rows, with its vocabulary if that is not the default."""
    return MODEL.replace("-", "_") + ("" if VOCABULARY == 50304 else f"_v{VOCABULARY}")


def train(name, batch, context, peak_tflops, compiled=False, sdpa=nullcontext, build=Gpt2, row=None, attention=None):
    """Prints the time of a step: forward, backward, clipping and AdamW in bf16 autocast.

    `build` makes the model, `row` is its name in rows, `attention` the width of attention in all
    layers; by default those of GPT-2.
    """
    torch._dynamo.reset()
    model = build().cuda()
    loss_of = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    shape = (batch, context + 1)
    batches = [torch.randint(0, TEXT_VOCABULARY, shape, device="cuda") for _ in range(4)]
    loss = None

    def step(i):
        nonlocal loss
        tokens = batches[i % len(batches)]
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    torch.cuda.reset_peak_memory_stats()
    with sdpa():
        start = time.perf_counter()
        step(0)
        torch.cuda.synchronize()
        first_step_s = time.perf_counter() - start
        ms = common.Timer("cuda", samples=15).median_ms(step)

    # Causal attention counts at half: 12 * LAYERS * WIDTH * context / 2.
    parameters = sum(parameter.numel() for parameter in model.parameters())
    flops = (6 * parameters + 6 * (attention or LAYERS * WIDTH) * context) * batch * context
    common.print_row(
        f"{row or row_name()}_train_{name}_{batch}x{context}",
        ms,
        flops=flops,
        mfu=round(flops / ms / 1e9 / peak_tflops, 4),
        tokens_s=round(batch * context / ms * 1e3),
        first_step_s=round(first_step_s, 1),
        peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 1),
        loss=round(loss.item(), 3),
    )


@torch.no_grad()
def decode(name, **compile_options):
    """Prints the time of a token at batch 1, by plain calls and by replaying a CUDA graph."""
    torch._dynamo.reset()
    model = Gpt2().cuda().bfloat16().eval()
    next_token = model.next_token
    if compile_options:
        next_token = torch.compile(next_token, **compile_options)
    zeros = lambda: torch.zeros(
        1, HEADS, MAX_CONTEXT, WIDTH // HEADS, device="cuda", dtype=torch.bfloat16
    )
    caches = [(zeros(), zeros()) for _ in range(LAYERS)]
    token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
    position = torch.zeros(1, dtype=torch.long, device="cuda")

    def advance():
        token.copy_(next_token(token, caches, position))
        position.add_(1)

    def token_ms(call):
        position.zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(DECODED_TOKENS):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / DECODED_TOKENS * 1e3

    for _ in range(10):
        advance()
    eager_ms = token_ms(advance)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        advance()
    ms = min(eager_ms, token_ms(graph.replay))
    common.print_row(f"{row_name()}_decode_{name}", ms, eager_ms=eager_ms, tokens_s=round(1e3 / ms))


def main():
    global MODEL, VOCABULARY, LAYERS, HEADS, WIDTH
    parser = argparse.ArgumentParser(description="Time GPT-2; prints JSON lines.")
    parser.add_argument("--model", choices=SIZES, default=MODEL)
    parser.add_argument(
        "--vocabulary", type=int, default=VOCABULARY, metavar="V", help="50257 is GPT-2's own; at least that"
    )
    parser.add_argument("--batch", type=int, default=64, metavar="B")
    parser.add_argument("--context", type=int, default=1024, metavar="T", help="1024 at most")
    parser.add_argument(
        "--only", choices=("train", "compiled", "decode"), help="compiled: the compiled step of train alone"
    )
    parser.add_argument(
        "--peak-tflops", type=float, default=989.0, help="dense bf16 of this GPU (default: H200)"
    )
    arguments = parser.parse_args()
    if not 0 < arguments.context <= MAX_CONTEXT:
        parser.error(f"--context must be from 1 to {MAX_CONTEXT}")

    if arguments.vocabulary < TEXT_VOCABULARY:
        parser.error(f"--vocabulary must be at least {TEXT_VOCABULARY}")
    MODEL, VOCABULARY = arguments.model, arguments.vocabulary
    LAYERS, HEADS, WIDTH = SIZES[MODEL]

    common.require("cuda")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    common.print_machine("cuda")

    sizes = (arguments.batch, arguments.context, arguments.peak_tflops)
    if arguments.only == "compiled":
        train("compiled", *sizes, compiled=True)
        return
    if arguments.only != "decode":
        train("eager", *sizes)
        train("compiled", *sizes, compiled=True)
        cudnn = lambda: sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
        try:
            train("compiled_cudnn", *sizes, compiled=True, sdpa=cudnn)
        except RuntimeError as error:
            common.print_skipped(f"{row_name()}_train_compiled_cudnn", error)
    if arguments.only != "train":
        decode("eager")
        decode("compiled", mode="default")
        decode("max_autotune", mode="max-autotune-no-cudagraphs")


if __name__ == "__main__":
    main()
