"""Loading of fine-tuned models: directories of this package, or of Hugging Face's ELECTRA classes with a task head."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import Field
from torch import Tensor, nn

from electra.errors import ModelError, UsageError
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.export import HEAD_FILE
from electra.finetuning.hub import find_model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.preparation import VOCABULARY_ADVICE
from electra.finetuning.registry import TASKS
from electra.finetuning.task import Outputs, SavedTask, TaskSpec
from electra.model.architecture import ARCHITECTURES, Architecture
from electra.model.checkpoints import load_pretrained
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.hf_config import CONFIG_BYTES, use_meta_device
from electra.model.weights_file import check_finite, load_tensors
from electra.runtime.setup import Runtime
from electra.schema import read_bytes, read_json, validate_json
from electra.text.coverage import CoverageMonitor
from electra.text.tokenizer import Tokenizer, load_tokenizer

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class TaskName:
    """Keys of `task.json` that every task has."""

    task: str


@dataclass(frozen=True)
class LabelConfig:
    """Keys of Hugging Face's `config.json` that depend on the task."""

    architectures: list[str] | None = None
    id2label: dict[Annotated[str, Field(pattern=r"^[0-9]{1,7}$")], str] | None = None
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None


@runtime_checkable
class Network(Protocol):
    """A network with the head of a task, in PyTorch or another engine."""

    def compute_outputs(self, examples: EncodedExamples, runtime: Runtime, batch_size: int, pad_id: int) -> Outputs:
        """Compute the outputs of the head for every example, in the order of `examples`."""


@dataclass(frozen=True)
class LoadedModel:
    """A fine-tuned model in memory, with its tokenizer and its task."""

    model: Network
    tokenizer: Tokenizer
    name: str
    """Name of the task in `registry.TASKS`."""
    spec: TaskSpec
    task: SavedTask
    """Task with the settings of `task.json`, or with those inferred from `config.json`."""
    coverage: CoverageMonitor
    """Counter of [UNK] in the inputs."""


@dataclass(frozen=True)
class SavedModel:
    """A fine-tuned directory without the weights of the encoder."""

    directory: Path
    sizes: EncoderConfig
    """Without dropout."""
    kind: str
    """Kind of head of the class in config.json."""
    name: str
    task: SavedTask
    tokenizer: Tokenizer

    @property
    def head_file(self) -> Path | None:
        """File of the weights of a head that no Hugging Face class has."""
        return file if (file := self.directory / HEAD_FILE).exists() else None

    def build_head(self) -> nn.Module:
        """Build the head into which weights are loaded."""
        return self.task.build_head(self.sizes, self.kind)

    def attach(self, network: Network) -> LoadedModel:
        """Return the model with this network."""
        monitor = CoverageMonitor(self.tokenizer, "input", VOCABULARY_ADVICE)
        return LoadedModel(network, self.tokenizer, self.name, TASKS[self.name], self.task, monitor)


def load_finetuned(model: str) -> LoadedModel:
    """Load a fine-tuned directory, the `model/` of a run, or a hub model.

    Raises:
        ModelError: the model is not fine-tuned or of another architecture, its files are damaged or inconsistent, or its
            weights are not finite.
        TokenizerError: its tokenizer is missing or broken.
    """
    directory = find_model_directory(model)
    pretrained = load_pretrained(directory)
    saved = read_saved_model(directory, pretrained.config)
    state, file = pretrained.state(saved.kind), directory / "config.json"
    if (head_file := saved.head_file) is not None:
        file = head_file
        head_state = {f"head.{name}": tensor for name, tensor in load_head_weights(head_file).items()}
        state = pretrained.state("none") | head_state
    network = build_checked(file, state, lambda: FinetunedModel(Encoder(saved.sizes), saved.build_head()))
    network.load_state_dict(state)
    return saved.attach(network.eval())


def read_saved_model(directory: Path, config: EncoderConfig) -> SavedModel:
    """Read what a fine-tuned directory has beside the weights; `config` are the sizes in its config.json.

    Raises:
        ModelError: the model is not fine-tuned, or its files are damaged or inconsistent.
        TokenizerError: its tokenizer is missing or broken.
    """
    label_config = read_json(directory / "config.json", LabelConfig, ModelError, CONFIG_BYTES)
    class_name = (label_config.architectures or ["none"])[0]
    architecture = ARCHITECTURES[config.architecture]
    kind = architecture.find_head(class_name)
    if (directory / "task.json").exists():
        name, task = read_task(directory / "task.json", architecture, class_name, config.max_positions)
    else:
        name, task = infer_task(directory, label_config, kind, config.max_positions)
    assert kind is not None, "the task has been read or inferred from it"
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            "vocabulary-over-embeddings",
            f"{directory}: its tokenizer has {tokenizer.vocab_size:,} tokens, but the model has embeddings of "
            f"{config.vocab_size:,}",
        )
    return SavedModel(directory, replace(config, dropout=0.0, attention_dropout=0.0), kind, name, task, tokenizer)


