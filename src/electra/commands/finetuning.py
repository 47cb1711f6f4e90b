"""Fine-tuning and prediction: finetune, glue, predict, load."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra.external import check_output_path
from electra.storage import PathLike, restrict_permissions
from electra.train.callbacks import Callback

if TYPE_CHECKING:
    from electra.inference.predict import Predictor


def finetune(
    task: str,
    *,
    model: PathLike,
    out: PathLike,
    seeds: int = 1,
    private: bool = False,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> dict[str, Any]:
    """Fine-tune an encoder on a task by the paper's protocol and score it. Run again with the same `out`, it resumes.

    Args:
        task: One of GLUE (cola sst2 mrpc stsb qqp mnli qnli rte wnli ax), squad1 squad2 mrqa, chunk ner pos, or one's own
            data: table, tagging.
        model: Hugging Face ELECTRA directory, run directory, or hub name.
        out: Directory of the results, with one directory per seed.
        seeds: Number of runs, with consecutive seeds from `seed` on.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.
        callbacks: From Python, objects of subclasses of `electra.Callback` that follow the training of every seed.
        options: Fields of `electra.finetuning.config.FinetuneConfig`.

    Returns:
        The summary: for every split and metric the median, mean, standard deviation and values over the seeds.
    """
    from electra.finetuning.config import from_options
    from electra.finetuning.run import finetune as run

    with restrict_permissions(private):
        return run(from_options(task, {"model": model, **options}), check_output_path(out), seeds, callbacks)


def glue(
    *,
    model: PathLike,
    data: PathLike,
    out: PathLike,
    tasks: Iterable[str] | str = (),
    seeds: int = 10,
    intermediate: bool = False,
    ensemble: int | None = None,
    submission: bool = False,
    private: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Fine-tune an encoder on every task of GLUE over several seeds. Run again with the same `out`, it resumes.

    Args:
        model: Hugging Face ELECTRA directory, run directory, or hub name.
        data: Folder in GLUE's layout, or hf://nyu-mll/glue.
        out: Directory of the results, with one directory per task.
        tasks: Tasks of GLUE, wnli and ax included; by default the paper's eight, and with `submission` also WNLI if there
            is data for it.
        seeds: Runs per task; scores are medians over them.
        intermediate: Start RTE and STS from the model fine-tuned on MNLI, RTE at a learning rate of 2e-5 (Appendix B).
        ensemble: Average this many runs, the best on dev (Appendix B: 10 of 30).
        submission: Write the files for gluebenchmark.com.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.
        options: Fields of `electra.finetuning.config.FinetuneConfig`.

    Returns:
        Scores by task, their average if all of the paper's eight were run, and the ensemble's.
    """
    from electra.finetuning.benchmark.grid import glue as run
    from electra.finetuning.config import from_options

    config = from_options("", {"model": model, "data": data, **options}, "glue")
    with restrict_permissions(private):
        return run(
            config,
            check_output_path(out),
            tasks=[tasks] if isinstance(tasks, str) else list(tasks),
            seeds=seeds,
            intermediate=intermediate,
            ensemble=ensemble,
            submission=submission,
        )


def predict(
    model: PathLike,
    input: PathLike | Mapping[str, Any] | Iterable[Any],
    *,
    out: PathLike | None = None,
    private: bool = False,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Predict with a fine-tuned model: labels with probabilities, numbers, tags, or answers with n-best spans and null odds.

    Predictions are in the order of the inputs. A string is a text, a `pathlib.Path` a file: `predict(model, "fine")`,
    `predict(model, Path("reviews.txt"))`.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or a hub name.
        input: From Python, one or several (a list or any other iterable) of: strings; pairs of strings; lists of words to tag;
            dictionaries with the columns of a table, with `words`, or with `question` and `context`. As a path, lines of text
            (a tab between the two of a pair), a .jsonl, .csv, .tsv or .parquet file; words to tag as CoNLL columns, .jsonl or
            lines; questions as a table with question and context, or as SQuAD's .json, which alone is read whole.
            `Path("-")` is standard input.
        out: File for the predictions as JSON lines. It is written while the iterator is advanced, and complete when it ends.
        private: Restrict the file to its owner: it gets mode 0600, new directories get 0700.
        options: Fields of `electra.inference.config.PredictConfig`.

    Returns:
        An iterator of predictions, each with the `id` of its row or its number. The model is loaded before this returns, and
        what has a length is read; files and other iterators are read on as it is advanced.
    """
    from electra.inference.predict import check_paths

    check_paths(input, out)  # before the model is loaded
    return load(model, **options).predict(input, out=out, private=private)


def load(model: PathLike, **options: Any) -> "Predictor":
    """Load a fine-tuned model for several predictions: `load(model).predict(input)` equals `predict(model, input)`.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or a hub name.
        options: Fields of `electra.inference.config.PredictConfig`.

    Returns:
        The model, with a method `predict(input, *, out=None, private=False)`.
    """
    from electra.config.checks import check_local
    from electra.inference.config import from_options
    from electra.inference.predict import load_predictor

    check_local({"--model": model}, hub_name="--model")
    return load_predictor(os.fspath(model), from_options(options))
