"""Samples of a frozen generator, drawn before training and read in it (`GeneratorConfig.samples`).

The file has a record batch for each update: key int64, ascending, of each row of the global batch (`Batch.keys`), and its
tokens list<uint16 or uint32>, of its masked positions in their order. So it does not depend on micro-batches or processes.
Its metadata has what determines the samples. Fast-ELECTRA (Dong et al., 2024) has this idea; its code is not public.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Int, Int64

from electra.console import reading_progress
from electra.data.batch import Batch
from electra.data.loader import BatchLoader, prefetch
from electra.data.shards import PreparedData
from electra.errors import DataError
from electra.external import one_line
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import MaskedLM
from electra.runtime.distributed import main_process_first
from electra.runtime.setup import Runtime
from electra.schema import check_file
from electra.storage import LOCK, convert_os_errors, lock_output
from electra.train.loop import compute_update_progress

log = logging.getLogger(__name__)

FACTS = b"electra samples"
"""Key of the metadata."""


class StepSamples(NamedTuple):
    """Samples of an update: those of row `keys[i]` are `tokens[offsets[i]:offsets[i + 1]]`."""

    keys: Int64[np.ndarray, " B"]
    offsets: Int[np.ndarray, " M"]
    tokens: Int[np.ndarray, " S"]


class SampleFile:
    """A file of samples, which is read by memory map.

    Raises:
        DataError: it is missing, damaged, or of another run.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any], vocab_size: int) -> None:
        self.path = path
        self.vocab_size = vocab_size
        check_file(path, DataError)
        with self.convert_errors():
            self.reader = pa.ipc.open_file(pa.memory_map(str(path)))
            found = json.loads((self.reader.schema.metadata or {})[FACTS])
            if self.reader.schema.types != build_schema(vocab_size, {}).types or not isinstance(found, dict):
                raise ValueError("other columns")
        if differing := [name for name, value in facts.items() if found.get(name) != value]:
            raise DataError(
                "other-samples",
                f"{path}: its samples are for another run: {', '.join(differing)} differ; name another file as "
                "--generator.samples, which is then written",
            )

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert errors of reading in the block to a `DataError`."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
            raise DataError(
                "damaged",
                f"{self.path}: not a file of samples, or damaged ({one_line(error)}); delete it to write it anew",
            ) from error

    def read(self, step: int) -> StepSamples:
        """Read the samples of an update."""
        with self.convert_errors():
            record = self.reader.get_batch(step)
            record.validate(full=True)
            keys, samples = record.columns
            read = StepSamples(keys.to_numpy(), samples.offsets.to_numpy(), samples.values.to_numpy())
            if record.num_rows == 0 or (len(read.tokens) and read.tokens.max() >= self.vocab_size):
                raise ValueError(f"update {step:,} has no rows, or tokens outside of the vocabulary")
        return read

    def attach(self, batch: Batch, read: StepSamples, step: int) -> Batch:
        """Return a micro-batch with its samples, of those of its update."""
        keys = batch.row_keys.numpy()
        rows = np.searchsorted(read.keys, keys).clip(max=len(read.keys) - 1)
        first, end = read.offsets[rows], read.offsets[rows + 1]
        places = np.arange(batch.input_ids.shape[1])
        used = places < (end - first)[:, None]
        if (read.keys[rows] != keys).any() or (end - first).max() > len(places):
            raise DataError("other-samples", f"{self.path}: update {step:,} has other sequences than the data")
        samples = np.zeros(used.shape, dtype=np.int64)
        samples[used] = read.tokens[(first[:, None] + places)[used]]
        return replace(batch, samples=torch.from_numpy(samples))

    def iterate(self, batches: Callable[[int], Sequence[Batch]], first_step: int) -> Iterator[list[Batch]]:
        """Yield the micro-batches of each update with their samples, from `first_step` on, prefetched."""

        def read_and_attach(step: int) -> list[Batch]:
            if step >= self.reader.num_record_batches:  # prefetched at the end of training
                return list(batches(step))
            read = self.read(step)
            return [self.attach(batch, read, step) for batch in batches(step)]

        return prefetch(read_and_attach, first_step)


def build_schema(vocab_size: int, facts: Mapping[str, Any]) -> pa.Schema:
    """Build the schema of the file."""
    token = pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()
    columns = [("key", pa.int64()), ("tokens", pa.list_(token))]
    return pa.schema(columns, metadata={FACTS: json.dumps(facts).encode()})


