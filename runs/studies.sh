#!/usr/bin/env bash
# The studies of docs/research/results.md: runs/studies.sh TEXT GLUE OUT [SCALE] [TAGS]
#
# TEXT: a file or folder of text. GLUE: a folder in GLUE's layout. OUT: folder for the studies. TAGS: a folder of sentences
# with word tags (CoNLL-2000), for the tag probe. Two runs at a time with a thread each; an interrupted command continues when
# repeated. The fine-tuned scores of that page were made with Adam's bias correction, which is off by default since, and with
# Table 7's values; encoders narrower than 256 have other defaults since. About four and a half hours at scale tiny on two idle
# cores of an Intel Xeon with AVX-512 (the sum of its parts), with those values.
set -euo pipefail
text=${1:?a folder of text}; glue=${2:?a folder in the layout of GLUE}; out=${3:?a folder for the studies}; scale=${4:-tiny}; tags=${5:-}
study() { electra study "$@" --glue "$glue" --scale "$scale" ${tags:+--tags "$tags"} --workers 2; }

# The following studies use the scale's learning rate for ELECTRA and BERT; add --rates electra=... mlm=... to change it.
study learning-rate --data "$text" --out "$out/learning-rate" --seeds 1 --finetune-seeds 0
study objectives --data "$out/learning-rate/data" --out "$out/objectives" --seeds 2
study generator-size --data "$out/learning-rate/data" --out "$out/generator-size" --seeds 2
study efficiency --data "$out/learning-rate/data" --out "$out/efficiency" --seeds 2 --finetune-seeds 0
study convergence --data "$out/learning-rate/data" --out "$out/convergence" --seeds 2 --finetune-seeds 0 --variants electra-4 mlm-4
