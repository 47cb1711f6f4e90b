"""The scores of a record: functions that extract a number from it."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra.pretraining.evaluation.network_scorer import METHODS

Number = Callable[[Mapping[str, Any]], float | None]
"""A function that extracts a number from a record; None if it is missing."""


def extract_finetuned(task: str) -> Number:
    """Extract the fine-tuned score of a task."""
    return lambda record: record["finetuned"].get(task, {}).get("median")


def extract_fewest_runs(tasks: Sequence[str]) -> Number:
    """Extract the number of fine-tuning runs per median: the minimum over the scored tasks."""

    def fewest(record: Mapping[str, Any]) -> float | None:
        return min(
            (float(len(found["values"])) for task, found in record["finetuned"].items() if task in tasks), default=None
        )

    return fewest


def extract_finetuning_std(task: str) -> Number:
    """Extract the standard deviation over the fine-tuning runs of a task; None for one run."""

    def std(record: Mapping[str, Any]) -> float | None:
        values = record["finetuned"].get(task, {}).get("values", ())
        return statistics.stdev(values) if len(values) > 1 else None

    return std


def extract_probed(task: str, which: str) -> Number:
    """Extract a field of `ProbeScores` for a task."""
    return lambda record: record["probed"].get(task, {}).get(which)


def average(score: Callable[[str], Number], tasks: Sequence[str]) -> Number:
    """Average a score over the tasks; None unless all of them have it."""

    def mean(record: Mapping[str, Any]) -> float | None:
        values = [value for task in tasks if (value := score(task)(record)) is not None]
        return statistics.fmean(values) if len(values) == len(tasks) else None

    return mean


def extract_best_probe(task: str) -> Number:
    """Extract the probe score of the layer chosen by cross-validation."""
    return extract_probed(task, "best")


def extract_last_probe(task: str) -> Number:
    """Extract the probe score of the last layer."""
    return extract_probed(task, "last")


def extract_heldout(name: str) -> Number:
    """Extract a metric of pre-training on held-out text."""
    return lambda record: record["heldout"].get(name)


def extract_best_layer(task: str) -> Number:
    """Extract the layer chosen by cross-validation."""
    return extract_probed(task, "layer")


def extract_embeddings_tags(record: Mapping[str, Any]) -> float | None:
    """Extract the tag probe's score of the embeddings, which depend on a word's first token and its position."""
    return record["tags"]["layers"][0] if "tags" in record else None


def extract_best_tags(record: Mapping[str, Any]) -> float | None:
    """Extract the tag probe's score of the layer chosen by cross-validation."""
    return record["tags"]["layers"][record["tags"]["layer"]] if "tags" in record else None


def extract_last_tags(record: Mapping[str, Any]) -> float | None:
    """Extract the tag probe's score of the last layer."""
    return record["tags"]["layers"][-1] if "tags" in record else None


def extract_tags_layer(record: Mapping[str, Any]) -> float | None:
    """Extract the tag probe's layer chosen by cross-validation."""
    return float(record["tags"]["layer"]) if "tags" in record else None


def extract_pairs(method: str) -> Number:
    """Extract the accuracy on minimal pairs by a method, over all paradigms."""
    return lambda record: record.get("pairs", {}).get("methods", {}).get(method, {}).get("overall")


def extract_frequency_pairs(record: Mapping[str, Any]) -> float | None:
    """Extract the accuracy on minimal pairs of token frequencies, which use no context."""
    return record.get("pairs", {}).get("frequencies")


def extract_best_pairs(record: Mapping[str, Any]) -> float | None:
    """Extract the highest accuracy on minimal pairs of the methods that the networks have."""
    return max((each["overall"] for each in record.get("pairs", {}).get("methods", {}).values()), default=None)


def extract_similarity(layer: int) -> Number:
    """Extract the score of frozen sentence vectors on STS-B by a layer; 0 are the embeddings, -1 is the last layer."""
    return lambda record: record["similarity"]["layers"][layer] if "similarity" in record else None


def list_columns(tasks: Sequence[str]) -> dict[str, Number]:
    """Return all scores by column name of the CSV file."""
    return {
        "average": average(extract_finetuned, tasks),
        **{task: extract_finetuned(task) for task in tasks},
        "finetuning_runs": extract_fewest_runs(tasks),
        **{f"finetuning_std_{task}": extract_finetuning_std(task) for task in tasks},
        "probe_average": average(extract_best_probe, tasks),
        **{f"probe_{task}": extract_best_probe(task) for task in tasks},
        "probe_last_average": average(extract_last_probe, tasks),
        **{f"probe_last_{task}": extract_last_probe(task) for task in tasks},
        **{f"probe_layer_{task}": extract_best_layer(task) for task in tasks},
        "tags_embeddings": extract_embeddings_tags,
        "tags": extract_best_tags,
        "tags_last": extract_last_tags,
        "tags_layer": extract_tags_layer,
        **{f"pairs_{method.replace('-', '_')}": extract_pairs(method) for method in METHODS},
        "pairs_frequencies": extract_frequency_pairs,
        "similarity_embeddings": extract_similarity(0),
        "similarity_last": extract_similarity(-1),
    }
