#!/bin/bash
# One process per GPU, on this machine. On several machines, run it on each with NODES set, and
# RENDEZVOUS=host:port of one of them; runs/ must be a folder that all of them share.
set -euo pipefail

if [ "${NODES:-1}" -eq 1 ]; then
    where=(--standalone)
else
    where=(--nnodes "$NODES" --rdzv-backend c10d --rdzv-endpoint "$RENDEZVOUS" --rdzv-id first)
fi
exec torchrun "${where[@]}" --nproc-per-node "${GPUS:-8}" --max-restarts 3 --no-python \
    bornite train --data texts/ --model gpt2-124m --batch 64 --set train.accumulate=8 --out runs/first --resume
