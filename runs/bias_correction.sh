#!/usr/bin/env bash
# Fine-tuning without and with Adam's bias correction, from one encoder: five seeds of RTE, MRPC, CoLA and STS-B.
#
#   runs/bias_correction.sh ENCODER GLUE OUT [SEEDS]
#
# One thread. Stopped, the same command goes on. OUT.csv has a row for each score. What came out: docs/results.md.
set -euo pipefail
encoder=${1:?a run of electra pretrain}; glue=${2:?a folder in the layout of GLUE}; out=${3:?a folder for the results}
seeds=${4:-5}

for number in $(seq "$seeds"); do  # a seed of every task at a time: what is there may be compared before the end
  for task in cola rte mrpc stsb; do
    for correction in false true; do
      electra finetune "$task" --model "$encoder" --data "$glue" --out "$out/$task-$correction" --seeds "$number" \
        --bias-correction "$correction" --runtime.threads 1
    done
  done
done

python - "$out" > "$out.csv" << 'END'
import csv, json, sys
from pathlib import Path

rows = csv.writer(sys.stdout, lineterminator="\n")
rows.writerow(["task", "bias_correction", "metric", "seed", "value", "steps", "hardware"])
for file in sorted(Path(sys.argv[1]).glob("*/results.json")):
    summary = json.loads(file.read_text())
    correction = file.parent.name.rpartition("-")[2]
    for metric, each in summary["metrics"]["dev"].items():
        for seed, value in zip(summary["seeds"], each["values"]):
            run = json.loads((file.parent / f"seed-{seed}" / "results.json").read_text())
            rows.writerow([summary["task"], correction, metric, seed, f"{value:.2f}", run["steps"], run["hardware"]])
END
