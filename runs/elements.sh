#!/usr/bin/env bash
# The study of elements, one run after the other on one thread: runs/elements.sh TEXT GLUE CHUNK PAIRS OUT [SCALE] [SEEDS]
#
# TEXT: a file, a folder of text, or prepared data. GLUE: a folder in GLUE's layout. CHUNK: the folder of CoNLL-2000. PAIRS: a
# file of minimal pairs. About six minutes a run at scale tiny, half an hour at scale mini. It continues when repeated, so it
# may be stopped at any time. The variants are in the order of their interest; a second call with more SEEDS adds runs.
set -euo pipefail
text=${1:?text}; glue=${2:?a folder in the layout of GLUE}; chunk=${3:?CoNLL-2000}; pairs=${4:?minimal pairs}; out=${5:?a folder}
scale=${6:-tiny}; seeds=${7:-1}
export OMP_NUM_THREADS=1
study() {
  electra study elements --scale "$scale" --data "$text" --glue "$glue" --tags "$chunk" --minimal-pairs "$pairs" \
    --out "$out" --seeds "$seeds" --finetune-seeds 0 --device cpu ${1:+--variants "$@"}
}

study electra mlm
study mlm-muon-neighbors electra-muon-neighbors unigram-muon-neighbors
study both-shared-5 both masked filled
study mlm-muon electra-muon mlm-neighbors electra-neighbors
study shared-20 both-shared-20 masked-shared-5 filled-shared-5
study
