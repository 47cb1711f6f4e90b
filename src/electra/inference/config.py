"""The options of prediction and of sentence vectors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from electra.config.checks import check_range
from electra.config.options import choice_field, lookup
from electra.config.resolve import resolve
from electra.errors import UsageError
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.embedding.sentence_transformers import POOLING_MODES
from electra.runtime.setup import RuntimeConfig


@dataclass(frozen=True)
class PredictRuntimeConfig(RuntimeConfig):
    """Device, precision, threads, kernels, and what computes the network."""

    engine: str = choice_field("torch", lookup("electra.inference.engines.ENGINES"))
    """torch: PyTorch; onnx: ONNX Runtime, for a directory of electra export or a .onnx file in one, on a CPU and in the
    precision of the file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == "onnx" and (self.device == "cuda" or self.precision == "bfloat16"):
            raise UsageError(
                "conflicting-options",
                "--runtime.engine onnx computes on a CPU in the precision of the file, but --runtime.device is "
                f"{self.device} and --runtime.precision {self.precision}; leave both out, or use the engine torch",
            )


@dataclass(frozen=True)
class PredictConfig:
    """Options for reading and predicting inputs."""

    text: str | None = None
    """Column of the text in tables; by default that of the table of fine-tuning, or "sentence"."""
    text_pair: str | None = None
    """Column of the second text of a pair; by default that of the table of fine-tuning."""
    form: Literal["columns", "lines"] = "columns"
    """Format of a .txt file to tag: words in columns (CoNLL) or sentences in lines; standard input has sentences in lines."""
    null_threshold: float | None = None
    """Null odds above which a question has no answer; by default the threshold with the best F1 on dev in fine-tuning."""
    runtime: PredictRuntimeConfig = field(default_factory=PredictRuntimeConfig)
    """Device, precision and engine."""

    def __post_init__(self) -> None:
        if self.null_threshold is not None and math.isnan(self.null_threshold):
            raise UsageError("not-finite", "--null-threshold is NaN; it must be a number")


def build_predict_config(given: Mapping[str, Any]) -> PredictConfig:
    """Build the configuration from options by name; nested names as in `electra.config.resolve.resolve`.

    Raises:
        UsageError: an unknown name or a wrong value.
    """
    return resolve(PredictConfig(), {}, given, command="predict")


@dataclass(frozen=True)
class EmbedConfig:
    """Options of sentence vectors."""

    text: str | None = None
    """Column of the text in tables; by default "sentence"."""
    pooling: str | None = choice_field(None, lambda: POOLING_MODES)
    """The vector of a text is the mean of the last hidden states of its tokens, or that of [CLS]; by default that of a
    sentence-transformers directory, else mean."""
    normalize: bool = True
    """Divide each vector by its L2 norm, so that dot products are cosine similarities."""
    max_length: int | None = None
    """Maximum tokens of a text; by default that of a sentence-transformers directory or of pre-training, else the positions of
    the model."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        check_range(self, "", "max_length", at_least=MIN_LENGTH, at_most=10**7)


def build_embed_config(given: Mapping[str, Any]) -> EmbedConfig:
    """Build the configuration from options by name; nested names as in `electra.config.resolve.resolve`.

    Raises:
        UsageError: an unknown name or a wrong value.
    """
    return resolve(EmbedConfig(), {}, given, command="embed")
