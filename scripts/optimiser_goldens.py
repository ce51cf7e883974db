"""Makes crates/nn/tests/goldens/optimisers.json: where PyTorch's optimisers take a matrix and a vector in six steps along
given gradients. Only the matrix decays.

pip install torch; python3 scripts/optimiser_goldens.py
"""

import json
from pathlib import Path

import torch

OUT = Path(__file__).parent.parent / "crates/nn/tests/goldens/optimisers.json"
STEPS, RATE, DECAY = 6, 0.02, 0.1
RULES = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8),
    "adam": lambda groups: torch.optim.Adam(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=RATE),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=RATE, alpha=0.99, eps=1e-8),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=RATE, eps=1e-10),
}

torch.manual_seed(0)
start = [torch.randn(3, 4), torch.randn(5)]
slopes = [[torch.randn_like(p) for p in start] for _ in range(STEPS)]
found = {}
for name, rule in RULES.items():
    matrix, vector = (p.clone().requires_grad_() for p in start)
    optimiser = rule([{"params": [matrix], "weight_decay": DECAY}, {"params": [vector], "weight_decay": 0.0}])
    for step in slopes:
        matrix.grad, vector.grad = (slope.clone() for slope in step)
        optimiser.step()
    found[name] = [p.detach().flatten().tolist() for p in (matrix, vector)]
flat = lambda pair: [p.flatten().tolist() for p in pair]
OUT.write_text(
    json.dumps({"rate": RATE, "decay": DECAY, "start": flat(start), "slopes": [flat(s) for s in slopes], "found": found})
    + "\n"
)
