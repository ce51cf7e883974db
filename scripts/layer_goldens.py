"""Makes crates/nn/tests/goldens/layers.safetensors and training.json: outputs, gradients and training losses of PyTorch's
layers, from the same weights.

pip install torch safetensors; python3 scripts/layer_goldens.py
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

OUT = Path(__file__).parent.parent / "crates/nn/tests/goldens"
STEPS = 30


class Attention(nn.Module):
    """Self-attention with the parameter names of `MultiHeadAttention`."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        # The function of nn.MultiheadAttention, with these weights.
        tokens = x.shape[1]
        mask = torch.full((tokens, tokens), float("-inf")).triu(1) if self.causal else None
        return F.multi_head_attention_forward(
            *(3 * [x.transpose(0, 1)]), x.shape[-1], self.heads, self.qkv.weight, self.qkv.bias, None, None, False, 0.0,
            self.out.weight, self.out.bias, attn_mask=mask, need_weights=False,
        )[0].transpose(0, 1)


class Block(nn.Module):
    """Pre-norm block with the parameter names of `TransformerBlock`."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class First(nn.Module):
    """First output of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def images():
    return torch.randn(3, 4, 9, 8)


def rows():
    return torch.randn(3, 7) * 2


LAYERS = {
    "linear": (lambda: nn.Linear(5, 7), lambda: torch.randn(2, 3, 5)),
    "linear_no_bias": (lambda: nn.Linear(5, 7, bias=False), lambda: torch.randn(4, 5)),
    "embedding": (lambda: nn.Embedding(11, 6), lambda: torch.randint(0, 11, (2, 5))),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), lambda: torch.randn(2, 4, 10)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), images),
    "conv2d_grouped": (lambda: nn.Conv2d(4, 6, (3, 2), groups=2, dilation=2, bias=False), images),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        lambda: torch.randn(2, 4, 4, 3),
    ),
    "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), lambda: torch.randn(2, 3, 7, 5)),
    "adaptive_max_pool2d": (lambda: nn.AdaptiveMaxPool2d((3, 2)), lambda: torch.randn(2, 3, 7, 5)),
    "global_avg_pool": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), lambda: torch.randn(2, 3, 7, 5)),
    "global_max_pool": (lambda: nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()), lambda: torch.randn(2, 3, 7, 5)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), lambda: torch.randn(2, 6, 4, 3) * 2 + 1),
    "upsample_nearest": (lambda: nn.Upsample(scale_factor=2), lambda: torch.randn(2, 3, 4, 3)),
    "upsample_bilinear": (lambda: nn.Upsample(scale_factor=3, mode="bilinear"), lambda: torch.randn(2, 3, 4, 3)),
    "max_pool1d": (lambda: nn.MaxPool1d(3, 2), lambda: torch.randn(2, 3, 9)),
    "max_pool2d": (lambda: nn.MaxPool2d(2), images),
    "avg_pool1d": (lambda: nn.AvgPool1d(3, 2), lambda: torch.randn(2, 3, 9)),
    "avg_pool2d": (lambda: nn.AvgPool2d(3, 2), images),
    "batch_norm_rows": (lambda: nn.BatchNorm1d(5), lambda: torch.randn(6, 5) * 2 + 1),
    "batch_norm_series": (lambda: nn.BatchNorm1d(5), lambda: torch.randn(3, 5, 7) - 1),
    "batch_norm_images": (lambda: nn.BatchNorm2d(4, momentum=0.3), images),
    "batch_norm_eval": (lambda: nn.BatchNorm2d(4).eval(), images),
    "layer_norm": (lambda: nn.LayerNorm(8), lambda: torch.randn(2, 3, 8) * 3 + 1),
    "rms_norm": (lambda: nn.RMSNorm(8, eps=1e-5), lambda: torch.randn(2, 3, 8) * 3 + 1),
    "attention": (lambda: Attention(8, 2), lambda: torch.randn(2, 5, 8)),
    "attention_causal": (lambda: Attention(8, 4, True), lambda: torch.randn(2, 5, 8)),
    "transformer": (lambda: Block(8, 2, True), lambda: torch.randn(2, 5, 8)),
    "lstm": (lambda: First(nn.LSTM(3, 6, batch_first=True)), lambda: torch.randn(2, 5, 3)),
    "gru": (lambda: First(nn.GRU(3, 6, batch_first=True)), lambda: torch.randn(2, 5, 3)),
    "relu": (nn.ReLU, rows),
    "sigmoid": (nn.Sigmoid, rows),
    "tanh": (nn.Tanh, rows),
    "leaky_relu": (nn.LeakyReLU, rows),
    "elu": (nn.ELU, rows),
    "silu": (nn.SiLU, rows),
    "gelu": (lambda: nn.GELU(approximate="tanh"), rows),
    "gelu_erf": (nn.GELU, rows),
    "softmax": (lambda: nn.Softmax(-1), rows),
    "flatten": (nn.Flatten, images),
}


