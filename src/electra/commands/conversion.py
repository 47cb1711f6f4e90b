"""The command that converts checkpoints of the original code: convert."""

import os
from pathlib import Path

from electra.config.checks import check_local, check_number
from electra.external import check_output_path
from electra.storage import PathLike, restrict_permissions


def convert(
    checkpoint: PathLike,
    *,
    out: PathLike,
    tokenizer: PathLike | None = None,
    heads: int | None = None,
    private: bool = False,
) -> dict[str, Path]:
    """Convert a TensorFlow checkpoint of the original ELECTRA code to Hugging Face directories. TensorFlow is not needed.

    Sizes are inferred from the shapes of the variables. The state of the optimizer is left out.

    Args:
        checkpoint: Checkpoint without its ending, as in model.ckpt-1000000, its .index file, or its folder.
        out: Directory for discriminator and generator, or for masked_lm; new or empty.
        tokenizer: Tokenizer directory, vocab.txt, or owner/name or owner/name@revision of the hub; by default the vocab.txt
            beside the checkpoint.
        heads: Attention heads of the discriminator, which the variables do not tell; by default one for each 64 values of
            the hidden size, as in every published model.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.

    Returns:
        The directories by name: `discriminator` and `generator`, or `masked_lm` for the original code's BERT baseline.

    Raises:
        ModelError: `checkpoint` is not one of an ELECTRA, is truncated or damaged, or does not match the tokenizer.
        TokenizerError: the tokenizer is missing or malformed.
        UsageError: `out` is not empty, the tokenizer or the number of heads is needed, or an extra is not installed.
        StorageError: `out` cannot be written.
    """
    from electra.pretraining.conversion import convert_checkpoint

    check_local({"CHECKPOINT": checkpoint, "--out": out, "--tokenizer": tokenizer})
    check_number("--heads", heads, at_least=1, at_most=10**6)
    directory = check_output_path(out)
    with restrict_permissions(private):
        return convert_checkpoint(
            Path(checkpoint), directory, None if tokenizer is None else os.fspath(tokenizer), heads
        )
