"""The commands of the command line by name, and what each adds to its function."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from electra.config.options import lookup

HELP = """usage: electra COMMAND ...

Pre-train a text encoder by replaced token detection, from a folder of text to a Hugging Face checkpoint.

commands:
{commands}

`electra COMMAND --help` explains the options of a command.
Try it:  electra pretrain builtin --preset tiny --hours 0.06 --out demo
"""


@dataclass(frozen=True)
class Command:
    """What the command line adds to a function of `electra.commands`, whose parameters are the options."""

    summary: str
    config: str = ""
    """Module and name of the dataclass whose fields are options too."""
    is_result: bool = False
    """What it prints is its result; the other commands continue when their output cannot be written."""
    writes_json: bool = False
    """Its result are JSON lines on standard output, so that log records and progress go to standard error."""
    reads_texts: bool = False
    """Its --input is a file of texts, or standard input; in Python a string is a text."""
    shows: bool = True
    """There is a function in `electra.display` for what it returns."""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Differences of options from the function's parameters, by option."""


PRESET = {"preset": {"choices": lookup("electra.presets.PRESETS"), "optional": False}}
METHODS = {"methods": {"choices": lookup("electra.pretraining.evaluation.network_scorer.METHODS")}}
COMMANDS = {
    "pretrain": Command(
        "Pre-train an encoder, from text to a scored Hugging Face checkpoint.",
        "electra.pretraining.config.PretrainConfig",
        changes=PRESET,
    ),
    "advise": Command("Recommend a pre-training run for a text and a number of hours on this machine.", is_result=True),
    "tokenizer": Command("Train a tokenizer on text: WordPiece, BPE or Unigram.", shows=False),
    "prepare": Command("Tokenize text into shards that training maps into memory.", shows=False),
    "convert": Command(
        "Convert a TensorFlow checkpoint of the original code to Hugging Face directories.", shows=False
    ),
    "evaluate": Command("Compute the held-out metrics of a run.", is_result=True),
    "evaluate-mlm": Command("Compute the masked-LM accuracy of an ELECTRA on held-out text.", is_result=True),
    "fill-mask": Command("Predict the tokens at [MASK] with an ELECTRA or a masked language model.", is_result=True),
    "score": Command(
        "Score sentences by a pre-trained model, as JSON lines.", is_result=True, writes_json=True, changes=METHODS
    ),
    "minimal-pairs": Command(
        "Compute the accuracies of a pre-trained model on minimal pairs, such as BLiMP.",
        is_result=True,
        changes=METHODS,
    ),
    "finetune": Command(
        "Fine-tune an encoder on a task by the paper's protocol, and score it.",
        "electra.finetuning.config.FinetuneConfig",
        changes={"task": {"choices": lookup("electra.finetuning.registry.TASKS")}},
    ),
    "predict": Command(
        "Predict labels, tags or answers with a fine-tuned model, as JSON lines.",
        "electra.inference.config.PredictConfig",
        is_result=True,
        writes_json=True,
        reads_texts=True,
        changes={
            "model": {"positional": False},
            "input": {
                "positional": False,
                "many": False,
                "help": "Text (.txt .jsonl .csv .tsv .parquet), words to tag (also CoNLL), or questions (also SQuAD); "
                "- is the standard input.",
            },
            "out": {"help": "File for the JSON lines; by default the standard output."},
        },
    ),
    "embed": Command(
        "Compute sentence vectors with an encoder, as JSON lines, a NumPy array or Parquet.",
        "electra.inference.config.EmbedConfig",
        is_result=True,
        writes_json=True,
        reads_texts=True,
        changes={
            "model": {"positional": False},
            "input": {
                "positional": False,
                "many": False,
                "help": "Texts (.txt .jsonl .csv .tsv .parquet); - is the standard input.",
            },
            "out": {"help": "File (.jsonl .npy .parquet); by default JSON lines on the standard output."},
        },
    ),
    "export": Command(
        "Export a model to a format of other programs, and compare it with PyTorch.",
        is_result=True,
        changes={"to": {"choices": lookup("electra.inference.export.EXPORT_FORMATS")}},
    ),
    "serve": Command(
        "Serve a fine-tuned model over HTTP: JSON in, predictions out.",
        "electra.inference.config.PredictConfig",
        shows=False,
    ),
    "push": Command("Send a model to the Hugging Face hub."),
    "glue": Command(
        "Fine-tune an encoder on the tasks of GLUE over several seeds, and compare it with the paper.",
        "electra.finetuning.config.FinetuneConfig",
    ),
    "flops": Command("Count the FLOPs and parameters of a preset.", is_result=True, changes=PRESET),
    "paper-table": Command("Compute the FLOPs and parameters in a table of the paper.", is_result=True),
    "study": Command(
        "Compare variants of pre-training at equal compute by a grid of runs, as in the tables and figures of the paper.",
        changes={
            "name": {"choices": lookup("electra.studies.catalog.STUDIES")},
            "scale": {"choices": lookup("electra.studies.scales.SCALES")},
        },
    ),
}
