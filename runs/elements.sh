#!/usr/bin/env bash
# The study of elements, one run after the other on one thread:
#
#   runs/elements.sh TEXT GLUE CHUNK PAIRS OUT [SCALE] [SHARE]
#
# TEXT: a file, a folder of text, or prepared data. GLUE: a folder in GLUE's layout. CHUNK: the folder of CoNLL-2000. PAIRS: a
# file of minimal pairs (JSON lines with UID), of which the first 100 of each paradigm are used. SHARE: of the scale's budget.
# Three to four minutes a run at a quarter of scale tiny, scores included. It continues when repeated, so it may be stopped at
# any time. Records of finished runs are in docs/research/results/records/elements-SCALE-SHARE; copied to OUT/trials by this
# script, they are not run again, if the data is the same. The variants are in the order of their interest.
set -euo pipefail
text=${1:?text}; glue=${2:?a folder in the layout of GLUE}; chunk=${3:?CoNLL-2000}; pairs=${4:?minimal pairs}; out=${5:?a folder}
scale=${6:-tiny}; share=${7:-0.25}
export OMP_NUM_THREADS=1
records=$(dirname "$0")/../docs/research/results/records/elements-$scale-$share
mkdir -p "$out/trials"
[ ! -d "$records" ] || cp --no-clobber "$records"/*.json "$out/trials/"

cut=$(dirname "$out")/pairs100.jsonl
python - "$pairs" > "$cut" << 'END'
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

study() {  # seeds, variants
  local seeds=$1; shift
  electra study elements --scale "$scale" --share "$share" --data "$text" --glue "$glue" --tags "$chunk" \
    --minimal-pairs "$cut" --out "$out" --seeds "$seeds" --finetune-seeds 0 --device cpu --variants "$@"
}

study 3 mlm mlm-replaced shared-both unigram-both electra electra-adamw mlm-adamw
study 1 shared-masked generator-half mlm-spans from-frequencies trunk corrective-lm masked-lm-first frozen-generator
study 1 mlm-falling-fraction mlm-average falling-temperature disentangled electric-unigram unigram untrained
study 1 electric layer-mixture sequence-contrast shared-falling electra-spans electra-falling-fraction shared both
study 3 mlm-words electra-words shared-both-words
study 1 unigram-both-words both-words corrective-lm-words mlm-words-replaced trunk-words trunk-both-words
study 1 electra-wsd mlm-wsd mlm-dropout mlm-small-batches mlm-random-attention electra-random-attention
study 1 mlm-neighbors-adamw electra-neighbors-adamw
