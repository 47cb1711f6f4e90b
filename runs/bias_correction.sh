#!/usr/bin/env bash
# Fine-tuning without and with Adam's bias correction, from one encoder: five tasks, SEEDS seeds (default: five).
#
#   runs/bias_correction.sh ENCODER DATA OUT [SEEDS]
#
# DATA has glue/ (GLUE's layout: CoLA, MRPC, RTE, STS-B) and chunk/ (CoNLL-2000: train.txt, test.txt). One thread.
# An interrupted run continues with the same command. OUT.csv: a row per score. Results and encoder: docs/research/results.md.
set -euo pipefail
encoder=${1:?a run of electra pretrain}; data=${2:?a folder with glue and chunk}; out=${3:?a folder for the results}
seeds=${4:-5}

for number in $(seq "$seeds"); do  # one seed of every task at a time, so partial results can be compared
  for task in chunk cola mrpc rte stsb; do
    folder=$data/glue; pooling="--pooling cls"; epochs=3  # Table 7's values, for any width
    case $task in chunk) folder=$data/chunk; pooling= ;; rte|stsb) epochs=10 ;; esac
    for correction in false true; do
      electra finetune "$task" --model "$encoder" --data "$folder" --out "$out/$task-$correction" --seeds "$number" \
        --bias-correction "$correction" --learning-rate 3e-4 --layerwise-decay 0.8 --epochs "$epochs" $pooling --runtime.threads 1
    done
  done
done

python - "$out" > "$out.csv" << 'END'
import csv, json, sys
from pathlib import Path

rows = csv.writer(sys.stdout, lineterminator="\n")
rows.writerow(["task", "bias_correction", "split", "metric", "seed", "value", "steps", "hardware"])
for file in sorted(Path(sys.argv[1]).glob("*/seed-*/results.json")):
    run = json.loads(file.read_text())
    correction = file.parent.parent.name.rpartition("-")[2]
    for split, metrics in run["metrics"].items():
        for metric, value in metrics.items():
            rows.writerow([run["task"], correction, split, metric, run["seed"], f"{value:.2f}", run["steps"], run["hardware"]])
END
