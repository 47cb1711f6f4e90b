"""The commands that evaluate a run: evaluate, evaluate_mlm."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from electra.commands.pretraining import list_sources
from electra.commands.scores import Device, open_scorer
from electra.config.checks import check_local
from electra.errors import UsageError
from electra.external import check_output_path
from electra.storage import PathLike, check_writable


def evaluate(
    run: PathLike,
    *,
    data: PathLike | None = None,
    minimal_pairs: Iterable[PathLike] | PathLike = (),
    methods: Iterable[str] | str = (),
    mask_fraction: float | None = None,
    out: PathLike | None = None,
    device: Device = "auto",
    threads: int | None = None,
) -> dict[str, Any]:
    """Compute the held-out metrics of a run from its newest checkpoint, or its accuracies on minimal pairs.

    Args:
        run: Run directory, finished or not; for minimal pairs a finished one, or a Hugging Face directory.
        data: Directory that `electra prepare` wrote, to score its held-out documents; by default the run's own.
        minimal_pairs: Files of minimal pairs (JSON lines as in BLiMP: sentence_good, sentence_bad, UID), to report how often
            each method of `electra score` gives the good sentence the higher score.
        methods: With minimal pairs: methods of `electra score`; by default all that the model has.
        mask_fraction: With minimal pairs, for the method both: share of masked tokens in pre-training; by default that of the
            run's configuration.
        out: With minimal pairs: directory for minimal_pairs.csv and minimal_pairs.png.
        device: With minimal pairs: auto uses a GPU if there is one. Held-out metrics use the run's runtime options.
        threads: With minimal pairs: CPU threads; by default PyTorch's choice.

    Returns:
        The metrics by name; for minimal pairs `pairs`, `paradigms`, `groups` and `methods`: for each method the accuracies in
        percent, `overall` (the mean over paradigms), by `field`, by `phenomenon` and by `paradigm`, and the number of `ties`.

    Raises:
        RunError: `run` is not a run directory, has no checkpoint, or is damaged.
        DataError: `data` is not prepared data, or has another tokenizer; a file has no minimal pairs.
        ModelError: with minimal pairs, `run` is no pre-trained model.
        UsageError: options of held-out metrics and of minimal pairs together; the model has no network for a method, or a
            sentence is too long for it.
        StorageError: `out` cannot be written.
    """
    from electra.pretraining.export import evaluate_run

    check_local({"RUN": run, "--data": data, "--out": out})
    files = [Path(each) for each in list_sources(minimal_pairs)]
    if files:
        if data is not None:
            raise UsageError("conflicting-options", "--data is for held-out metrics; leave it or --minimal-pairs out")
        selected = [methods] if isinstance(methods, str) else list(methods)
        return evaluate_pairs(Path(run), files, selected, mask_fraction, out, device, threads)
    if methods or mask_fraction is not None or out is not None or device != "auto" or threads is not None:
        raise UsageError(
            "meaningless-option",
            "--methods, --mask-fraction, --out, --device and --threads apply to --minimal-pairs; give these files",
        )
    return evaluate_run(Path(run), Path(data) if data else None)


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


def evaluate_pairs(
    model: Path,
    files: Sequence[Path],
    methods: Sequence[str],
    mask_fraction: float | None,
    out: PathLike | None,
    device: Device,
    threads: int | None,
) -> dict[str, Any]:
    """Compute the accuracies of a model on files of minimal pairs; write a table and a figure to `out`."""
    from electra.pretraining.evaluation.minimal_pairs import (
        evaluate_minimal_pairs,
        read_minimal_pairs,
        write_minimal_pairs,
    )

    directory = None if out is None else check_output_path(out)
    if directory is not None:
        check_writable(directory)
    pairs = read_minimal_pairs(files)
    with open_scorer(model, methods, mask_fraction, device, threads) as (scorer, names, runtime, progress):
        results = evaluate_minimal_pairs(scorer, pairs, names, runtime, progress)
    if directory is not None:
        write_minimal_pairs(results, directory)
    return results
