#!/usr/bin/env bash
# The studies of docs/results.md: runs/studies.sh TEXT GLUE OUT
#
# TEXT: files or a folder of text. GLUE: a folder in GLUE's layout. OUT: where the studies go. Two hours each on two cores, two runs
# at a time with a thread each; every command goes on where it was stopped, and --finetune-seeds 1 adds fine-tuning later.
set -euo pipefail
text=$1 glue=$2 out=$3
study() { electra study "$@" --glue "$glue" --scale tiny --workers 2 --finetune-seeds 0; }

study learning-rate --data "$text" --out "$out/learning-rate" --seeds 1
# Both sides do best at 2e-3, the scale's own rate, so no --rates follow.
study objectives --data "$out/learning-rate/data" --out "$out/objectives" --seeds 2
study generator-size --data "$out/learning-rate/data" --out "$out/generator-size" --seeds 2
