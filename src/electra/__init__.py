"""ELECTRA: pre-train a text encoder by replaced token detection, from a folder of text to a Hugging Face checkpoint.

The public names are the commands (`electra.pretrain` and so on, the same as on the command line), `load` for a fine-tuned
model that predicts many times, and the errors. They are imported when they are first used, so that `import electra` costs
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from electra.commands import (
        evaluate,
        evaluate_mlm,
        fill_mask,
        finetune,
        flops,
        glue,
        load,
        paper_table,
        predict,
        prepare,
        pretrain,
        study,
        tokenizer,
    )
    from electra.errors import ElectraError

__version__ = "0.1.0"
__all__ = [
    "ElectraError",
    "__version__",
    "evaluate",
    "evaluate_mlm",
    "fill_mask",
    "finetune",
    "flops",
    "glue",
    "load",
    "paper_table",
    "predict",
    "prepare",
    "pretrain",
    "study",
    "tokenizer",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("electra.errors" if name == "ElectraError" else "electra.commands"), name)
    raise AttributeError(f"module 'electra' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
