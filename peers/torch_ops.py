"""PyTorch op by op: what a user would pick instead of Bornite, measured on this machine.

    python3 peers/torch_ops.py > torch_ops.jsonl
    python3 peers/torch_ops.py --device cpu --threads 8 --filter matmul

On a GPU each op is timed twice: called as a user calls it (`eager_ms`), and inside a CUDA graph,
where launch cost does not hide the kernel. `ms` is the better of the two.
"""

import argparse
from functools import partial

import torch

import cases
import cases_cuda
import common

GROUPS = (
    cases.elementwise,
    cases.matmul,
    cases.training_steps,
    cases.rows,
    cases.linear_gelu,
    cases.mlp_block,
    cases.convolution,
    cases_cuda.attention,
    cases_cuda.loss_and_optimiser,
)


def run(case, timer):
    """Times a case and prints its row."""
    with case.context():
        call = case.build(timer)
        eager_ms = ms = timer.median_ms(call)
        extra = {}
        calls = case.graph_calls
        if calls is None:
            calls = 64 if eager_ms < 0.2 else 4  # 64: every rotating input is in the graph
        if timer.is_cuda and calls > 0:
            try:
                ms = min(ms, timer.graph_ms(call, calls))
            except RuntimeError as error:
                extra["note"] = f"no graph: {common.first_line(error)}"
    common.print_row(
        case.name,
        ms,
        eager_ms=eager_ms,
        flops=case.flops,
        moved_bytes=case.moved_bytes,
        **extra,
    )


def main():
    parser = argparse.ArgumentParser(description="Time PyTorch op by op; prints JSON lines.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--filter",
        default=[],
        action="append",
        metavar="SUBSTR",
        help="only ops whose name has it; may be given again for more",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of one op")
    arguments = parser.parse_args()

    common.require(arguments.device)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True

    common.print_machine(arguments.device)
    timer = common.Timer(arguments.device)
    randn = partial(torch.randn, device=arguments.device)
    for case in (case for group in GROUPS for case in group(randn)):
        wanted = not arguments.filter or any(part in case.name for part in arguments.filter)
        if not wanted or (arguments.device == "cpu" and not case.on_cpu):
            continue
        try:
            run(case, timer)
        except RuntimeError as error:  # no such kernel, or out of memory
            common.print_skipped(case.name, error)


if __name__ == "__main__":
    main()
