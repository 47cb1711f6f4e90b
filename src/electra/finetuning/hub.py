"""Models and labeled data sets of the Hugging Face hub; both need the extra `electra[hub]`."""

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.errors import DataError, ModelError, UsageError

log = logging.getLogger(__name__)


MODEL_FILES = ["config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt", "tokenizer*.json"]


def require_hub(what: str) -> None:
    """Raise a UsageError if the extra is not installed."""
    if importlib.util.find_spec("datasets") is None or importlib.util.find_spec("huggingface_hub") is None:
        raise UsageError(
            "missing-extra", f"{what}: the hub needs an extra: pip install 'electra[hub]' (from a clone: '.[hub]')"
        )


def load_split(dataset: str, config: str, split: str) -> Mapping[str, Sequence[Any]]:
    """The columns of one split.

    Raises:
        DataError: there is no such data set, configuration or split, or the hub cannot be reached.
    """
    require_hub(f"hf://{dataset}")
    import datasets

    try:
        return datasets.load_dataset(dataset, config, split=split).to_dict()
    except Exception as error:  # as varied as its file formats and file systems
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError("unreadable", f"hf://{dataset}: {config}/{split} cannot be read ({reason})") from error


def find_model_directory(model: str) -> Path:
    """The directory of a model: the path itself, the model of a run, or a downloaded hub model.

    A pre-training run has it in discriminator/ (or masked_lm/), a fine-tuning run in model/, one over several seeds in
    seed-N/model/, of which the first is taken, and logged.

    Raises:
        ModelError: neither a directory nor a model on the hub.
    """
    path = Path(model)
    for candidate in (path, path / "discriminator", path / "masked_lm", path / "model"):
        if (candidate / "config.json").exists():
            return candidate
    if seeds := sorted(path.glob("seed-*/model/config.json"), key=lambda found: (len(str(found)), found)):
        log.info(
            f"{seeds[0].parent} (the first of {len(seeds)} seeds; name another one's directory to take that)",
            extra={"code": "first-seed"},
        )
        return seeds[0].parent
    if path.exists() or model.count("/") > 1 or model.startswith((".", "/")):
        raise ModelError(
            "not-model",
            f"{model}: not a model directory, it has no config.json; name a run of electra or a Hugging Face model",
        )
    require_hub(model)
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=MODEL_FILES))
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError("missing", f"{model}: neither a directory nor a model on the hub ({reason})") from error
