"""The commands of fine-tuning and prediction: finetune, glue, predict, load, embed, serve."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from electra.config.checks import check_choice
from electra.external import check_output_path, require_extra
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
    at: Literal["end", "all"] = "end",
    private: bool = False,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> dict[str, Any]:
    """Fine-tune an encoder on a task by the paper's protocol and score it. Called again with the same `out`, it resumes.

    Args:
        task: A task of GLUE (cola to ax, or WNLI by candidate antecedents), question answering (squad1, squad2, mrqa), tagging
            (chunk, ner, pos), or a task over files of your own (table, multiple-choice, tagging, and embedding: sentence
            vectors).
        model: Hugging Face ELECTRA directory, run directory, or owner/name or owner/name@revision of the hub.
        out: Directory of the results, with a run directory for each seed.
        seeds: Number of runs, with consecutive seeds from `seed` on.
        at: end: the finished model; all: each network that the run `model` exported on its way (pretrain --export-at), each
            in a directory of `out`, with learning_curve.csv and .png of the scores over steps and FLOPs.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.
        callbacks: From Python, objects of subclasses of `electra.Callback`, called in the training of every seed.
        options: Fields of `electra.finetuning.config.FinetuneConfig`.

    Returns:
        The summary, also written to `out/results.json`. Its `metrics` are split -> metric -> median, mean, std and values (a
        list over the seeds), in percent. With all, that of the last export, with `exports`: a row of scores for each.

    Raises:
        UsageError: an option is missing, unknown, has a wrong value or no meaning for the task.
        ModelError: `model` is not a model, or is damaged.
        DataError: a file of the task is missing or malformed; the message names file and line.
        RunError: `out` belongs to another process or configuration, or its files are damaged; with all, `model` is not a run
            with exports.
        DivergedError: the gradients are not finite.
        SystemExit: a signal stopped the run after a checkpoint was saved.
    """
    from electra.finetuning.config import build_finetune_config
    from electra.finetuning.run import finetune as run
    from electra.studies.finetuned_exports import finetune_exports, get_summary_scores

    check_choice("--at", at, ("end", "all"))
    config, directory = build_finetune_config(task, {"model": model, **options}), check_output_path(out)

    def tune(start: Path, out: Path) -> dict[str, Any]:
        return run(replace(config, model=str(start)), out, seeds, callbacks)

    with restrict_permissions(private):
        if at == "all":
            return finetune_exports(Path(config.model), directory, tune, get_summary_scores)
        return run(config, directory, seeds, callbacks)


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
    at: Literal["end", "all"] = "end",
    private: bool = False,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> dict[str, Any]:
    """Fine-tune an encoder on every task of GLUE over several seeds. Called again with the same `out`, it resumes.

    Args:
        model: Hugging Face ELECTRA directory, run directory, or owner/name or owner/name@revision of the hub.
        data: Folder in GLUE's layout, or hf://nyu-mll/glue.
        out: Directory of the results, with one directory per task.
        tasks: Tasks of GLUE, wnli and ax included; by default the paper's eight, and with `submission` also WNLI if there
            is data for it.
        seeds: Runs per task; scores are medians over them.
        intermediate: Start RTE and STS-B from the model fine-tuned on MNLI, RTE at a learning rate of 2e-5 (Appendix B).
        ensemble: Average this many runs, the best on dev (Appendix B: 10 of 30).
        submission: Write the files for gluebenchmark.com.
        at: end: the finished model; all: each network that the run `model` exported on its way (pretrain --export-at), each
            in a directory of `out`, with learning_curve.csv and .png of the scores over steps and FLOPs.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.
        callbacks: From Python, objects of subclasses of `electra.Callback`, called in the training of every run.
        options: Fields of `electra.finetuning.config.FinetuneConfig`.

    Returns:
        A dictionary, also written to `out/results.json`: `tasks` (the summaries of `finetune`), `average` (of the medians on
        dev, None unless all of the paper's eight tasks were run), `best_seeds`, and with `ensemble` its scores. With all, that
        of the last export, with `exports`: a row of scores for each.

    Raises:
        UsageError: no such task, fewer seeds than the ensemble needs, or an unknown option or wrong value.
        ModelError: `model` is not a model, or is damaged.
        DataError: a file of a task is missing or malformed.
        RunError: `out` belongs to another process or configuration, or its files are damaged; with all, `model` is not a run
            with exports.
        DivergedError: the gradients of a run are not finite.
        SystemExit: a signal stopped a run after a checkpoint was saved.
    """
    from electra.finetuning.benchmark.grid import glue as run
    from electra.finetuning.config import build_finetune_config
    from electra.studies.finetuned_exports import finetune_exports, get_glue_scores

    check_choice("--at", at, ("end", "all"))
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    config = build_finetune_config("", {"model": model, "data": data, **options}, "glue")
    directory = check_output_path(out)

    def tune(start: Path | None, out: Path) -> dict[str, Any]:
        return run(
            config if start is None else replace(config, model=str(start)),
            out,
            tasks=names,
            seeds=seeds,
            intermediate=intermediate,
            ensemble=ensemble,
            submission=submission,
            callbacks=callbacks,
        )

    with restrict_permissions(private):
        if at == "all":
            return finetune_exports(Path(config.model), directory, tune, get_glue_scores)
        return tune(None, directory)


def predict(
    model: PathLike,
    input: PathLike | Mapping[str, Any] | Iterable[Any],
    *,
    out: PathLike | None = None,
    private: bool = False,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Predict with a fine-tuned model: labels with probabilities, numbers, tags, or answers with n-best spans and null odds.

    A string is a text, a `pathlib.Path` a file: `predict(model, "fine")`, `predict(model, Path("reviews.txt"))`.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or
            owner/name or owner/name@revision of the hub.
        input: From Python, one input or an iterable of inputs: strings; pairs of strings; lists of words to tag; dictionaries
            with the columns of a table, with `words`, with `question` and `context`, or with a context and endings. As a path,
            lines of text (a tab separates the texts of a pair) or a .jsonl, .csv, .tsv or .parquet file; words to tag as CoNLL
            columns, .jsonl or lines; questions as a table with the columns question and context, or as SQuAD's .json, the only
            format that is read as a whole. `Path("-")` is standard input.
        out: File for the predictions as JSON lines. It is written as the iterator advances, and appears when it ends.
        private: Restrict the file to its owner: it gets mode 0600, new directories get 0700.
        options: Fields of `electra.inference.config.PredictConfig`.

    Returns:
        An iterator of predictions in the order of the inputs, each with the `id` of its input, or its number from 0. The model
        is loaded before this returns, and inputs in a sequence are read; files and other iterables are read as the iterator
        advances.

    Raises:
        ModelError: the model is not fine-tuned, is damaged, or cannot predict new inputs.
        DataError: an input cannot be read; the message names file and line, or the number of the input.
        UsageError: an option has no meaning for the model, or a wrong value.
    """
    from electra.inference.predict import check_paths

    check_paths(input, out)  # before the model is loaded
    return load(model, **options).predict(input, out=out, private=private)


def load(model: PathLike, **options: Any) -> "Predictor":
    """Load a fine-tuned model for several predictions: `load(model).predict(input)` equals `predict(model, input)`.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or
            owner/name or owner/name@revision of the hub.
        options: Fields of `electra.inference.config.PredictConfig`.

    Returns:
        The model, with a method `predict(input, *, out=None, private=False)`.

    Raises:
        ModelError: the model is not fine-tuned, is damaged, or cannot predict new inputs.
        UsageError: an option has no meaning for the model, or a wrong value.
    """
    from electra.config.checks import check_local
    from electra.inference.config import build_predict_config
    from electra.inference.predict import load_predictor

    check_local({"--model": model})
    return load_predictor(os.fspath(model), build_predict_config(options))


def embed(
    model: PathLike,
    input: PathLike | Mapping[str, Any] | Iterable[Any],
    *,
    out: PathLike | None = None,
    private: bool = False,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Compute sentence vectors with an encoder, best one that `electra finetune embedding` has trained.

    A string is a text, a `pathlib.Path` a file, as in `predict`.

    Args:
        model: Hugging Face ELECTRA or BERT directory, run directory, directory of sentence-transformers with one of these
            encoders, or owner/name or owner/name@revision of the hub.
        input: From Python, one input or an iterable of inputs: strings, or dictionaries with the column of a table. As a path,
            lines of text or a .jsonl, .csv, .tsv or .parquet file. `Path("-")` is standard input.
        out: File for the vectors, by its suffix JSON lines (.jsonl), a float32 array (.npy) or Parquet (.parquet), in float32
            too. It is written as the iterator advances, and appears when it ends.
        private: Restrict the file to its owner: it gets mode 0600, new directories get 0700.
        options: Fields of `electra.inference.config.EmbedConfig`.

    Returns:
        An iterator in the order of the inputs of dictionaries with the `id` of the input, or its number from 0, and its
        `vector`, a list of floats. The model is loaded before this returns, and inputs in a sequence are read; files and other
        iterables are read as the iterator advances.

    Raises:
        ModelError: `model` is not a model, is damaged, or is a directory of sentence-transformers with other modules.
        TokenizerError: its tokenizer is missing or broken.
        DataError: an input is empty or cannot be read; the message names file and line, or the number of the input.
        UsageError: an option has a wrong value, or `out` another suffix.
        StorageError: `out` cannot be written.
    """
    from electra.config.checks import check_local
    from electra.inference.config import build_embed_config
    from electra.inference.embed import embed as run

    check_local({"--model": model})
    return run(os.fspath(model), input, build_embed_config(options), out, private)


def serve(
    model: PathLike,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_inputs: int = 256,
    max_chars: int = 100_000,
    max_body_bytes: int = 4 << 20,
    max_waiting: int = 64,
    **options: Any,
) -> None:
    """Serve a fine-tuned model over HTTP until SIGINT or SIGTERM: POST /predict answers as `predict`.

    Args:
        model: Directory that `electra finetune` wrote, another fine-tuned Hugging Face ELECTRA, or a hub name.
        host: Address to listen on; by default only this machine can connect.
        port: Port to listen on; 0 is a free one, which is logged.
        max_inputs: Maximum inputs of a request.
        max_chars: Maximum characters of an input, all its texts together.
        max_body_bytes: Maximum bytes of the body of a request.
        max_waiting: Maximum requests that wait while a batch is computed; further ones are answered with status 503.
        options: Fields of `electra.inference.config.PredictConfig`.

    Raises:
        UsageError: the extra `serve` is not installed, the port cannot be opened, or an option has no meaning for the
            model, or a wrong value.
        ModelError: the model is not fine-tuned, is damaged, or cannot predict new inputs.
        SystemExit: a signal ended the server.
    """
    require_extra("serve", "electra serve")
    from electra.inference.serving import Limits
    from electra.inference.serving import serve as run

    limits = Limits(max_inputs, max_chars, max_body_bytes, max_waiting)
    run(lambda: load(model, **options), os.fspath(model), host, port, limits)
