"""What an encoder is worth: finetune, glue, predict, load."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from electra.external import output_path
from electra.storage import PathLike, owner_only

if TYPE_CHECKING:
    from electra.inference.predict import Predictor


def finetune(
    task: str, *, model: PathLike, out: PathLike, seeds: int = 1, private: bool = False, **others: Any
) -> dict[str, Any]:
    """Fine-tune an encoder on a task by the paper's protocol and score it. Run again with the same `out`, it resumes.

    Args:
        task: One of GLUE (cola sst2 mrpc stsb qqp mnli qnli rte wnli ax), squad1 squad2 mrqa, chunk ner pos, or one's own
            data: table, tagging.
        model: Hugging Face ELECTRA directory, run directory, or hub name.
        out: Directory of the results, with a directory for each seed.
        seeds: Runs, with seeds from `seed` on.
        private: Files are for their owner alone: directories have mode 0700, files 0600. The umask of the process is changed
            meanwhile.
        others: Fields of `electra.finetuning.config.FinetuneConfig`.

    Returns:
        The summary: for every split and metric the median, mean, standard deviation and values over the seeds.
    """
    from electra.finetuning.config import from_options
    from electra.finetuning.run import finetune as run

    with owner_only(private):
        return run(from_options(task, {"model": model, **others}), output_path(out), seeds)


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
    **others: Any,
) -> dict[str, Any]:
    """Fine-tune an encoder on every task of GLUE over several seeds. Run again with the same `out`, it resumes.

    Args:
        model: Hugging Face ELECTRA directory, run directory, or hub name.
        data: Folder in GLUE's layout, or hf://nyu-mll/glue.
        out: Directory of the results, with a directory for each task.
        tasks: Tasks, wnli and ax among them; by default the paper's eight, and for a submission WNLI too if its data is there.
        seeds: Runs of each task; scores are medians over them.
        intermediate: RTE and STS start from MNLI, RTE at a rate of 2e-5 (Appendix B).
        ensemble: Average this many runs, the best on dev (Appendix B).
        submission: Write the files that gluebenchmark.com takes.
        private: Files are for their owner alone: directories have mode 0700, files 0600. The umask of the process is changed
            meanwhile.
        others: Fields of `electra.finetuning.config.FinetuneConfig`.

    Returns:
        Scores by task, their average if all of the paper's eight were run, and the ensemble's.
    """
    from electra.finetuning.benchmark.grid import glue as run
    from electra.finetuning.config import from_options

    config = from_options("", {"model": model, "data": data, **others})
    with owner_only(private):
        return run(
            config,
            output_path(out),
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
    **others: Any,
) -> Iterator[dict[str, Any]]:
    """Labels with probabilities, numbers, tags, or answers with n-best spans and null odds, in the order of the inputs.

    A string is a text, and a `pathlib.Path` is a file: `predict(model, "fine")`, `predict(model, Path("reviews.txt"))`.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or a hub name.
        input: From Python, one or several (a list or any other iterable) of: strings; pairs of strings; lists of words to tag;
            dictionaries with the columns of a table, with `words`, or with `question` and `context`. As a path, lines of text
            (a tab between the two of a pair), a .jsonl, .csv, .tsv or .parquet file; words to tag as CoNLL columns, .jsonl or
            lines; questions as a table with question and context, or as SQuAD's .json, which alone is read whole.
            `Path("-")` is standard input.
        out: File for the predictions as JSON lines. It is written while the iterator is advanced, and there when it ends.
        private: The file is for its owner alone: it has mode 0600, directories that are made for it 0700.
        others: Fields of `electra.inference.config.PredictConfig`.

    Returns:
        An iterator of predictions, each with the `id` of its row or its number. The model is loaded before this returns, and
        what has a length is read; files and other iterators are read on as it is advanced.
    """
    from electra.inference.predict import check_paths

    check_paths(input, out)  # before the model is loaded
    return load(model, **others).predict(input, out=out, private=private)


def load(model: PathLike, **others: Any) -> "Predictor":
    """A fine-tuned model that predicts many times: `load(model).predict(input)` gives what `predict(model, input)` does.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or a hub name.
        others: Fields of `electra.inference.config.PredictConfig`.

    Returns:
        The model, with a method `predict(input, *, out=None, private=False)`.
    """
    from electra.config.hints import check_local
    from electra.inference.config import from_options
    from electra.inference.predict import load_predictor

    check_local({"--model": model}, hub_name="--model")
    return load_predictor(os.fspath(model), from_options(others))
