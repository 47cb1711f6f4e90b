"""A fine-tuned directory read back: ours, or anybody's of Hugging Face's ELECTRA classes."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, FiniteFloat
from torch import Tensor, nn
from typing_extensions import Required, TypedDict

from electra.errors import ModelError, UsageError
from electra.finetuning.checks import OTHER_MODEL
from electra.finetuning.classification.heads import HiddenLayerHead, Kind, SentenceHead
from electra.finetuning.export import HEAD_FILE, PROBLEMS
from electra.finetuning.hub import model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.heads import JointSpanHead, PlainSpanHead
from electra.finetuning.tagging.task import TaggingHead
from electra.model.checkpoints import check_finite, load_pretrained, load_tensors
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.hf_config import CONFIG_BYTES, allocating_nothing
from electra.schema import parse_json, read_bytes, read_json
from electra.text.coverage import CoverageMonitor
from electra.text.tokenizer import Tokenizer, load_tokenizer

KINDS = {
    "ElectraForSequenceClassification": "sentences",
    "ElectraForTokenClassification": "tagging",
    "ElectraForQuestionAnswering": "spans",
}


LEAST_LENGTH = 5
"""Tokens that any model has to read: `[CLS] a [SEP] b [SEP]`."""


class TaskSettings(TypedDict, total=False):
    """`task.json`: what a task wrote of itself."""

    task: Required[str]
    kind: Kind
    labels: list[str]
    max_length: Annotated[int, Field(ge=LEAST_LENGTH)]
    pairs: bool
    columns: Annotated[list[str], Field(min_length=1, max_length=2)]
    span: dict[str, Any]
    best_null_threshold: FiniteFloat | None


@dataclass(frozen=True)
class SpanTask:
    """The part of `task.json` that question answering has."""

    span: SpanConfig


@dataclass(frozen=True)
class LabelConfig:
    """What Hugging Face's `config.json` has of a task."""

    architectures: list[str] | None = None
    id2label: dict[Annotated[str, Field(pattern=r"^[0-9]{1,7}$")], str] | None = None
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None


@dataclass(frozen=True)
class Finetuned:
    """A model that can predict."""

    model: FinetunedModel
    tokenizer: Tokenizer
    settings: dict[str, Any]
    """What the task said of itself (`Task.settings`), or what can be known of another's model."""
    coverage: CoverageMonitor
    """How well the vocabulary spells what the model reads."""


def load_finetuned(model: str) -> Finetuned:
    """Read a fine-tuned directory, `model/` in the directory of a run, or a hub model.

    Raises:
        ModelError: not fine-tuned, of another architecture, its files are damaged or do not fit each other, or its weights
            are not finite.
        TokenizerError: its tokenizer is missing or broken.
    """
    directory = model_directory(model)
    pretrained = load_pretrained(directory)
    found = read_json(directory / "config.json", LabelConfig, ModelError, CONFIG_BYTES)
    architecture = (found.architectures or ["none"])[0]
    settings = read_settings(directory, found, architecture, pretrained.config.max_positions)
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > pretrained.config.vocab_size:
        raise ModelError(
            f"{directory}: its tokenizer has {tokenizer.vocab_size:,} tokens, but the model has embeddings of "
            f"{pretrained.config.vocab_size:,}"
        )
    sizes = replace(pretrained.config, dropout=0.0, attention_dropout=0.0)
    if (file := directory / HEAD_FILE).exists():
        weights = load_tensors(file)
        check_finite(file, weights)
        state = pretrained.state("ElectraModel") | {f"head.{name}": tensor for name, tensor in weights.items()}
        whole = checked(file, state, lambda: FinetunedModel(Encoder(sizes), own_head(settings, sizes)))
    else:
        state, file = pretrained.state(architecture), directory / "config.json"
        whole = checked(file, state, lambda: FinetunedModel(Encoder(sizes), stock_head(architecture, settings, sizes)))
    whole.load_state_dict(state)
    monitor = CoverageMonitor(tokenizer, "input", OTHER_MODEL)
    return Finetuned(whole.eval(), tokenizer, cast("dict[str, Any]", settings), monitor)


def checked(file: Path, state: Mapping[str, Tensor], build: Callable[[], FinetunedModel]) -> FinetunedModel:
    """The model that `build` makes, once its shapes, found without memory, are those of the weights in `state`.

    Raises:
        ModelError: they are not; `file` is named.
    """
    with allocating_nothing():
        expected = {name: tuple(parameter.shape) for name, parameter in build().named_parameters()}
    for name in expected | dict(state):
        wanted, found = expected.get(name), tuple(state[name].shape) if name in state else None
        if wanted != found:
            raise ModelError(
                f"{file}: {name} has the shape {found} in the weights, and {wanted} by the task and its labels"
            )
    return build()