def renamed(name):
    return name.removeprefix("layer.").removesuffix("_l0")


def layer_goldens():
    saved = {}
    for name, (layer, data) in LAYERS.items():
        module, x = layer(), data()
        for key, parameter in module.named_parameters():
            if "norm" in name or "norm" in key:  # not ones and zeros
                nn.init.normal_(parameter, 0.5)
        if name == "batch_norm_eval":
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
        before = {renamed(key): value.detach().clone() for key, value in module.state_dict().items()}
        if x.is_floating_point():
            x.requires_grad_()
        y = module(x)
        grad_y = torch.randn_like(y)
        y.backward(grad_y)
        saved |= {f"{name}/x": x.detach(), f"{name}/y": y.detach(), f"{name}/grad_y": grad_y}
        if x.grad is not None:
            saved[f"{name}/grad_x"] = x.grad
        for key, value in before.items():
            if value.is_floating_point():
                saved[f"{name}/value/{key}"] = value
        for key, parameter in module.named_parameters():
            saved[f"{name}/grad/{renamed(key)}"] = parameter.grad
        for key, buffer in module.named_buffers():
            if buffer.is_floating_point():
                saved[f"{name}/after/{key}"] = buffer
    save_file({key: value.clone().contiguous() for key, value in saved.items()}, OUT / "layers.safetensors")


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.fc2(self.fc1(x).relu())


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.fc = nn.Conv2d(6, 8, 3), nn.Linear(8 * 2 * 2, 4)

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.conv1(x)).relu(), 2)
        return self.fc(self.conv2(x).relu().flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(5, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.blocks = nn.ModuleList([Block(16, 2, True), Block(16, 2, True)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x):
        x = self.table(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


MODELS = {
    "mlp": (Mlp, lambda: (torch.randn(16, 12), torch.randint(0, 4, (16,)))),
    "cnn": (Cnn, lambda: (torch.randn(8, 1, 8, 8), torch.randint(0, 4, (8,)))),
    "lstm": (Recurrent, lambda: (torch.randn(8, 6, 5), torch.randint(0, 4, (8,)))),
    "transformer": (Transformer, lambda: (torch.randint(0, 10, (4, 7)), torch.randint(0, 10, (28,)))),
}


def training_goldens():
    """30 steps of AdamW with clipping on 5 batches in turn; only matrices decay."""
    saved, losses = {}, {}
    for name, (model, data) in MODELS.items():
        model, batches = model(), [data() for _ in range(5)]
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                saved[f"{name}/value/{key.removesuffix('_l0')}"] = value.clone()
        for n, (x, y) in enumerate(batches):
            saved |= {f"{name}/x{n}": x, f"{name}/y{n}": y}
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        optimizer, losses[name] = torch.optim.AdamW(groups, lr=5e-3), []
        for n in range(STEPS):
            x, y = batches[n % 5]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            losses[name].append(loss.item())
    save_file({key: value.clone().contiguous() for key, value in saved.items()}, OUT / "training.safetensors")
    (OUT / "training.json").write_text(json.dumps(losses) + "\n")


torch.manual_seed(0)
layer_goldens()
training_goldens()
