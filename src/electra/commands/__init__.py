"""The commands as Python functions: what `electra NAME` does, with the same names and the same defaults."""

from electra.commands.finetuning import finetune, glue, load, predict
from electra.commands.masked_lm import fill_mask
from electra.commands.pretraining import evaluate, prepare, pretrain, tokenizer
from electra.commands.studies import flops, study

__all__ = [
    "evaluate",
    "fill_mask",
    "finetune",
    "flops",
    "glue",
    "load",
    "predict",
    "prepare",
    "pretrain",
    "study",
    "tokenizer",
]
