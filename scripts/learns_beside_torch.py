"""Trains one GPT twice, by PyTorch and by `bornite train`: the same first parameters, the same tokens in the same order,
the same schedule, AdamW and clipping. Draws both curves, and exits with 1 if they differ by more than noise.

Noise is what PyTorch's own curve changes by if only the first parameters are drawn from another seed, on the same
batches. Curves are means over a window of steps; ours may be no further from PyTorch's than that, in the mean over all
steps and at the worst one. And the first loss, which no update has touched, must agree closely: so both saw one batch.

    PYTHONPATH=/path/of/torch python3 scripts/learns_beside_torch.py --bornite target/release/bornite --out learns
    python3 scripts/learns_beside_torch.py --bornite ./bornite --device cuda:0 --model gpt2-124m --precision bf16 \\
        --batch 16 --context 512 --steps 400 --out learns

Needs PyTorch and the command, nothing else. Leaves `losses.svg`, `result.json` and the run in --out.
"""

import argparse
import array
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

# On a machine that is busy, threads that wait by spinning take each other's time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch

HERE = pathlib.Path(__file__).resolve().parent
# Beside the scripts in the repository, below them where they are packed for another machine.
sys.path[:0] = [str(HERE), str(HERE.parent / "peers"), str(HERE / "peers")]
import curves_svg
import make_corpus
import torch_gpt

# Layers, heads, width, most tokens; `narrow` is what two cores train in a minute.
MODELS = {
    "tiny": (2, 2, 64, 64),
    "narrow": (4, 4, 192, 128),
    "small": (4, 4, 128, 128),
    "medium": (6, 6, 384, 256),
    "gpt2-124m": (12, 12, 768, 1024),
}
RATE, LOWEST, DECAY, CLIP, BETAS, EPS = 6e-4, 0.1, 0.1, 1.0, (0.9, 0.95), 1e-8
DATA_SEED = 0
FIRST_LOSS = {"f32": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "f16": 1e-2}
TORCH_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def rate_at(step, steps, warmup):
    """As `bornite_nn::optimiser::Rate` has it, with steps from 0."""
    if step < warmup:
        return RATE * (step + 1) / warmup
    rest = steps - warmup - 1
    done = 1.0 if rest <= 0 else min((step - warmup) / rest, 1.0)
    return RATE * (LOWEST + (1 - LOWEST) * 0.5 * (1 + math.cos(math.pi * done)))


