"""A small GPT in PyTorch: the other side of `transformer_step` of `cargo bench -p bornite --bench cpu`.

As PyTorch's users write it: its own attention, its fused AdamW. The weights are made by a formula that
both sides have, so that the first losses must agree.
"""

import numpy
import torch
import torch.nn.functional as F

WIDTH, HEADS, LAYERS, BATCH, CONTEXT = 256, 4, 2, 8, 128


def hashed(count, salt):
    """Numbers between -1 and 1, as `benches/cpu/transformer.rs` makes them."""
    mixed = numpy.arange(1, count + 1, dtype=numpy.uint64) + numpy.uint64(salt << 32)
    mixed = mixed * numpy.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> numpy.uint64(32))) * numpy.uint64(0xD6E8FEB86659FD93)
    return (mixed >> numpy.uint64(40)).astype(numpy.float64) / 8388608.0 - 1.0


def shapes(vocabulary):
    c = WIDTH
    block = [(c,), (c,), (c, 3 * c), (3 * c,), (c, c), (c,), (c,), (c,), (c, 4 * c), (4 * c,), (4 * c, c), (c,)]
    return [(vocabulary, c), (CONTEXT, c)] + block * LAYERS + [(c,), (c,), (c, vocabulary)]


def classes(salt, vocabulary):
    found = ((hashed(BATCH * CONTEXT, salt) + 1.0) / 2.0 * vocabulary).astype(numpy.int64)
    return torch.from_numpy(numpy.minimum(found, vocabulary - 1))


class Model:
    def __init__(self, vocabulary):
        self.parameters = []
        for n, shape in enumerate(shapes(vocabulary)):
            start = 1.0 if len(shape) == 1 and n % 2 == 0 else 0.0
            values = (start + 0.05 * hashed(int(numpy.prod(shape)), n)).astype(numpy.float32)
            self.parameters.append(torch.from_numpy(values).reshape(shape).requires_grad_())
        self.tokens = classes(1000, vocabulary).reshape(BATCH, CONTEXT)
        self.targets = classes(1001, vocabulary)
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, fused=True
        )

    def forward(self):
        p = self.parameters
        x = F.embedding(self.tokens, p[0]) + p[1]
        for n in range(LAYERS):
            b = p[2 + 12 * n : 14 + 12 * n]
            h = torch.addmm(b[3], F.layer_norm(x, (WIDTH,), b[0], b[1]).view(-1, WIDTH), b[2])
            q, k, v = h.view(BATCH, CONTEXT, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(-1, WIDTH)
            x = x + torch.addmm(b[5], y, b[4]).view(BATCH, CONTEXT, WIDTH)
            h = torch.addmm(b[9], F.layer_norm(x, (WIDTH,), b[6], b[7]).view(-1, WIDTH), b[8])
            h = F.gelu(h, approximate="tanh")
            x = x + torch.addmm(b[11], h, b[10]).view(BATCH, CONTEXT, WIDTH)
        scale, shift, head = p[-3:]
        logits = F.layer_norm(x, (WIDTH,), scale, shift).view(-1, WIDTH) @ head
        return F.cross_entropy(logits, self.targets)

    def step(self):
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.forward()
        loss.backward()
        self.optimiser.step()
        return loss.item()


def loss(vocabulary, n):
    """The loss of the n-th step, from 0."""
    model = Model(vocabulary)
    return [model.step() for _ in range(n + 1)][-1]
