"""The commands as Python functions, with the names and defaults of the command line. They write to the log, not to stdout."""

from electra.commands.advice import advise
from electra.commands.conversion import convert
from electra.commands.evaluation import evaluate, evaluate_mlm, minimal_pairs
from electra.commands.exporting import export
from electra.commands.finetuning import embed, finetune, glue, load, predict, serve
from electra.commands.masked_lm import fill_mask
from electra.commands.pretraining import prepare, pretrain, tokenizer
from electra.commands.publishing import push
from electra.commands.scores import score
from electra.commands.studies import flops, paper_table, study

__all__ = [
    "advise",
    "convert",
    "embed",
    "evaluate",
    "evaluate_mlm",
    "export",
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
    "serve",
    "study",
    "tokenizer",
]