def mix(value):
    mask = (1 << 64) - 1
    z = (value + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def window_starts(tokens, context, seed):
    """Where windows begin, in the order of `bornite_nn::data`: one Feistel permutation an epoch."""
    count, epoch = (tokens - 1) // context, 0
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        key = mix(mix(seed) ^ epoch)
        skip = mix(key) % (tokens - 1 - count * context + 1)
        keys = [state := mix(key)] + [state := mix(state) for _ in range(5)]
        for value in range(count):
            while True:
                left, right = value >> half, value & mask
                for k in keys:
                    left, right = right, left ^ (mix(right ^ k) & mask)
                value = left << half | right
                if value < count:
                    break
            yield skip + value * context
        epoch += 1


def batches(tokens, given):
    """Inputs and targets of all steps, on the device."""
    starts, windows = window_starts(len(tokens), given.context, DATA_SEED), torch.arange(given.context + 1)
    for _ in range(given.steps):
        first = torch.tensor([next(starts) for _ in range(given.batch)])
        rows = tokens[first[:, None] + windows].to(given.device)
        yield rows[:, :-1], rows[:, 1:]


def train_torch(gpt, tokens, given):
    """Losses of all steps, and seconds."""
    gpt.to(given.device)
    parameters = list(gpt.parameters.values())
    optimiser = torch.optim.AdamW(gpt.groups(DECAY), lr=RATE, betas=BETAS, eps=EPS, fused=True)
    kind, narrow = given.device.split(":")[0], TORCH_DTYPES.get(given.precision)
    scaler = torch.amp.GradScaler(kind, enabled=given.precision == "f16")
    losses, begun = [], time.perf_counter()
    for step, (inputs, targets) in enumerate(batches(tokens, given)):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step, given.steps, given.warmup)
        with torch.autocast(kind, narrow, enabled=narrow is not None):
            loss = gpt.loss(inputs, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    losses = [loss.item() for loss in losses]
    return losses, time.perf_counter() - begun


def train_bornite(model, corpus, run, given):
    """Losses of all steps, and seconds of them."""
    settings = {
        "model.from": model, "data.validation_fraction": 0, "train.eval_every": 0, "train.save_every": 0,
        "schedule.lr": RATE, "schedule.min_lr_ratio": LOWEST, "schedule.warmup": given.warmup, "schedule.decay": "cosine",
        "optimizer.name": "adamw", "optimizer.weight_decay": DECAY, "optimizer.clip_norm": CLIP, "optimizer.eps": EPS,
        "optimizer.beta1": BETAS[0], "optimizer.beta2": BETAS[1],
    }
    command = [given.bornite, "train", "--data", corpus, "--out", run, "--device", given.device]
    command += ["--tokenizer", given.tokenizer, "--precision", given.precision, "--seed", DATA_SEED]
    command += ["--steps", given.steps, "--batch", given.batch, "--context", given.context]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    subprocess.run([str(part) for part in command], check=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if [line["step"] for line in lines] != list(range(1, given.steps + 1)):
        sys.exit(f"{run}/metrics.jsonl has {len(lines)} lines for {given.steps} steps")
    return [line["loss"] for line in lines], lines[-1]["elapsed_seconds"]


def tokens_of(run):
    """What the run's text became."""
    (path,) = run.glob("data/*/tokens.bin")
    manifest = json.loads(path.with_name("manifest.json").read_text())
    numbers = array.array("H" if manifest["token_bytes"] == 2 else "I")
    numbers.frombytes(path.read_bytes())
    return torch.tensor(numbers, dtype=torch.int64)


def smoothed(values, window):
    """Means over so many steps, each at the last of them."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return [(sums[n] - sums[n - window]) / window for n in range(window, len(sums))]


def apart(one, other):
    return [abs(a - b) for a, b in zip(one, other)]


def judge(ours, theirs, other, given):
    """What was found, and what is wrong with it."""
    window = max(1, min(20, given.steps // 10))
    a, b, c = (smoothed(losses, window) for losses in (ours, theirs, other))
    difference, noise = apart(a, b), apart(b, c)
    mean = lambda values: sum(values) / len(values)
    found = dict(
        window=window, first=[ours[0], theirs[0]], last=[a[-1], b[-1], c[-1]],
        difference=dict(mean=mean(difference), worst=max(difference)), noise=dict(mean=mean(noise), worst=max(noise)),
    )
    wrong = []
    relative = abs(ours[0] - theirs[0]) / theirs[0]
    if not relative <= FIRST_LOSS[given.precision]:
        wrong.append(f"the first losses {ours[0]} and {theirs[0]} differ by {relative:.1e} of themselves")
    for kind in ("mean", "worst"):
        if not found["difference"][kind] <= found["noise"][kind]:
            wrong.append(f"the {kind} difference is {found['difference'][kind]:.4f}, the noise {found['noise'][kind]:.4f}")
    if not b[-1] < 0.7 * theirs[0] or not a[-1] < 0.7 * ours[0]:
        wrong.append(f"nothing much was learned: from {theirs[0]:.3f} to {b[-1]:.3f}, ours to {a[-1]:.3f}")
    return found, wrong, (difference, noise)


def arguments():
    parser = argparse.ArgumentParser(description="Train a GPT by PyTorch and by bornite, and compare.")
    parser.add_argument("--bornite", required=True, help="the command")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="an empty or a new folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--model", choices=MODELS, default="narrow")
    parser.add_argument("--precision", choices=FIRST_LOSS, default="f32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1, 2), help="of first parameters")
    parser.add_argument("--bytes", type=int, default=12_000_000, help="of text")
    given = parser.parse_args()
    if given.context > MODELS[given.model][3]:
        parser.error(f"--context: {given.model} looks at {MODELS[given.model][3]} tokens")
    given.warmup = max(1, given.steps // 20)
    given.tokenizer = "gpt2" if given.model.startswith("gpt2") else "bytes"
    if given.out.exists() and any(given.out.iterdir()):
        parser.error(f"--out: {given.out} is not empty")
    return given


def main():
    given = arguments()
    torch.backends.cuda.matmul.allow_tf32 = given.precision == "tf32"
    given.out.mkdir(parents=True, exist_ok=True)
    corpus, model, run = given.out / "corpus.txt", given.out / "first", given.out / "run"
    corpus.write_text(make_corpus.text(1, given.bytes), encoding="ascii")
    vocabulary = 50257 if given.tokenizer == "gpt2" else 257
    one, two = (torch_gpt.Gpt(MODELS[given.model], vocabulary, seed) for seed in given.seeds)
    one.save(model)

    ours, our_seconds = train_bornite(model, corpus, run, given)
    tokens = tokens_of(run)
    theirs, their_seconds = train_torch(one, tokens, given)
    other, _ = train_torch(two, tokens, given)
    if any(loss is None or not math.isfinite(loss) for loss in ours + theirs + other):
        sys.exit("a loss is not finite")
    found, wrong, (difference, noise) = judge(ours, theirs, other, given)

    machine = torch.cuda.get_device_name(given.device) if given.device.startswith("cuda") else f"{torch.get_num_threads()} threads"
    about = f"{given.model}, {one.count() / 1e6:.1f} M parameters, {given.batch} × {given.context} tokens a step, {given.precision}"
    picture = curves_svg.draw(
        [
            curves_svg.Panel(
                f"loss: {about}",
                [
                    curves_svg.Curve(f"PyTorch, seed {given.seeds[1]}", "#bbbbbb", 1.0, other),
                    curves_svg.Curve(f"PyTorch, seed {given.seeds[0]}", "#c8573c", 2.0, theirs),
                    curves_svg.Curve(f"bornite, seed {given.seeds[0]}", "#3b76af", 1.0, ours),
                ],
            ),
            curves_svg.Panel(
                f"apart by, means over {found['window']} steps",
                [
                    curves_svg.Curve("PyTorch's two seeds (noise)", "#bbbbbb", 1.5, noise, found["window"]),
                    curves_svg.Curve("bornite and PyTorch, one seed", "#3b76af", 1.5, difference, found["window"]),
                ],
            ),
        ],
    )
    (given.out / "losses.svg").write_text(picture)
    found |= dict(
        model=about, steps=given.steps, tokens=len(tokens), device=given.device, machine=machine, torch=torch.__version__,
        seconds=dict(bornite=our_seconds, torch=their_seconds), wrong=wrong,
        losses=dict(bornite=ours, torch=theirs, torch_other_seed=other),
    )
    (given.out / "result.json").write_text(json.dumps(found) + "\n")
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(model)
    print(f"{about}; {machine}, PyTorch {torch.__version__}")
    print(f"first losses {ours[0]:.6f} and PyTorch's {theirs[0]:.6f}; last {found['last'][0]:.4f} and {found['last'][1]:.4f}")
    for kind in ("mean", "worst"):
        print(f"{kind} difference {found['difference'][kind]:.2g}, noise {found['noise'][kind]:.2g}")
    print(f"seconds of steps: {our_seconds:.1f}, PyTorch's {their_seconds:.1f}")
    print("\n".join(f"WRONG: {what}" for what in wrong) or "within noise")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