def read_settings(directory: Path, found: LabelConfig, architecture: str, limit: int) -> TaskSettings:
    """What is known of the task: from `task.json`, or from Hugging Face's configuration.

    Raises:
        ModelError: neither is that of a fine-tuned model with `limit` positions, or they do not fit each other.
    """
    file = directory / "task.json"
    if not file.exists():
        return settings_of_labels(directory, found, architecture, limit)
    data = read_bytes(file, ModelError)
    settings = parse_json(data, TaskSettings, str(file), ModelError)
    if settings["task"] == "wnli" and "kind" not in settings:
        raise ModelError(f"{directory}: a model of WNLI's candidates predicts its test file while it is fine-tuned")
    if "span" in settings:
        kind, needed = "spans", ["span"]
        try:
            span = parse_json(data, SpanTask, str(file), ModelError).span
        except UsageError as error:
            raise ModelError(f"{file}: {error}") from None
        settings["span"], length = asdict(span), span.max_length
    else:
        kind, needed = ("sentences", ["kind"]) if "kind" in settings else ("tagging", [])
        needed, length = [*needed, "labels", "max_length"], settings.get("max_length", 0)
    if missing := [name for name in needed if name not in settings]:
        raise ModelError(f"{file}: {missing[0]} is missing")
    if length > limit:
        raise ModelError(f"{file}: max_length is {length:,}, but the model has {limit:,} positions")
    own = architecture == "ElectraModel" and (directory / HEAD_FILE).exists() and kind != "tagging"
    if not own and KINDS.get(architecture) != kind:
        raise ModelError(f"{file}: a task of {kind}, but config.json has the architecture {architecture!r}")
    return settings


def settings_of_labels(directory: Path, found: LabelConfig, architecture: str, limit: int) -> TaskSettings:
    """What can be known of the task of a model that others fine-tuned."""
    if architecture not in KINDS:
        raise ModelError(f"{directory}: {architecture}, not a fine-tuned model; fine-tune it with electra finetune")
    if limit < LEAST_LENGTH:
        raise ModelError(f"{directory}: has {limit} positions; no input fits, which has at least {LEAST_LENGTH} tokens")
    # Two labels of no name are Hugging Face's default, which its configurations leave out.
    names = found.id2label or {"0": "LABEL_0", "1": "LABEL_1"}
    if set(names) != {str(number) for number in range(len(names))}:
        raise ModelError(
            f"{directory / 'config.json'}: the keys of id2label are not the numbers from 0 to {len(names) - 1}"
        )
    labels = [names[str(number)] for number in range(len(names))]
    if KINDS[architecture] == "sentences":
        kinds: dict[str, Kind] = {problem: cast(Kind, kind) for kind, problem in PROBLEMS.items()}
        kind: Kind = (
            kinds[found.problem_type] if found.problem_type else "regression" if len(labels) == 1 else "classification"
        )
        return {"task": "sentences", "kind": kind, "labels": labels, "max_length": min(128, limit)}
    if KINDS[architecture] == "tagging":
        return {"task": "tagging", "labels": labels, "max_length": min(256, limit)}
    try:
        return {"task": "squad2", "span": asdict(SpanConfig(head="plain", max_length=min(512, limit)))}
    except UsageError as error:
        raise ModelError(f"{directory}: {error}") from None


def stock_head(architecture: str, settings: TaskSettings, sizes: EncoderConfig) -> nn.Module:
    """The head of one of Hugging Face's classes."""
    if architecture == "ElectraForSequenceClassification":
        return HiddenLayerHead(sizes.hidden_size, number_of_outputs(settings))
    if architecture == "ElectraForTokenClassification":
        return TaggingHead(sizes.hidden_size, number_of_outputs(settings))
    return PlainSpanHead(sizes.hidden_size)


def own_head(settings: TaskSettings, sizes: EncoderConfig) -> nn.Module:
    """A head that no class of Hugging Face has."""
    if "span" in settings:
        return JointSpanHead(sizes.hidden_size, SpanConfig(**settings["span"]))
    return SentenceHead(settings["kind"], sizes.hidden_size, number_of_outputs(settings), 0.0)


def number_of_outputs(settings: TaskSettings) -> int:
    """A logit for each label, or one number."""
    return 1 if settings.get("kind") == "regression" else len(settings["labels"])
