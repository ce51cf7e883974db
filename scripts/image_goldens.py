"""Makes crates/nn/tests/goldens/images.json: names, logits and training losses of torchvision's image classifiers, with
weights and images that a formula defines, so that the file stays small.

pip install torch torchvision; python3 scripts/image_goldens.py
"""

import json
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torchvision import models

OUT = Path(__file__).parent.parent / "crates/nn/tests/goldens/images.json"
STEPS = 30
LR = 5e-5


def formula(name, count):
    """Numbers from -0.5 to 0.5 that f32 represents exactly: a hash of the index and the checksum of a name."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + zlib.crc32(name.encode())) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> 8).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)


def value(name, shape):
    """A parameter or buffer."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(0)
    numbers = formula(name, int(np.prod(shape))).reshape(shape)
    if len(shape) > 1 and "embedding" not in name and "token" not in name:
        fan_in = np.prod(shape[1:])
        return torch.from_numpy(numbers * np.float32(np.sqrt(np.float32(24.0) / np.float32(fan_in))))
    if name.endswith("running_var") or name.endswith(".weight"):
        return torch.from_numpy(numbers * np.float32(0.4) + np.float32(0.6))
    return torch.from_numpy(numbers * np.float32(0.4))


def with_formula(net):
    net.load_state_dict({name: value(name, tuple(t.shape)) for name, t in net.state_dict().items()})
    return net


def images(name, count, size):
    return torch.from_numpy(formula(name, count * 3 * size * size).reshape(count, 3, size, size) * np.float32(4.0))


def vgg():
    """VGG-16 with few channels and hidden units."""
    channels = [4, 4, "M", 6, 6, "M", 8, 8, 8, "M", 8, 8, 8, "M", 8, 8, 8, "M"]
    net = models.VGG(models.vgg.make_layers(channels), num_classes=5)
    for index, (inputs, outputs) in {0: (8 * 49, 16), 3: (16, 16), 6: (16, 5)}.items():
        net.classifier[index] = nn.Linear(inputs, outputs)
    return net


def vit():
    return models.VisionTransformer(
        image_size=16, patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5
    )


def losses(dtype):
    """Losses of 30 steps of SGD on five batches in turn."""
    torch.set_default_dtype(dtype)
    net = with_formula(models.resnet18()).to(dtype).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    found = []
    for step in range(STEPS):
        x = images(f"batch{step % 5}", 8, 64).to(dtype)
        y = (torch.arange(8) * 7 + step % 5) % 1000
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main():
    torch.manual_seed(0)
    result = {}
    nets = {
        "resnet18": (models.resnet18(), 64),
        "resnet34": (models.resnet34(), None),
        "resnet50": (models.resnet50(), 64),
        "vgg16": (models.vgg16(), None),
        "vgg-small": (vgg(), 40),
        "vit-small": (vit(), 16),
    }
    for name, (net, size) in nets.items():
        state = net.state_dict()
        described = "\n".join(f"{key} {str(t.dtype)[6:]} {list(t.shape)}" for key, t in sorted(state.items()))
        row = {"tensors": len(state), "checksum": zlib.crc32(described.encode())}
        if size:
            net = with_formula(net).eval()
            with torch.no_grad():
                logits = net(images("images", 2, size))
                exact = net.double()(images("images", 2, size).double())
            row["logits"] = exact[:, :10].tolist()
            net.float()
            print(name, "off f64 by", (logits - exact).abs().max().item(), "scale", exact.abs().max().item())
        result[name] = row
    single, exact = losses(torch.float32), losses(torch.float64)
    result["resnet18"]["losses"] = exact
    print("losses", exact[0], exact[-1], "off f64 by", max(abs(a - b) for a, b in zip(single, exact)))
    OUT.write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