def load_head_weights(file: Path) -> dict[str, Tensor]:
    """Load the weights of a head that no Hugging Face class has. Raises a `ModelError` if one is not finite."""
    weights = load_tensors(file)
    check_finite(file, weights)
    return weights


def build_checked(file: Path, state: Mapping[str, Tensor], build: Callable[[], Module]) -> Module:
    """Build a module after a check, before its parameters are allocated, that their shapes are those of the weights.

    Args:
        file: File of the weights, for messages.
        state: Weights by name.
        build: Builds the module.

    Raises:
        ModelError: the names or the shapes differ.
    """
    with use_meta_device():
        expected = {name: tuple(tensor.shape) for name, tensor in build().state_dict().items()}
    for name in expected | dict(state):
        shape, found = expected.get(name), tuple(state[name].shape) if name in state else None
        if shape != found:
            raise ModelError(
                "wrong-shape",
                f"{file}: {name} has the shape {found} in the weights, expected {shape} from the task and its labels",
            )
    return build()


def read_task(file: Path, architecture: Architecture, class_name: str, positions: int) -> tuple[str, SavedTask]:
    """Read `task.json`: the name of the task, and the task with its settings.

    Args:
        file: The file.
        architecture: Architecture of the model.
        class_name: Hugging Face class in config.json.
        positions: Number of positions of the model.

    Raises:
        ModelError: the file is damaged, or the task is unknown, cannot predict new inputs, or does not match the model.
    """
    data = read_bytes(file, ModelError)
    name = validate_json(data, TaskName, str(file), ModelError).task
    if (spec := TASKS.get(name)) is None:
        raise ModelError(
            "unknown-task",
            f"{file}: there is no task {name!r} in electra.finetuning.registry.TASKS; add it there first",
        )
    if spec.saved is None:
        raise ModelError("not-predictable", f"{file}: a model of {name} can predict only the test file of its run")
    try:
        task: SavedTask = validate_json(data, spec.saved, str(file), ModelError)
    except UsageError as error:  # from options in the settings
        raise ModelError(error.code, f"{file}: {error}") from None
    if task.max_length > positions:
        raise ModelError(
            "longer-than-model", f"{file}: max_length is {task.max_length:,}, but the model has {positions:,} positions"
        )
    expected = architecture.classes["none" if (file.parent / HEAD_FILE).exists() else spec.head].name
    if class_name != expected:
        raise ModelError(
            "other-architecture",
            f"{file}: task {name} has the architecture {expected}, but config.json has {class_name!r}",
        )
    return name, task


def infer_task(directory: Path, label_config: LabelConfig, kind: str | None, positions: int) -> tuple[str, SavedTask]:
    """Infer the name and the settings of the task of a model without `task.json` from its `config.json`.

    Args:
        directory: Directory of the model, for messages.
        label_config: Content of config.json.
        kind: Kind of head of the model's class.
        positions: Number of positions of the model.

    Raises:
        ModelError: the model has no task head or too few positions, or its labels are not numbered from 0.
    """
    builders = {
        spec.head: (name, spec.from_hugging_face)
        for name, spec in reversed(TASKS.items())  # the first task with a kind of head takes precedence
        if spec.from_hugging_face is not None
    }
    if kind not in builders:
        class_name = (label_config.architectures or ["none"])[0]
        raise ModelError(
            "not-finetuned", f"{directory}: {class_name}, not a fine-tuned model; fine-tune it with electra finetune"
        )
    if positions < MIN_LENGTH:
        raise ModelError(
            "too-few-positions", f"{directory}: has {positions} positions; an input has at least {MIN_LENGTH} tokens"
        )
    # Hugging Face does not write its default of two labels to config.json.
    names = label_config.id2label or {"0": "LABEL_0", "1": "LABEL_1"}
    if set(names) != {str(number) for number in range(len(names))}:
        raise ModelError(
            "bad-labels",
            f"{directory / 'config.json'}: the keys of id2label are not the numbers from 0 to {len(names) - 1}",
        )
    name, build = builders[kind]
    try:
        return name, build([names[str(number)] for number in range(len(names))], label_config.problem_type, positions)
    except UsageError as error:
        raise ModelError(error.code, f"{directory}: {error}") from None
