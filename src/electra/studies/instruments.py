"""Scores of a trial's pre-trained networks as they are, without fine-tuning. Each instrument adds a field to the record."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from electra.data.shards import PreparedData
from electra.finetuning.classification.glue import find_file
from electra.finetuning.hub import find_model_directory
from electra.finetuning.tagging.data import find_splits
from electra.pretraining.config import PretrainConfig
from electra.pretraining.evaluation.minimal_pairs import (
    evaluate_by_frequencies,
    evaluate_minimal_pairs,
    read_minimal_pairs,
)
from electra.pretraining.evaluation.network_scorer import load_network_scorer
from electra.runtime.setup import RuntimeConfig, start_runtime
from electra.studies.probing.sentence_vectors import compute_similarity_scores
from electra.studies.probing.tags import probe_tags


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation of a study's encoders."""

    glue: str
    """Folder in GLUE's layout, or hf://nyu-mll/glue."""
    tasks: tuple[str, ...]
    """Tasks of GLUE."""
    finetune_seeds: int = 1
    """Fine-tuning runs per task, with seeds from the pre-training seed on; the score is their median. 0: only probes."""
    probe_examples: int = 5_000
    """Maximum number of training examples of a probe."""
    tags: str | None = None
    """Folder of sentences with word tags, for the tag probe."""
    minimal_pairs: tuple[str, ...] = ()
    """Files of minimal pairs."""


@dataclass(frozen=True)
class Instrument:
    """A score of pre-trained networks."""

    is_requested: Callable[[EvalConfig], bool]
    """Whether its data is given."""
    source: Callable[[EvalConfig], str]
    """Name and checksum of its data, which must be the same for all trials."""
    measure: Callable[[Path, PretrainConfig, EvalConfig], dict[str, Any]]
    """From a run's directory and configuration, its results; the record has them and the source."""


def measure_tags(run: Path, config: PretrainConfig, evaluation: EvalConfig) -> dict[str, Any]:
    """Fit the linear probe of word tags."""
    assert evaluation.tags is not None
    model = find_model_directory(str(run))
    return asdict(probe_tags(model, evaluation.tags, max_length=config.seq_len, device=config.runtime))


def measure_minimal_pairs(run: Path, config: PretrainConfig, evaluation: EvalConfig) -> dict[str, Any]:
    """Compute accuracies on minimal pairs in percent: of each method, overall and by phenomenon, and of token frequencies."""
    assert config.data is not None
    pairs = read_minimal_pairs([Path(file) for file in evaluation.minimal_pairs])
    runtime_config = RuntimeConfig(config.runtime.device, "float32", config.runtime.threads)
    with start_runtime(runtime_config) as runtime:
        scorer = load_network_scorer(run)
        methods = evaluate_minimal_pairs(scorer, pairs, scorer.methods, runtime)["methods"]
    return {
        "methods": {name: {"overall": each["overall"], **each["phenomenon"]} for name, each in methods.items()},
        "frequencies": evaluate_by_frequencies(pairs, scorer.tokenizer, PreparedData.open(config.data).unigrams),
    }


def measure_similarity(run: Path, config: PretrainConfig, evaluation: EvalConfig) -> dict[str, Any]:
    """Compute how well the similarity of frozen sentence vectors orders the pairs of STS-B."""
    model = find_model_directory(str(run))
    layers = compute_similarity_scores(model, evaluation.glue, max_length=config.seq_len, device=config.runtime)
    return {"layers": layers}


def describe_tags(evaluation: EvalConfig) -> str:
    """Describe the files of the tag probe."""
    assert evaluation.tags is not None
    return describe_files(find_splits(Path(evaluation.tags)).values())


def describe_minimal_pairs(evaluation: EvalConfig) -> str:
    """Describe the files of minimal pairs."""
    return describe_files(map(Path, evaluation.minimal_pairs))


def describe_similarity(evaluation: EvalConfig) -> str:
    """Describe the file of STS-B's dev pairs, or return the name on the hub."""
    is_remote = evaluation.glue.startswith("hf://")
    return evaluation.glue if is_remote else describe_files([find_file("stsb", Path(evaluation.glue), "dev")])


def describe_files(paths: Iterable[Path]) -> str:
    """Return names and a checksum of files, which are the same on every machine."""
    files = sorted(paths)
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files))
    return f"{', '.join(path.name for path in files)} (SHA-256 {digest.hexdigest()[:16]})"


INSTRUMENTS: dict[str, Instrument] = {
    "tags": Instrument(lambda evaluation: evaluation.tags is not None, describe_tags, measure_tags),
    "pairs": Instrument(
        lambda evaluation: bool(evaluation.minimal_pairs), describe_minimal_pairs, measure_minimal_pairs
    ),
    "similarity": Instrument(lambda evaluation: "stsb" in evaluation.tasks, describe_similarity, measure_similarity),
}
"""By field of the record."""
