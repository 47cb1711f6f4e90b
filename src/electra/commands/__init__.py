"""The commands as Python functions, with the names and defaults of the command line. They write to the log, not to stdout."""

from electra.commands.advice import advise
from electra.commands.evaluation import evaluate, evaluate_mlm, minimal_pairs
from electra.commands.finetuning import finetune, glue, load, predict
from electra.commands.masked_lm import fill_mask
from electra.commands.pretraining import prepare, pretrain, tokenizer
from electra.commands.publishing import push
from electra.commands.scores import score
from electra.commands.studies import flops, paper_table, study

__all__ = [
    "advise",
    "evaluate",
    "evaluate_mlm",
    "fill_mask",
    "finetune",
    "flops",
    "glue",
    "load",
    "minimal_pairs",
    "paper_table",
    "predict",
    "prepare",
    "pretrain",
    "push",
    "score",
    "study",
    "tokenizer",
]
