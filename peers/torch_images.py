"""PyTorch's training step or forward pass of torchvision's image classifiers, as `cargo run --release -p bornite-nn
--example image_step`.

    pip install torch torchvision; python3 peers/torch_images.py resnet18 8 224 10 train
"""

import json
import resource
import sys
import time

import torch
from torch import nn
from torchvision import models


def main():
    arguments = sys.argv[1:] + ["resnet18", "8", "224", "10", "train"][len(sys.argv) - 1 :]
    name, mode = arguments[0], arguments[4]
    batch, size, steps = map(int, arguments[1:4])
    torch.set_num_threads(2)
    net = getattr(models, name)()
    images, classes = torch.randn(batch, 3, size, size), torch.arange(batch)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def train():
        loss = nn.functional.cross_entropy(net(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def forward():
        with torch.inference_mode():
            return net(images)[0, 0].item()

    run = train if mode == "train" else forward
    net.train(mode == "train")
    run()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = {"model": name, "mode": mode, "batch": batch, "size": size, "min_ms": round(times[0], 1)}
    print(json.dumps({**row, "median_ms": round(times[len(times) // 2], 1), "peak": f"{peak} kB"}))


if __name__ == "__main__":
    main()
