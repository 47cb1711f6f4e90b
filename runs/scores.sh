#!/usr/bin/env bash
# Scores of the encoder of runs/hour.sh, compared with the same network with random weights.
#
#   runs/scores.sh ENCODER DATA OUT
#
# DATA has glue/ (GLUE's layout), squad/ (train and dev of version 1.1) and chunk/ (CoNLL-2000: train.txt, test.txt).
# Two processes with one thread each; 45 minutes on an Intel Xeon with AVX-512. Results, with Adam's bias correction, which
# was the default then: docs/research/results.md.
set -euo pipefail
encoder=${1:?a run of electra pretrain}; data=${2:?a folder with glue, squad and chunk}; out=${3:?a folder for the results}
one="--runtime.threads 1 --bias-correction --learning-rate 3e-4 --layerwise-decay 0.8"  # Table 7's values, for any width
glue() {  # MODEL OUT [OPTION ...]
  electra glue --model "$1" --data "$data/glue" --out "$2" --tasks cola sst2 mrpc --epochs 3 --pooling cls --seeds 3 $one "${@:3}"
  electra glue --model "$1" --data "$data/glue" --out "$2" --tasks stsb rte --epochs 10 --pooling cls --seeds 3 $one "${@:3}"
}

{
  glue "$encoder" "$out/glue"
  electra finetune chunk --model "$encoder" --data "$data/chunk" --out "$out/chunk" --epochs 3 --seeds 3 $one
} > "$out-encoder.log" 2>&1 &
{
  glue "$encoder" "$out/glue-scratch" --from-scratch
  electra finetune chunk --model "$encoder" --data "$data/chunk" --out "$out/chunk-scratch" --epochs 3 --seeds 3 --from-scratch $one
} > "$out-scratch.log" 2>&1 &
wait

# The encoder was trained on positions up to 128.
train=$(ls "$data"/squad/train-v1.1*); dev=$(ls "$data"/squad/dev-v1.1*)
for start in "" --from-scratch; do
  electra finetune squad1 --model "$encoder" --train "$train" --dev "$dev" --out "$out/squad$start" \
    --max-length 128 --span.doc-stride 64 --epochs 2 $start $one > "$out-squad$start.log" 2>&1 &
done
wait

# A row per score: network, task, split, metric, seed.
python - "$out" > "$out.csv" << 'END'
import csv, json, sys
from pathlib import Path

rows = csv.writer(sys.stdout, lineterminator="\n")
rows.writerow(["start", "task", "split", "metric", "seed", "value"])
for file in sorted(Path(sys.argv[1]).glob("**/results.json")):
    found = json.loads(file.read_text())
    if {"metrics", "seeds"} <= found.keys():  # results of a task over its seeds
        start = "random weights" if found["start"] == "random weights" else "pre-trained"
        for split, metrics in found["metrics"].items():
            for metric, each in metrics.items():
                for seed, value in zip(found["seeds"], each["values"]):
                    rows.writerow([start, found["task"], split, metric, seed, f"{value:.2f}"])
END
