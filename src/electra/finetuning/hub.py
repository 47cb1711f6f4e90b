"""Models and labeled data sets of the Hugging Face hub; both need the extra `electra[hub]`."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.errors import DataError, ModelError
from electra.external import one_line
from electra.text.hub import require_hub

log = logging.getLogger(__name__)

MODEL_FILES = ["config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt", "tokenizer*.json"]
MODEL_FILES += ["modules.json", "1_Pooling/config.json", "*sentence*.json"]  # of sentence-transformers
"""Files of a hub model that are downloaded."""


def load_split(dataset: str, config: str, split: str) -> Mapping[str, Sequence[Any]]:
    """Read the columns of one split of a data set: name -> values.

    Raises:
        UsageError: the extra `hub` is not installed.
        DataError: there is no such data set, configuration or split, or the hub cannot be reached.
    """
    require_hub(f"hf://{dataset}")
    import datasets

    try:
        return datasets.load_dataset(dataset, config, split=split).to_dict()
    except Exception as error:  # the type depends on the file format and the file system
        reason = f"{type(error).__name__}: {one_line(error, 300)}"
        raise DataError("unreadable", f"hf://{dataset}: {config}/{split} cannot be read ({reason})") from error


def find_model_directory(model: str) -> Path:
    """Return the directory of a model, given as a directory with config.json, a run, or a hub name (which is downloaded).

    The model of a pre-training run is in discriminator/, masked_lm/ or energy_model/, that of a fine-tuning run in model/, or
    in seed-N/model/, of which the lowest seed is used and logged.

    Raises:
        ModelError: neither a directory nor a model on the hub.
        UsageError: a hub name, and the extra `hub` is not installed.
    """
    path = Path(model)
    for candidate in (path, path / "discriminator", path / "masked_lm", path / "energy_model", path / "model"):
        if (candidate / "config.json").exists():
            return candidate
    if seeds := sorted(path.glob("seed-*/model/config.json"), key=lambda found: (len(str(found)), found)):
        others = f" (the first of {len(seeds)} seeds; for another, name its directory)" if len(seeds) > 1 else ""
        log.info(f"model: {seeds[0].parent}{others}", extra={"code": "first-seed"})
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
        reason = f"{type(error).__name__}: {one_line(error, 300)}"
        raise ModelError("missing", f"{model}: neither a directory nor a model on the hub ({reason})") from error