def collect_facts(config: PretrainConfig, generator: MaskedLM, data: PreparedData) -> dict[str, Any]:
    """Collect what determines the samples of a run."""
    digest = hashlib.sha256()
    for name, tensor in sorted(generator.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    generator_options = ("temperature", "final_temperature", "frequency_share", "final_frequency_share")
    facts = {
        "the generator's weights": digest.hexdigest(),
        "the data": data.manifest.fingerprint,
        "--seed": config.seed,
        "--steps": config.steps,
        "--schedule.kind": config.schedule.kind,
        "--training.batch-size": config.training.batch_size,
        "the length warm-up": asdict(config.length_warmup),
        "the batch warm-up": asdict(config.batch_warmup),
        "the weights of sources": [*config.weights, config.mix_temperature],
        "the masking": asdict(config.masking),
        "the sampling": [getattr(config.generator, name) for name in (*generator_options, "exclude_original_token")],
    }
    return json.loads(json.dumps(facts))


def open_or_draw_samples(
    config: PretrainConfig,
    model: PretrainingModel,
    data: PreparedData,
    build_loader: Callable[[int, int], BatchLoader],
    runtime: Runtime,
) -> SampleFile | None:
    """Open the run's file of samples, which the main process writes if it does not exist; None if the run has none.

    `build_loader(rank, world_size)` builds the loader of a process.

    Raises:
        DataError: the file is damaged, or of another run.
        StorageError: it cannot be written.
    """
    if config.generator.samples is None or model.generator is None:
        return None
    path = Path(config.generator.samples)
    facts = collect_facts(config, model.generator, data)
    with main_process_first(runtime):
        if runtime.is_main:
            with lock_output(path, path.with_name(f".{path.name}{LOCK}"), wait=True):
                if not path.exists():
                    draw_samples(path, facts, config, model, build_loader(0, 1), runtime)
    samples = SampleFile(path, facts, model.spec.vocabulary.size)
    log.info(f"samples of the generator from {path}", extra={"code": "samples"})
    return samples


@torch.no_grad()
def draw_samples(
    path: Path,
    facts: Mapping[str, Any],
    config: PretrainConfig,
    model: PretrainingModel,
    loader: BatchLoader,
    runtime: Runtime,
) -> None:
    """Draw the samples of all updates of a run, without dropout in the generator, and write them completely or not at all."""
    assert model.generator is not None
    assert config.steps is not None
    recipe, schema = config.recipe(), build_schema(model.spec.vocabulary.size, facts)
    partial_path = path.with_name(f".{path.name}.{os.getpid()}.partial")
    was_training = model.training
    model.train()
    model.generator.eval()
    try:
        with (
            convert_os_errors(path),
            reading_progress("drawing samples", config.steps) as progress,
            pa.ipc.new_file(str(make_folder(partial_path)), schema) as writer,
        ):
            for step, batches in zip(range(config.steps), loader.iterate(0), strict=False):
                model.set_progress(compute_update_progress(recipe, step, seconds=0.0, flops=0.0))
                rows = [row for batch in batches for row in draw_rows(model, batch, runtime)]
                keys, tokens = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
                writer.write_batch(pa.record_batch([pa.array(keys, pa.int64()), list(tokens)], schema=schema))
                progress(step + 1, "")
        os.replace(partial_path, path)
    finally:
        partial_path.unlink(missing_ok=True)
        model.train(was_training)
    log.info(f"drew the samples of {config.steps:,} updates into {path}", extra={"code": "drew-samples"})


def make_folder(path: Path) -> Path:
    """Create the folder of a file; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def draw_rows(model: PretrainingModel, batch: Batch, runtime: Runtime) -> Iterator[tuple[int, list[int]]]:
    """Yield the key of each row of a micro-batch, and the samples at its masked positions."""
    batch = batch.to(runtime.device)
    with runtime.autocast():
        masked, _ = model.sample_masked(batch)
        generated = model.corruption(batch, masked).generated
    assert generated is not None
    for key, sampled, used in zip(
        batch.row_keys.tolist(), generated.sampled.tolist(), masked.used.sum(1).tolist(), strict=True
    ):
        yield key, sampled[:used]
