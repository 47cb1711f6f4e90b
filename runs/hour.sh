#!/usr/bin/env bash
# An encoder from a folder of text in about an hour of training on one CPU thread.
#
#   runs/hour.sh TEXT OUT [SEED]
#
# 24,000 updates at length 32 (attention learns to use neighbors earlier in short sequences), then 3,500 at length 128 (the
# positions that sentence pairs need): 40 and 12 minutes on a thread of an Intel Xeon with AVX-512, without the preparation of
# the text. The budget is in updates, not hours, so the result does not depend on other load. Results:
# docs/research/results.md.
set -euo pipefail
text=${1:?a folder of text}; out=${2:?a folder for the results}; seed=${3:-0}
here=$(dirname "$0")
same="--config $here/hour.yaml --seed $seed --runtime.threads 1"

[ -e "$out/tokenizer" ] || electra tokenizer "$text" --out "$out/tokenizer" --vocab-size 8192
electra pretrain "$text" --tokenizer "$out/tokenizer" $same --out "$out/short-$seed" \
  --seq-len 32 --training.batch-size 32 --steps 24000
electra pretrain "$text" --tokenizer "$out/tokenizer" $same --out "$out/long-$seed" --init "$out/short-$seed" \
  --seq-len 128 --training.batch-size 16 --steps 3500 --optimizer.learning-rate 5e-4
