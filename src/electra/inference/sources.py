"""Models to export: which network of a directory, its outputs, and the files that an exported model keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from electra.data.batch import Batch
from electra.errors import DataError, ModelError
from electra.finetuning.batching import LabeledBatch
from electra.finetuning.classification.inference import SavedClassification, check_pairs, encode_pairs, read_texts
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.export import HEAD_FILE
from electra.finetuning.hub import find_model_directory
from electra.finetuning.model import FinetunedModel
from electra.inference.finetuned import LabelConfig, LoadedModel, load_finetuned
from electra.model.architecture import ARCHITECTURES
from electra.model.checkpoints import (
    PRETRAINING_HEADS,
    find_pretraining_heads,
    load_pretrained,
    read_pretrained_length,
)
from electra.model.encoder import Encoder
from electra.model.hf_config import CONFIG_BYTES, load_config
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.schema import read_json
from electra.text.tokenizer import Tokenizer, load_tokenizer

HIDDEN = "last_hidden_state"
"""Name of the output of an encoder without a head."""
ENCODER = "none"
"""Kind of head of an encoder without one."""


@dataclass(frozen=True)
class ExportedNetwork:
    """A network in PyTorch, and the outputs that its file in another format has."""

    module: nn.Module
    kind: str
    """Kind of head, or for text classification of labels, which determines the predictions."""
    positions: int
    """Maximum number of tokens of a sequence."""
    compute: Callable[[Batch], dict[str, Tensor]]
    """Compute the outputs by name, tensors [B, ...], by `module`."""


@dataclass(frozen=True)
class ExportSource:
    """A model to export."""

    directory: Path
    network: ExportedNetwork
    tokenizer: Tokenizer
    max_length: int
    """Maximum number of tokens in use."""
    files: tuple[str, ...] = ()
    """Files of `directory` that the exported model keeps."""

    def encode_texts(self, file: Path) -> tuple[list[list[int]], list[int]]:
        """Return the token ids of the texts in a file, and the numbers of tokens of their first segments.

        Raises:
            DataError: the file cannot be read, has no text, or has single texts and pairs.
        """
        texts = list(check_pairs(read_texts(str(file), "text", None), None))
        if not texts:
            raise DataError("no-rows", f"{file}: has no texts")
        second = None if texts[0].second is None else [text.second or "" for text in texts]
        input_ids, segment_a, _ = encode_pairs(self.tokenizer, [text.first for text in texts], second, self.max_length)
        return input_ids, segment_a


def load_source(model: str, encoder: bool) -> ExportSource:
    """Load a model to export: a fine-tuned one, a network of pre-training, or an encoder.

    Args:
        model: Directory, run or hub name.
        encoder: Whether to leave out the head.

    Raises:
        ModelError: not a model, a damaged one, one of another architecture, or of a class with a head of another kind.
        TokenizerError: its tokenizer is missing or broken.
    """
    directory = find_model_directory(model)
    config = load_config(directory)
    if config.max_positions < MIN_LENGTH:
        raise ModelError(
            "too-few-positions",
            f"{directory}: has {config.max_positions} positions; an input has at least {MIN_LENGTH} tokens",
        )
    kind = ENCODER if encoder else find_kind(directory)
    has_task = (directory / "task.json").exists() or kind not in (*PRETRAINING_HEADS, ENCODER)
    if has_task and not encoder:
        return build_finetuned_source(directory, load_finetuned(str(directory)), kind, config.max_positions)
    pretrained = load_pretrained(directory)
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            "vocabulary-over-embeddings",
            f"{directory}: its tokenizer has {tokenizer.vocab_size:,} tokens, but the model has embeddings of "
            f"{config.vocab_size:,}",
        )
    builders: dict[str, Callable[[], nn.Module]] = {
        "replaced-token": lambda: Discriminator(config),
        "masked-lm": lambda: MaskedLM(config),
        ENCODER: lambda: nn.ModuleDict({"encoder": Encoder(config)}),
    }
    module = builders[kind]()
    module.load_state_dict(pretrained.state(kind))
    module.eval()
    network = module["encoder"] if isinstance(module, nn.ModuleDict) else module
    output = HIDDEN if kind == ENCODER else "logits"

    def compute(batch: Batch) -> dict[str, Tensor]:
        return {output: network(batch.input_ids, batch.token_type_ids, batch.attention_mask)}

    length = min(read_pretrained_length(directory) or config.max_positions, config.max_positions)
    return ExportSource(
        directory, ExportedNetwork(module, kind, config.max_positions, compute), tokenizer, max(length, MIN_LENGTH)
    )


def build_finetuned_source(directory: Path, loaded: LoadedModel, kind: str, positions: int) -> ExportSource:
    """Build the source of a fine-tuned model. If no Hugging Face class has its head, the outputs are those of the encoder."""
    module = loaded.model
    assert isinstance(module, FinetunedModel)
    if (directory / HEAD_FILE).exists():

        def compute(batch: Batch) -> dict[str, Tensor]:
            return {HIDDEN: module.encoder(batch.input_ids, batch.token_type_ids, batch.attention_mask)}

    else:

        def compute(batch: Batch) -> dict[str, Tensor]:
            labeled = LabeledBatch(batch, {})
            return module.head.predict(module.compute_hidden(labeled), labeled)  # type: ignore[operator]

    if isinstance(loaded.task, SavedClassification) and loaded.task.kind != "classification" and kind != ENCODER:
        kind = loaded.task.kind
    files = tuple(name for name in ("task.json", HEAD_FILE) if (directory / name).exists())
    network = ExportedNetwork(module, kind, positions, compute)
    return ExportSource(directory, network, loaded.tokenizer, loaded.task.max_length, files)


def find_kind(directory: Path) -> str:
    """Return the kind of head of a directory: that of the class in config.json, or the one whose weights are there.

    Raises:
        ModelError: a class that this package does not know, without a head of pre-training.
    """
    architecture = ARCHITECTURES[load_config(directory).architecture]
    class_name = (read_json(directory / "config.json", LabelConfig, ModelError, CONFIG_BYTES).architectures or [""])[0]
    if (kind := architecture.find_head(class_name)) is not None:
        return kind
    if heads := find_pretraining_heads(directory):  # a directory of another type, such as BERT's, or without a class
        return "replaced-token" if "replaced-token" in heads else "masked-lm"
    if class_name in ("", "BertModel"):
        return ENCODER
    raise ModelError(
        "other-architecture",
        f"{directory / 'config.json'}: the head of {class_name} cannot be exported; export the encoder with --encoder",
    )
