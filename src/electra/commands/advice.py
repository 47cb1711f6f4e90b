"""The command that recommends a configuration: advise."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from electra.commands.pretraining import list_sources
from electra.config.checks import check_local, check_number
from electra.external import check_output_file
from electra.storage import PathLike


def advise(
    text: Iterable[PathLike] | PathLike,
    *,
    hours: float,
    write: PathLike | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    threads: int | None = None,
    cased: bool = False,
    keep_accents: bool = False,
    text_field: str = "text",
    encoding_errors: Literal["strict", "replace"] = "strict",
) -> dict[str, Any]:
    """Recommend a pre-training run for a text and a number of hours on this machine.

    A sample of the text is read and tokenized, and some updates are timed. The rules of the recommendation follow from the
    committed studies and published results, which are named in the reasons.

    Args:
        text: Files, folders, or builtin.
        hours: Hours of training; preparation of the text and evaluation are not included.
        write: Config file to write, for `electra pretrain TEXT --config FILE --out RUN`; an existing one is replaced.
        device: auto uses a GPU if there is one.
        precision: Precision of matrix products; auto is bfloat16 on a GPU that supports it.
        threads: CPU threads; by default PyTorch's choice.
        cased: Keep capital letters.
        keep_accents: Keep accents in an uncased vocabulary.
        text_field: Field of .jsonl and .parquet that holds the text.
        encoding_errors: Stop at bytes that are not UTF-8 (strict), or replace them.

    Returns:
        `run`: the recommended size, objective, seq_len, batch_size, vocab_size, steps, with their hours, flops, tokens and
        epochs over the text; `options`: the same as options of `electra.pretrain`; `sizes`: what each size needs on this
        machine; `text`: estimated bytes and tokens; `expected`: scores of the nearest runs of this size; `reasons` and
        `warnings`: sentences.

    Raises:
        DeviceError: a GPU is requested but not available.
        StorageError: `write` cannot be written.
        TextError: the text is missing, cannot be read, or is empty.
        UsageError: an option has a wrong value, or the text is a data set of the hub, whose size is not known.
    """
    from electra.data.pipeline import open_corpus
    from electra.runtime.setup import RuntimeConfig
    from electra.storage import check_writable, write_atomically
    from electra.studies.advice.advise import advise as run
    from electra.studies.advice.report import build_record, format_recipe

    check_local({"--write": write})
    check_number("--hours", hours, above=0, at_most=10**5)
    path: Path | None = None if write is None else check_output_file(write, "--write")
    if path is not None:
        check_writable(path.parent)
    corpus = open_corpus(list_sources(text), "blank-line", text_field, encoding_errors)
    advice = run(corpus, hours, RuntimeConfig(device, precision, threads), cased, keep_accents)
    record = build_record(advice, hours)
    if path is not None:
        write_atomically(path, format_recipe(record).encode())
    return record
