"""Networks that a run saves on its way (`--export-at`, `--export-every`), and their held-out metrics.

    exports/tokens-000001048576/
        discriminator/ generator/    Hugging Face directories, as those of the finished run
        config.yaml                  the run's configuration
        other.safetensors            parameters of the objective that these directories do not have, if there are any
        state.json                   steps, tokens, FLOPs and seconds of training so far

A directory is renamed to its name when it is complete. With `optimizer.ema`, the weights are the averaged ones.
"""

import csv
import io
import json
import logging
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, FiniteFloat
from torch import Tensor, nn
from typing_extensions import TypedDict

from electra.config.files import to_yaml
from electra.data.shards import PreparedData
from electra.errors import RunError
from electra.execution import describe_execution, enable_kernels
from electra.model.checkpoints import load_pretrained
from electra.model.model_card import ModelCard
from electra.pretraining.config import PretrainConfig
from electra.pretraining.export import collect_facts, evaluate_heldout, open_model, save_networks
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.reporting.model_card import build_model_card
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.stages.warm_start import find_trained_length, load_into
from electra.runtime.setup import Runtime
from electra.schema import read_json, read_tensors
from electra.storage import convert_os_errors, sync, write_atomically, write_tensors
from electra.text.tokenizer import Tokenizer
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState
from electra.train.schedule import Amount

log = logging.getLogger(__name__)


PREFIX = "tokens-"
OTHER = "other.safetensors"
Count = Annotated[FiniteFloat, Field(ge=0)]


class ExportState(TypedDict):
    """`state.json`."""

    step: Annotated[int, Field(ge=0)]
    tokens: Count
    flops: Count
    seconds: Count


class Exports(Callback):
    """Saves the networks after the amounts of training in `config`.

    What exists is kept: a resumed run would write the same. If an update passes several amounts, there is one export.
    """

    def __init__(
        self,
        config: PretrainConfig,
        directory: RunDirectory,
        data: PreparedData,
        tokenizer: Tokenizer,
        runtime: Runtime,
    ) -> None:
        self.config, self.directory, self.data, self.tokenizer = config, directory, data, tokenizer
        self.runtime = runtime
        self.single = [Amount.parse("--export-at", text) for text in config.export_at]
        self.repeated = [Amount.parse("--export-every", config.export_every)] if config.export_every else []
        self.before = TrainingState()

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Begin with this state: what was passed before it is not exported."""
        assert isinstance(module, PretrainingModel)
        self.model = module
        self.before = replace(state)

    def evaluates(self, state: TrainingState) -> bool:
        """Whether the last update passed an amount."""
        before, self.before = self.before, replace(state)
        passed = [amount.count(before) < 1 <= amount.count(state) for amount in self.single]
        passed += [math.floor(amount.count(before)) < math.floor(amount.count(state)) for amount in self.repeated]
        return any(passed) and not self.path(state).exists()

    def path(self, state: TrainingState) -> Path:
        """Return the directory of an export."""
        return self.directory.exports / f"{PREFIX}{state.tokens:012.0f}"

    def on_evaluate(self, state: TrainingState) -> None:
        """Write an export."""
        amounts = {"step": state.step, "tokens": state.tokens, "flops": state.flops, "seconds": state.seconds}
        hardware = describe_execution(self.model, self.runtime)
        facts = collect_facts(self.config, self.model, self.data, amounts | {"hardware": hardware})

        def build_card(name: str, head: str) -> ModelCard:
            return build_model_card(name, head, self.config, facts, {})

        path = self.path(state)
        temporary = path.with_name(f".writing-{path.name}")
        length = find_trained_length(self.config, self.data.manifest.seq_len)
        with convert_os_errors(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            save_networks(RunDirectory(temporary), self.model, self.tokenizer, build_card, length)
            if other := collect_other_parameters(self.model):
                write_tensors(temporary / OTHER, other)
            (temporary / "config.yaml").write_text(to_yaml(self.config))
            (temporary / "state.json").write_text(json.dumps(amounts, indent=2) + "\n")
            temporary.rename(path)
            sync(self.directory.exports)
        log.info(f"exported step {state.step:,}: {path}", extra={"code": "exported"})

    def on_train_end(self, state: TrainingState) -> None:
        """Log the amounts that the training did not reach."""
        if missed := [
            text for text, amount in zip(self.config.export_at, self.single, strict=True) if amount.count(state) < 1
        ]:
            log.warning(
                f"--export-at {' '.join(missed)}: not exported; the training ended after {state.step:,} steps, "
                f"{state.tokens:,.0f} tokens and {state.flops:.3g} FLOPs",
                extra={"code": "export-not-reached"},
            )


def list_networks(model: PretrainingModel) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield directory, network and kind of head of what an export has, the main network last: its weights are shared."""
    if model.generator is not None:
        yield "generator", model.generator, "masked-lm"
    target = model.target
    for kind, network in target.other_heads.items():
        yield target.directory, network, kind
    yield target.directory, target.network, target.head


