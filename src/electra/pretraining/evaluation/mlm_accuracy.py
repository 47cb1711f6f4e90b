"""Masked-LM accuracy on held-out text: of an ELECTRA, of its generator, and of a BERT (Appendix G)."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from electra.config.checks import check_number
from electra.console import reading_progress
from electra.data.batch import Batch
from electra.data.loader import iterate_evaluation_batches
from electra.data.shards import PreparedData
from electra.errors import DataError, ModelError, UsageError
from electra.pretraining.evaluation.discriminator_mlm import ElectraAsMaskedLM, PlainMaskedLM
from electra.pretraining.evaluation.fill_mask import load_filler
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.run_directory import RunDirectory
from electra.runtime.setup import Runtime, start_runtime
from electra.seeding import Draw, uniform
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


BATCH_SIZE = 32

# Descriptions of the metrics in display order.
DESCRIPTIONS = {
    "electra_accuracy": "ELECTRA, by the formula of Appendix G",
    "generator_accuracy": "its generator alone",
    "bert_accuracy": "BERT",
    "upper_bound": "upper bound: the original token is among the generator's candidates",
}


def evaluate_as_mlm(
    run: Path, data_directory: Path | None, bert: Path | None, examples: int, candidates: int
) -> dict[str, float]:
    """Compute accuracies with one token of each held-out example masked, the same for all models.

    Raises:
        RunError: not a run directory, or not finished.
        ModelError: a network is missing, or the BERT has another tokenizer.
        DataError: no such data, prepared with another tokenizer, or sequences longer than a model's positions.
        UsageError: a number is out of range, or a model is of the wrong type.
    """
    check_number("--examples", examples, at_least=1)
    check_number("--candidates", candidates, at_least=1)
    directory = RunDirectory(run)
    config = directory.load_config()
    if OBJECTIVES[config.objective].has_generator and not OBJECTIVES[config.objective].discriminates:
        raise UsageError(
            "not-electra", f"{run}: --objective {config.objective} has no discriminator; name an ELECTRA run"
        )
    electra = load_filler(run)
    if not isinstance(electra.network, ElectraAsMaskedLM):
        raise UsageError(
            "not-electra", f"{run}: a masked language model; name an ELECTRA run, and use this one as --bert"
        )
    other = load_bert(bert, electra.tokenizer) if bert else None
    with start_runtime(config.runtime) as runtime:
        data = PreparedData.open(data_directory or Path(config.data or directory.data))
        data.check_tokenizer(electra.tokenizer.fingerprint, electra.tokenizer.vocab_size)
        for path, network in ((run, electra.network), (bert, other)):
            if network is not None and network.max_positions < data.manifest.seq_len:
                raise DataError(
                    "longer-than-model",
                    f"{data.path}: prepared with sequences of {data.manifest.seq_len} tokens, "
                    f"{path} has {network.max_positions} positions; prepare the text again with a smaller --seq-len",
                )
        batches = iterate_evaluation_batches(
            data.heldout, batch_size=BATCH_SIZE, pad_id=electra.tokenizer.pad_id, max_examples=examples
        )
        masked = mask_one_per_row(batches, electra.tokenizer)
        with reading_progress("scoring", min(examples, len(data.heldout))) as progress:
            metrics = compute_accuracies(electra.network, other, masked, candidates, runtime, progress)
    log.info(
        f"{metrics['examples']:,.0f} held-out examples of {data.path}, one token of each masked",
        extra={"code": "heldout-examples"},
    )
    return metrics


def load_bert(bert: Path, tokenizer: Tokenizer) -> PlainMaskedLM:
    """Load a masked language model to compare with an ELECTRA of this tokenizer."""
    other = load_filler(bert)
    if not isinstance(other.network, PlainMaskedLM):
        raise UsageError("not-masked-lm", f"--bert {bert}: a discriminator; name a run of --objective mlm")
    if other.tokenizer.fingerprint != tokenizer.fingerprint:
        raise ModelError(
            "other-tokenizer",
            f"{bert}: its tokenizer differs from the ELECTRA's, so accuracies cannot be compared; name a BERT with the same",
        )
    return other.network


class MaskedExamples(NamedTuple):
    """A batch with one token of each row masked."""

    batch: Batch
    positions: Int64[Tensor, " B"]
    original: Int64[Tensor, " B"]


def mask_one_per_row(batches: Iterable[Batch], tokenizer: Tokenizer) -> Iterator[MaskedExamples]:
    """Mask one token of each row, uniformly chosen except [PAD], [CLS], [SEP] and [MASK]; the choice is deterministic."""
    special = torch.tensor(tokenizer.special_ids)
    for batch in batches:
        noise = uniform(batch.row_keys, Draw.POSITIONS, batch.input_ids.shape[1])
        positions = noise.masked_fill(torch.isin(batch.input_ids, special), -1.0).argmax(dim=1)
        original = batch.input_ids.gather(1, positions[:, None])[:, 0]
        ids = batch.input_ids.scatter(1, positions[:, None], tokenizer.mask_id)
        yield MaskedExamples(replace(batch, input_ids=ids), positions, original)


def compute_accuracies(
    electra: ElectraAsMaskedLM,
    bert: PlainMaskedLM | None,
    examples: Iterable[MaskedExamples],
    candidates: int,
    runtime: Runtime,
    progress: Callable[[int, str], None],
) -> dict[str, float]:
    """Return the shares of examples whose original token is a model's best candidate, or any of the generator's."""
    electra.to(runtime.device)
    if bert is not None:
        bert.to(runtime.device)
    correct: Counter[str] = Counter()
    number = 0
    for host_batch, host_positions, host_original in examples:
        batch = host_batch.to(runtime.device)
        positions, original = host_positions.to(runtime.device), host_original.to(runtime.device)[:, None]
        with runtime.autocast():
            ranked = electra(batch, positions, candidates)
            predicted = {
                "electra_accuracy": ranked.tokens[:, :1],
                "generator_accuracy": ranked.tokens.gather(1, ranked.generator.argmax(dim=1, keepdim=True)),
                **({"bert_accuracy": bert(batch, positions, 1).tokens} if bert is not None else {}),
                "upper_bound": ranked.tokens,
            }
        correct.update({name: int((tokens == original).sum()) for name, tokens in predicted.items()})
        number += len(original)
        progress(number, "")
    return {**{name: count / number for name, count in correct.items()}, "examples": number, "candidates": candidates}
