"""Sentence vectors of any encoder, for a stream of inputs."""

import os
from collections.abc import Iterator

from electra.errors import ModelError, UsageError
from electra.external import check_output_file
from electra.finetuning.config import MIN_LENGTH, FinetuneConfig
from electra.finetuning.embedding.inference import SavedEmbedding
from electra.finetuning.embedding.sentence_transformers import MODULES, read_modules
from electra.finetuning.embedding.task import EMBEDDING
from electra.finetuning.hub import find_model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.preparation import VOCABULARY_ADVICE, load_encoder
from electra.finetuning.task import Prediction, Values
from electra.inference.config import EmbedConfig, PredictConfig
from electra.inference.engines import place
from electra.inference.finetuned import LoadedModel
from electra.inference.output import find_vector_writer, write_rows
from electra.inference.predict import Predictor, check_paths
from electra.model.checkpoints import load_pretrained, read_pretrained_length
from electra.runtime.setup import start_runtime
from electra.storage import check_writable
from electra.text.coverage import CoverageMonitor
from electra.text.tokenizer import load_tokenizer


def embed(
    model: str,
    input: os.PathLike[str] | Values,
    config: EmbedConfig,
    out: str | os.PathLike[str] | None,
    private: bool,
) -> Iterator[Prediction]:
    """Yield the vector of each input in order; see `electra.embed`.

    Raises:
        UsageError, ModelError, TokenizerError, DataError, StorageError: as in `electra.embed`.
    """
    check_paths(input, out)
    if out is None:
        return load_embedder(model, config).predict(input)
    file = check_output_file(out)
    check_writable(file.parent)
    writer = find_vector_writer(file)
    return write_rows(load_embedder(model, config).predict(input), file, private, writer)


def load_embedder(model: str, config: EmbedConfig) -> Predictor:
    """Load the encoder of a model, whatever head it has, with pooling in the place of the head.

    Raises:
        ModelError: the model is of another architecture, damaged, or has too few positions, or its directory is that of
            sentence-transformers with modules that this package does not have.
        TokenizerError: its tokenizer is missing or broken.
        UsageError: --max-length is more than the positions of the model.
    """
    directory = find_model_directory(model)
    pretrained, tokenizer = load_pretrained(directory), load_tokenizer(directory)
    positions = pretrained.config.max_positions
    if positions < MIN_LENGTH:
        raise ModelError(
            "too-few-positions", f"{directory}: has {positions} positions; an input has at least {MIN_LENGTH} tokens"
        )
    if config.max_length is not None and config.max_length > positions:
        raise UsageError(
            "longer-than-model", f"--max-length {config.max_length} is more than the {positions} positions of the model"
        )
    pooling, length = "mean", read_pretrained_length(directory)
    if (directory / MODULES).exists():
        pooling, length = read_modules(directory)
    task = SavedEmbedding(
        "embedding",
        config.max_length or min(length or positions, positions),
        config.pooling or pooling,
        config.normalize,
    )
    encoder = load_encoder(pretrained, FinetuneConfig(dropout=0.0), tokenizer)
    network = FinetunedModel(encoder, task.build_head(encoder.config, "none")).eval()
    monitor = CoverageMonitor(tokenizer, "input", VOCABULARY_ADVICE)
    with start_runtime(config.runtime) as runtime:  # only its device and precision are used after that
        loaded = LoadedModel(place(network, runtime), tokenizer, task.task, EMBEDDING, task, monitor)
        return Predictor(loaded, PredictConfig(text=config.text), runtime)
