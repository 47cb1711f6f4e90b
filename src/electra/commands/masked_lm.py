"""The command that predicts the tokens at [MASK]: fill_mask."""

import os
import sys
from collections.abc import Iterable
from typing import Any, Literal

from electra.config.checks import check_local
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
    """Predict the tokens at each [MASK], with an ELECTRA (Appendix G of the paper) or a masked language model.

    An ELECTRA ranks the generator's best candidates by D p_G / (a (1 - D) + p_G), where p_G is the generator's probability of
    a token, D the discriminator's probability that it is original, and a = (1 - p_mask) / p_mask. In a text with several
    [MASK]s, each one is predicted while the others remain masked.

    Args:
        text: Texts with [MASK]; "-" is standard input, one text per line.
        model: Finished run, a folder with discriminator/ and generator/, a Hugging Face ElectraForMaskedLM directory, or
            such a model of the hub, as owner/name or owner/name@revision.
        top: Number of tokens for each [MASK].
        candidates: For an ELECTRA: number of the generator's best tokens that the discriminator scores.
        mask_fraction: For an ELECTRA: p_mask, the share of masked tokens in pre-training; by default that of the run.
        device: auto uses a GPU if there is one.
        threads: CPU threads; by default PyTorch's choice.

    Returns:
        A dictionary for each [MASK]: `text`, `mask` (its number in the text, from 0) and `answers`, a list of `token` and
        `probability`, with an ELECTRA also `generator` (p_G) and `original` (D). The probabilities of an ELECTRA sum to 1 only
        if its discriminator is optimal.

    Raises:
        UsageError: there is no text, a text has no [MASK] or is too long, or an option has a wrong value.
        TextError: standard input is not UTF-8.
        ModelError: `model` is not such a directory, or is damaged.
        RunError: the run is not finished.
    """
    from electra.pretraining.evaluation.fill_mask import fill_mask as run
    from electra.pretraining.evaluation.fill_mask import load_filler
    from electra.runtime.setup import RuntimeConfig, start_runtime
    from electra.text.hub import locate_model

    check_local({"--model": model})
    sources = [text] if isinstance(text, str) else list(text)
    texts = [line for source in sources for line in (read_standard_input() if source == "-" else [source])]
    with start_runtime(RuntimeConfig(device, "float32", threads)) as runtime:
        return run(load_filler(locate_model(os.fspath(model)), mask_fraction), texts, top, candidates, runtime)


def read_standard_input() -> list[str]:
    """Read the lines of standard input, without blank ones.

    Raises:
        TextError: it is not UTF-8.
    """
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise TextError("not-utf8", f"standard input: not UTF-8 ({error})") from None
    if not is_unicode(text):
        raise TextError("not-utf8", "standard input: not UTF-8")
    return [line for line in text.splitlines() if line.strip()]
