"""Export to formats of other programs: export."""

import os
from pathlib import Path
from typing import Any, Literal

from electra.storage import PathLike


def export(
    model: PathLike,
    *,
    out: PathLike,
    to: str = "onnx",
    precision: Literal["fp32", "int8"] | None = None,
    encoder: bool = False,
    texts: PathLike | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Export a model to a format of other programs, and compare it with PyTorch; float32 may differ by rounding only.

    The outputs of an ONNX file are those of the Hugging Face class in config.json: `last_hidden_state` of an encoder, `logits`
    of a discriminator, masked language model, classifier or tagger, `start_logits` and `end_logits` of question answering. A
    fine-tuned model whose head no such class has (head.safetensors) is exported as an encoder, beside this file.

    Args:
        model: Hugging Face ELECTRA directory, pre-trained or fine-tuned, run directory, or hub name; of a run of pre-training,
            the discriminator or main encoder; RUN/generator is the generator.
        out: Directory of the exported model, which must not exist or be empty.
        to: Format: onnx, which needs the extra electra[onnx].
        precision: fp32, or int8, with which weights have a quarter of the size; by default fp32.
        encoder: Leave out the head.
        texts: File of texts for the comparison, one per line (a tab between two) or a table with the column text; by default
            random tokens of the vocabulary.
        threads: CPU threads; by default PyTorch's choice.

    Returns:
        A dictionary: `format`, `precision`, `file`, its `bytes`, the number of `sequences` compared, the `max_difference` of
        an output, and `equal_predictions`, their share, None if the outputs are hidden states or numbers.

    Raises:
        ModelError: `model` is not a model, is damaged, has a head that is not known, or its file differs from PyTorch in
            float32; then nothing is written.
        DataError: `texts` cannot be read.
        UsageError: the extra is not installed, an option has a wrong value, or `out` has files.
    """
    from electra.config.checks import check_local
    from electra.external import check_output_path
    from electra.inference.export import export as run

    check_local({"--model": model})
    check_local({"--out": out, "--texts": texts})
    path = None if texts is None else Path(texts)
    return run(os.fspath(model), check_output_path(out), to, precision, encoder, path, threads)
