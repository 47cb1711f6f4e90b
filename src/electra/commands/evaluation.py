"""The commands that evaluate a pre-trained model: evaluate, evaluate_mlm, minimal_pairs."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from electra.commands.pretraining import list_sources
from electra.commands.scores import Device, open_scorer
from electra.config.checks import check_choice, check_local
from electra.errors import UsageError
from electra.external import check_output_path
from electra.storage import PathLike, check_writable, restrict_permissions


def evaluate(
    run: PathLike, *, data: PathLike | None = None, at: Literal["end", "all"] = "end"
) -> dict[str, Any] | list[dict[str, Any]]:
    """Compute the held-out metrics of a run, from its newest checkpoint or from all that it exported on its way.

    Args:
        run: Run directory, finished or not.
        data: Directory that `electra prepare` wrote, to score its held-out documents; by default the run's own.
        at: end: the newest checkpoint; all: each export (pretrain --export-at, --export-every), as a learning curve, which
            is written to RUN/exports/held_out.csv too if it is of the run's own data.

    Returns:
        The metrics by name, and for data of several sources `by_source`, those of each; with all, a list of metrics, each
        with step, tokens, flops and seconds of training.

    Raises:
        RunError: `run` is not a run directory, has no checkpoint or no exports, or is damaged.
        ModelError: an export is damaged.
        DataError: `data` is not prepared data, or has another tokenizer.
        StorageError: the table cannot be written.
    """
    from electra.pretraining.export import evaluate_run
    from electra.pretraining.learning_curve import evaluate_exports

    check_local({"RUN": run, "--data": data})
    check_choice("--at", at, ("end", "all"))
    directory = Path(data) if data else None
    return evaluate_exports(Path(run), directory) if at == "all" else evaluate_run(Path(run), directory)


def evaluate_mlm(
    run: PathLike,
    *,
    data: PathLike | None = None,
    bert: PathLike | None = None,
    examples: int = 1_000,
    candidates: int = 100,
) -> dict[str, float]:
    """Compute the masked-LM accuracy of an ELECTRA (Appendix G) on held-out text, with one masked token in each example.

    It is computed for generator and discriminator together, for the generator alone, and for an ideal discriminator, which is
    right whenever the original token is among the candidates.

    Args:
        run: Finished run directory.
        data: Directory that `electra prepare` wrote, to score its held-out documents; by default the run's own.
        bert: A run of objective mlm on the same tokenizer, to score beside it.
        examples: Number of held-out examples.
        candidates: Number of the generator's best tokens that the discriminator scores.

    Returns:
        The accuracies by name.

    Raises:
        RunError: `run` is not a run directory, or is not finished.
        ModelError: a network is missing, or that of `bert` has another tokenizer.
        DataError: `data` is not prepared data, has another tokenizer, or has sequences longer than a model's positions.
        UsageError: a number is out of range, or a model is of the wrong objective.
    """
    from electra.pretraining.evaluation.mlm_accuracy import evaluate_as_mlm

    check_local({"RUN": run, "--data": data, "--bert": bert})
    return evaluate_as_mlm(Path(run), Path(data) if data else None, Path(bert) if bert else None, examples, candidates)


def minimal_pairs(
    model: PathLike,
    files: Iterable[PathLike] | PathLike,
    *,
    methods: Iterable[str] | str = (),
    at: Literal["end", "all"] = "end",
    mask_fraction: float | None = None,
    out: PathLike | None = None,
    device: Device = "auto",
    threads: int | None = None,
    private: bool = False,
) -> dict[str, Any]:
    """Compute how often each method of `electra score` gives the better sentence of a minimal pair the higher score.

    Args:
        model: Finished run, a folder with discriminator/ and generator/, a Hugging Face directory of either network, or of
            any masked language model (BERT, RoBERTa, ModernBERT and so on), which needs the package transformers;
            or such a model of the hub, as owner/name or owner/name@revision.
        files: Files of minimal pairs: JSON lines as in BLiMP, with sentence_good, sentence_bad and UID.
        methods: discriminator, masked-lm, both; by default all that the model has.
        at: end: the finished model; all: each network that a run exported on its way, as a learning curve.
        mask_fraction: For both: share of masked tokens in pre-training; by default that of the run's configuration.
        out: Directory for minimal_pairs.csv and minimal_pairs.png; with all for learning_curve.csv alone.
        device: auto uses a GPU if there is one.
        threads: CPU threads; by default PyTorch's choice.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.

    Returns:
        `pairs`, `paradigms`, `groups` and `methods`: for each method the accuracies in percent, `overall` (the mean over
        paradigms), by `field`, by `phenomenon` and by `paradigm`, and the number of `ties`. With all, these are of the last
        export, and `exports` has step, tokens, flops, seconds and the overall accuracies of each.

    Raises:
        RunError: with all, `model` is not a run with exports.
        DataError: a file cannot be read or has no minimal pairs.
        ModelError: `model` is no pre-trained model.
        TokenizerError: the tokenizer of `model` is missing, damaged or does not match it.
        UsageError: no file is given, the model has no network for a method, a sentence is too long for it, or transformers
            is needed and not installed.
        StorageError: `out` cannot be written.
    """
    from electra.pretraining.evaluation.minimal_pairs import (
        evaluate_minimal_pairs,
        read_minimal_pairs,
        write_minimal_pairs,
    )
    from electra.pretraining.learning_curve import list_exports, read_amounts, write_csv
    from electra.text.hub import locate_model

    check_local({"MODEL": model, "--out": out})
    check_choice("--at", at, ("end", "all"))
    named = list(dict.fromkeys(list_sources(files)))  # a file that is named twice is read once
    if not all(map(str, named)) or not named:
        raise UsageError("no-files", "no file of minimal pairs is given; name at least one, as in blimp/*.jsonl")
    for file in named:
        check_local({"FILES": file})
    paths = [Path(file) for file in named]
    directory = None if out is None else check_output_path(out)
    if directory is not None:
        check_writable(directory)
    pairs, selected = read_minimal_pairs(paths), [methods] if isinstance(methods, str) else list(methods)
    rows: list[dict[str, Any]] = []
    for path in list_exports(Path(model)) if at == "all" else [locate_model(os.fspath(model))]:
        with open_scorer(path, selected, mask_fraction, device, threads) as (scorer, names, runtime, progress):
            results = evaluate_minimal_pairs(scorer, pairs, names, runtime, progress)
        if at == "all":
            rows.append(read_amounts(path) | {name: each["overall"] for name, each in results["methods"].items()})
    if at == "all":
        results["exports"] = rows
    if directory is not None:
        with restrict_permissions(private):
            if at == "all":
                write_csv(rows, directory / "learning_curve.csv")
            else:
                write_minimal_pairs(results, directory)
    return results