def collect_other_parameters(model: PretrainingModel) -> dict[str, Tensor]:
    """Return the parameters that no network of an export has, such as a copy mechanism, by name."""
    saved = {parameter for _, network, _ in list_networks(model) for parameter in network.parameters()}
    return {name: p.detach().cpu().contiguous() for name, p in model.named_parameters() if p not in saved}


def list_exports(run: Path) -> list[Path]:
    """List the exports of a run, by tokens of training.

    Raises:
        RunError: not a run directory, or it has none.
    """
    directory = RunDirectory(run)
    directory.check_is_run()
    if found := sorted(path for path in directory.exports.glob(f"{PREFIX}*") if path.is_dir()):
        return found
    raise RunError("no-exports", f"{run}: has no exports; give electra pretrain --export-at or --export-every")


def load_export(path: Path, model: PretrainingModel) -> dict[str, int | float]:
    """Load the weights of an export into the model of its run; return its step, tokens, FLOPs and seconds.

    Raises:
        RunError: a file is missing or damaged, or of another model.
        ModelError: a network is missing or damaged, or of another model.
    """
    for name, network, head in list_networks(model):
        load_into(network, load_pretrained(path / name), head)
    expected = collect_other_parameters(model)
    found = read_tensors(path / OTHER, RunError) if expected else {}
    if {name: tensor.shape for name, tensor in found.items()} != {name: t.shape for name, t in expected.items()}:
        raise RunError("other-model", f"{path / OTHER}: has the parameters of another model")
    with torch.no_grad():
        for name, tensor in found.items():
            model.get_parameter(name).copy_(tensor)
    return read_amounts(path)


def read_amounts(path: Path) -> dict[str, int | float]:
    """Read step, tokens, FLOPs and seconds of training of an export. Raises a `RunError` if the file is damaged."""
    state = read_json(path / "state.json", ExportState, RunError)
    return {"step": state["step"], "tokens": state["tokens"], "flops": state["flops"], "seconds": state["seconds"]}


def evaluate_exports(run: Path, data_directory: Path | None) -> list[dict[str, Any]]:
    """Compute the held-out metrics of each export of a run, on its own or other data: a learning curve.

    The rows have `step`, `tokens`, `flops`, `seconds` and the metrics; on the run's own data they are also written to
    `exports/held_out.csv`.

    Raises:
        RunError: not a run directory, it has no exports, or one is damaged.
        ModelError: a network of an export is missing or damaged.
        DataError: no such data, or prepared with another tokenizer.
        StorageError: the file cannot be written.
    """
    rows: list[dict[str, Any]] = []
    directory, paths = RunDirectory(run), list_exports(run)
    with open_model(directory, data_directory) as (model, data, tokenizer, runtime):
        enable_kernels(model, runtime)
        model.to(runtime.device)
        for path in paths:
            amounts = load_export(path, model)
            rows.append({**amounts, **evaluate_heldout(model, data, tokenizer, runtime).metrics})
            log.info(f"evaluated {path}", extra={"code": "heldout-metrics"})
    if data_directory is None:
        write_csv(rows, directory.exports / "held_out.csv")
    return rows


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows of equal keys as a table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
    log.info(f"learning curve: {path}", extra={"code": "learning-curve"})
