#!/usr/bin/env bash
# An encoder from a folder of text in 52 minutes of training on a CPU.
#
#   runs/hour.sh TEXT OUT
#
# 40 minutes at length 32 (attention finds its neighbours sooner in short sequences), then 12 at length 128 (the positions
# that pairs of sentences need). Preparing the text comes on top. What came out so far, and what
# it scored: LOG.md.
set -euo pipefail
text=${1:?a folder of text}; out=${2:?a folder for the results}
here=$(dirname "$0")

electra tokenizer "$text" --out "$out/tokenizer" --vocab-size 8192
electra pretrain "$text" --tokenizer "$out/tokenizer" --config "$here/hour.yaml" --out "$out/short" \
  --seq-len 32 --training.batch-size 32 --hours 0.667
electra pretrain "$text" --tokenizer "$out/tokenizer" --config "$here/hour.yaml" --out "$out/long" --init "$out/short" \
  --seq-len 128 --training.batch-size 16 --hours 0.2 --optimizer.learning-rate 5e-4
