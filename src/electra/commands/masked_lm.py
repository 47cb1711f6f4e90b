"""Words for [MASK]: fill-mask."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from electra.config.hints import check_local
from electra.errors import TextError
from electra.external import is_unicode
from electra.storage import PathLike


def fill_mask(
    text: Iterable[str] | str,
    *,
    model: PathLike,
    top: int = 5,
    candidates: int = 100,
    mask_fraction: float | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """The likeliest tokens for each [MASK] of a text, by an ELECTRA (Appendix G of the paper) or a masked language model.

    An ELECTRA's answers are its generator's best candidates in the order of D p_G / (a (1 - D) + p_G), where p_G is the
    generator's probability of a token, D the discriminator's that it is original, and a = (1 - p_mask) / p_mask. A text
    with several [MASK]s has each filled with the others left as they are.

    Args:
        text: Texts with [MASK] in them; "-" is standard input, a text a line.
        model: Finished run, a folder with discriminator/ and generator/, or a Hugging Face ElectraForMaskedLM directory.
        top: Answers for each [MASK].
        candidates: An ELECTRA's: how many of the generator's best tokens the discriminator judges.
        mask_fraction: An ELECTRA's: share of the tokens masked in pre-training; by default what the run's configuration says.
        device: Where to compute: auto takes a GPU if there is one.
        threads: CPU threads; by default PyTorch's choice.

    Returns:
        A dictionary for each [MASK]: `text`, `mask` (its number in the text, from 0) and `answers`, a list of `token` and
        `probability`, with an ELECTRA also `generator` (p_G) and `original` (D). The formula's probabilities add to 1 only
        where the discriminator is optimal.
    """
    from electra.pretraining.evaluation.fill_mask import fill_mask as run
    from electra.pretraining.evaluation.fill_mask import load_filler
    from electra.runtime import RuntimeConfig, start_runtime

    check_local({"--model": model})
    given = [text] if isinstance(text, str) else list(text)
    texts = [line for each in given for line in (standard_input() if each == "-" else [each])]
    with start_runtime(RuntimeConfig(device, "float32", threads)) as runtime:
        return run(load_filler(Path(model), mask_fraction), texts, top, candidates, runtime)


def standard_input() -> list[str]:
    """Its lines, blank ones left out.

    Raises:
        TextError: it is not UTF-8.
    """
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise TextError(f"standard input: not UTF-8 ({error})") from None
    if not is_unicode(text):
        raise TextError("standard input: not UTF-8")
    return [line for line in text.splitlines() if line.strip()]


def show_answers(rows: Sequence[Mapping[str, Any]]) -> None:
    """What `fill_mask` returned, on the terminal."""
    from rich.table import Table
    from rich.text import Text

    from electra.console import console

    for row in rows:
        number = row["text"].count("[MASK]")
        which = f"  ([MASK] {row['mask'] + 1} of {number}, the others left as they are)" if number > 1 else ""
        console.print(row["text"] + which, markup=False)
        grid = Table(box=None)
        for name in row["answers"][0]:
            grid.add_column(
                "original, says D" if name == "original" else name, justify="left" if name == "token" else "right"
            )
        for answer in row["answers"]:
            token, *numbers = answer.values()
            grid.add_row(Text(token), *(f"{value:.4f}" for value in numbers))
        console.print(grid)
