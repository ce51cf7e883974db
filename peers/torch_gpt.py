"""GPT-2 of any size in PyTorch, as its users write it: its own attention, its fused AdamW. The other side of
`cargo bench -p bornite-nn --bench steps` and of scripts/learns_beside_torch.py.
"""

import json
import math
import struct

import torch
import torch.nn.functional as F


class Gpt:
    """GPT-2 with names and shapes as Hugging Face keeps them: matrices of `h.*` are [inputs, outputs]."""

    def __init__(self, sizes, vocabulary, seed):
        self.layers, self.heads, self.width, self.context = sizes
        self.vocabulary = vocabulary
        generator, width = torch.Generator().manual_seed(seed), self.width
        normal = lambda shape, deviation=0.02: torch.randn(shape, generator=generator) * deviation
        out = 0.02 / math.sqrt(2 * self.layers)
        self.parameters = {"wte.weight": normal((vocabulary, width)), "wpe.weight": normal((self.context, width))}
        norms = [f"h.{n}.ln_{k}" for n in range(self.layers) for k in (1, 2)] + ["ln_f"]
        for name in norms:
            self.parameters |= {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}
        for n in range(self.layers):
            for name, inputs, outputs, deviation in [
                ("attn.c_attn", width, 3 * width, 0.02),
                ("attn.c_proj", width, width, out),
                ("mlp.c_fc", width, 4 * width, 0.02),
                ("mlp.c_proj", 4 * width, width, out),
            ]:
                self.parameters[f"h.{n}.{name}.weight"] = normal((inputs, outputs), deviation)
                self.parameters[f"h.{n}.{name}.bias"] = torch.zeros(outputs)

    def count(self):
        """How many parameters there are."""
        return sum(p.numel() for p in self.parameters.values())

    def to(self, device):
        """Parameters on a device, which gradients are taken by."""
        self.parameters = {name: p.to(device).requires_grad_() for name, p in self.parameters.items()}
        return self

    def groups(self, decay):
        """Parameters for an optimiser: matrices decay, norms and biases do not."""
        every = list(self.parameters.values())
        return [
            {"params": [p for p in every if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in every if p.dim() < 2], "weight_decay": 0.0},
        ]

    def loss(self, inputs, targets):
        p, (batch, count) = self.parameters, inputs.shape
        norm = lambda x, name: F.layer_norm(x, (self.width,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)
        linear = lambda x, name: F.linear(x, p[f"{name}.weight"].t(), p[f"{name}.bias"])
        x = F.embedding(inputs, p["wte.weight"]) + p["wpe.weight"][:count]
        for n in range(self.layers):
            qkv = linear(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn")
            q, k, v = qkv.view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(seen.transpose(1, 2).reshape(batch, count, self.width), f"h.{n}.attn.c_proj")
            hidden = F.gelu(linear(norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc"), approximate="tanh")
            x = x + linear(hidden, f"h.{n}.mlp.c_proj")
        scores = F.linear(norm(x, "ln_f"), p["wte.weight"])
        return F.cross_entropy(scores.view(-1, self.vocabulary), targets.reshape(-1))

    def save(self, folder):
        """A folder that `bornite train --set model.from=…` takes."""
        folder.mkdir(parents=True)
        config = dict(
            model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=self.vocabulary, n_positions=self.context,
            n_ctx=self.context, n_embd=self.width, n_layer=self.layers, n_head=self.heads, layer_norm_epsilon=1e-5,
            activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=True,
        )
        (folder / "config.json").write_text(json.dumps(config))
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, p in self.parameters.items():
            end = at + 4 * p.numel()
            header[f"transformer.{name}"] = {"dtype": "F32", "shape": list(p.shape), "data_offsets": [at, end]}
            at = end
        header = json.dumps(header).encode()
        header += b" " * (-len(header) % 8)
        with open(folder / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            for p in self.parameters.values():
                file.write(p.numpy().tobytes())


def step(sizes, vocabulary, batch, context):
    """A training step in f32: forward, backward, clipping and AdamW."""
    gpt = Gpt(sizes, vocabulary, seed=1).to("cpu")
    parameters = list(gpt.parameters.values())
    optimiser = torch.optim.AdamW(gpt.groups(0.1), lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    rows = torch.randint(0, vocabulary, (batch, context + 1))

    def call():
        loss = gpt.loss(rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.item()

    return call
