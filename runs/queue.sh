#!/usr/bin/env bash
# The queue of experiments beyond the paper, one run after the other on one thread:
#
#   runs/queue.sh TEXT GLUE CHUNK PAIRS OUT
#
# TEXT: a file, a folder of text, or prepared data. GLUE: a folder in GLUE's layout. CHUNK: the folder of CoNLL-2000. PAIRS: a
# file of minimal pairs (JSON lines with UID), of which the first 100 of each paradigm are used. It continues when repeated, so
# it may be stopped at any time. Records of finished runs are in
# docs/research/results/records/STUDY-SCALE-SHARE; copied to OUT/STUDY-SCALE-SHARE/trials by this script, they are not run again,
# if the data is the same. Copy new ones there, and write their rows with `python runs/records.py`.
#
# A run at a quarter of scale tiny takes three to four minutes with its scores, one of mini five to seven (an AMD EPYC); fine-tuning on
# five tasks takes six minutes more. The lines are in the order of their interest.
set -euo pipefail
text=${1:?text}; glue=${2:?a folder in the layout of GLUE}; chunk=${3:?CoNLL-2000}; pairs=${4:?minimal pairs}; root=${5:?a folder}
export OMP_NUM_THREADS=1
mkdir -p "$root"

python - "$pairs" > "$root/pairs100.jsonl" << 'END'
import sys
from collections import Counter
from pathlib import Path

from electra.text.lines import parse_json_record, read_numbered_lines

found = Counter()
for number, line in read_numbered_lines(Path(sys.argv[1])):
    paradigm = parse_json_record(line, f"line {number}")["UID"]
    found[paradigm] += 1
    if found[paradigm] <= 100:
        print(line)
END

study() {  # name, scale, share of the scale's budget, seeds, fine-tuning seeds, variants
  local name=$1 scale=$2 share=$3 seeds=$4 finetune_seeds=$5; shift 5
  local out=$root/$name-$scale-$share records; records=$(dirname "$0")/../docs/research/results/records/$name-$scale-$share
  mkdir -p "$out/trials"
  [ ! -d "$records" ] || cp --no-clobber "$records"/*.json "$out/trials/"
  electra study "$name" --scale "$scale" --share "$share" --data "$text" --glue "$glue" --tags "$chunk" \
    --minimal-pairs "$root/pairs100.jsonl" --out "$out" --seeds "$seeds" --finetune-seeds "$finetune_seeds" --device cpu \
    --variants "$@"
}

study elements tiny 0.25 3 0 mlm mlm-replaced shared-both unigram-both electra electra-adamw mlm-adamw
study elements tiny 0.25 3 0 mlm-words electra-words shared-both-words
study crossover mini 1 3 1 electra-0.25 mlm-0.25 shared-both-0.25
study crossover mini 1 1 0 mlm-1 shared-both-1 electra-1
study crossover tiny 1 3 0 mlm-1 shared-both-1 electra-1
study elements tiny 0.25 1 0 shared-masked generator-half mlm-spans from-frequencies trunk corrective-lm masked-lm-first
study elements tiny 0.25 1 0 frozen-generator mlm-falling-fraction mlm-average falling-temperature disentangled unigram
study elements tiny 0.25 1 0 unigram-both-words both-words corrective-lm-words mlm-words-replaced trunk-words
study elements tiny 0.25 1 0 trunk-both-words electric electric-unigram layer-mixture sequence-contrast shared-falling
study elements tiny 0.25 1 0 electra-spans electra-falling-fraction shared both untrained electra-wsd mlm-wsd mlm-dropout
study elements tiny 0.25 1 0 mlm-small-batches mlm-random-attention electra-random-attention mlm-neighbors-adamw
study elements tiny 0.25 1 0 electra-neighbors-adamw
study crossover mini 1 3 0 mlm-1 shared-both-1 electra-1
study crossover tiny 1 3 0 mlm-4 shared-both-4 electra-4
