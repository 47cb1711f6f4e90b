"""ELECTRA: pre-train a text encoder by replaced token detection, from a folder of text to a Hugging Face checkpoint.

The public names are the commands (`electra.pretrain` and so on, the same as on the command line), `load` for a fine-tuned
model that predicts many times, `Callback` to follow a training run, `show_log` to show what is logged, and the errors. They
are imported when they are first used, so that `import electra` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from electra.commands import (
        advise,
        convert,
        embed,
        evaluate,
        evaluate_mlm,
        export,
        fill_mask,
        finetune,
        flops,
        glue,
        load,
        minimal_pairs,
        paper_table,
        predict,
        prepare,
        pretrain,
        push,
        score,
        serve,
        study,
        tokenizer,
    )
    from electra.console import show_log
    from electra.errors import ElectraError
    from electra.train.callbacks import Callback

__version__ = "0.1.0"
__all__ = [
    "Callback",
    "ElectraError",
    "__version__",
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
    "show_log",
    "study",
    "tokenizer",
]
MODULES = {"Callback": "electra.train.callbacks", "ElectraError": "electra.errors", "show_log": "electra.console"}
"""Modules of the names that are no commands."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(MODULES.get(name, "electra.commands")), name)
    raise AttributeError(f"module 'electra' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
