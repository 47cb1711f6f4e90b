"""Scores of tokens by any masked language model that the package transformers loads, which is imported only here."""

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from electra.errors import ElectraError, ModelError, TokenizerError, UsageError
from electra.external import one_line
from electra.model.weights_file import check_finite
from electra.pretraining.evaluation.sentence_batches import (
    TokenizedSentence,
    count_masked_tokens,
    gather_log_probabilities,
    iterate_masked,
)
from electra.runtime.setup import Runtime

MAX_LOGITS = 2**26
"""Logits of a forward pass: these models predict all positions, not only the masked one. In float32 they take 256 MB."""


@dataclass(frozen=True)
class TransformersScorer:
    """A masked language model of transformers; a `Scorer`."""

    tokenizer: Any
    network: Any
    """A `transformers.PreTrainedModel`."""
    max_positions: int | None

    @property
    def methods(self) -> tuple[str, ...]:
        """Pseudo-log-likelihood."""
        return ("masked-lm",)

    @property
    def uses_token_types(self) -> bool:
        """Whether the tokenizer writes token types and the network reads them."""
        parameters = inspect.signature(self.network.forward).parameters
        return "token_type_ids" in self.tokenizer.model_input_names and "token_type_ids" in parameters

    def encode(self, sentences: Sequence[str]) -> list[TokenizedSentence]:
        """Tokenize; the tokenizer's special tokens have no score, with the exception of its unknown token."""
        around = self.tokenizer("")["input_ids"]
        special = {*self.tokenizer.all_special_ids} - {self.tokenizer.unk_token_id} | {*around}
        encoded = self.tokenizer(list(sentences), return_token_type_ids=True, truncation=False, verbose=False)
        return [
            TokenizedSentence(ids, types, [position for position, id in enumerate(ids) if id not in special])
            for ids, types in zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
        ]

    @torch.inference_mode()
    def score_tokens(
        self,
        sentences: Sequence[TokenizedSentence],
        methods: Sequence[str],
        runtime: Runtime,
        progress: Callable[[int, str], None],
    ) -> dict[str, Float[Tensor, " N"]]:
        """See `Scorer`."""
        network = self.network.to(runtime.device)
        scores = torch.zeros(sum(len(each.scored) for each in sentences))
        total, done = count_masked_tokens(sentences), 0
        vocab_size = network.get_input_embeddings().num_embeddings
        for masked in iterate_masked(sentences, self.tokenizer.mask_token_id, MAX_LOGITS // vocab_size):
            batch = masked.batch.to(runtime.device)
            types = {"token_type_ids": batch.token_type_ids} if self.uses_token_types else {}
            output = network(input_ids=batch.input_ids, attention_mask=torch.ones_like(batch.input_ids), **types)
            rows = torch.arange(len(masked.tokens))
            logits = output.logits[rows, masked.positions[:, 0]].float()
            scores[masked.tokens] = gather_log_probabilities(logits, masked.targets)
            done += int(masked.batch.lengths.sum())
            progress(100 * done // total, "masked LM")
        return dict.fromkeys(methods, scores)


def load_transformers_scorer(model: Path, mask_fraction: float | None = None) -> TransformersScorer:
    """Load a Hugging Face directory of a masked language model with its tokenizer. No code in the directory is executed.

    Raises:
        ModelError: transformers cannot load it as a masked language model, weights are missing or not finite.
        TokenizerError: there is no tokenizer, it has no mask token, or more tokens than the network.
        UsageError: transformers is not installed, or `mask_fraction` is given.
    """
    if mask_fraction is not None:
        raise UsageError(
            "meaningless-option", f"--mask-fraction applies to an ELECTRA only; {model} is a masked language model"
        )
    if importlib.util.find_spec("transformers") is None:
        raise UsageError(
            "missing-extra", f"{model}: models of this type are loaded by transformers: pip install transformers"
        )
    import transformers

    options = {"local_files_only": True, "trust_remote_code": False}
    with hide_messages(), convert_errors(model, TokenizerError, "tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, **options)
    check_tokenizer(model, tokenizer)
    with hide_messages(), convert_errors(model, ModelError, "masked language model"):
        network, report = transformers.AutoModelForMaskedLM.from_pretrained(
            model, output_loading_info=True, weights_only=True, **options
        )
    if report["missing_keys"]:
        raise ModelError(
            "no-head",
            f"{model}: lacks {len(report['missing_keys'])} weights of a masked language model, such as "
            f"{min(report['missing_keys'])}; name a model with the head of its pre-training",
        )
    check_finite(model, network.state_dict())
    if len(tokenizer) > (size := network.get_input_embeddings().num_embeddings):
        raise TokenizerError(
            "other-tokenizer", f"{model}: its tokenizer has {len(tokenizer):,} tokens, its network {size:,} embeddings"
        )
    return TransformersScorer(tokenizer, network.float().eval(), find_max_positions(tokenizer, network))


def check_tokenizer(model: Path, tokenizer: Any) -> None:
    """Raise a `TokenizerError` for a tokenizer without files (transformers returns an empty one) or mask token."""
    files = tokenizer.vocab_files_names.values()
    if not any((model / name).exists() for name in files):
        raise TokenizerError("no-tokenizer", f"{model}: no tokenizer, none of {', '.join(files)}")
    if tokenizer.mask_token_id is None:
        raise TokenizerError("no-mask-token", f"{model}: its tokenizer has no mask token, which masked-lm needs")


def find_max_positions(tokenizer: Any, network: Any) -> int | None:
    """Find the tokens of the longest input; None without a limit."""
    limits = [tokenizer.model_max_length]
    if (positions := getattr(network.config, "max_position_embeddings", None)) is not None:
        padding = [
            module.padding_idx + 1  # RoBERTa's positions begin behind that of padding
            for name, module in network.named_modules()
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
        ]
        limits.append(positions - max(padding, default=0))
    found = int(min(limits))
    return found if found < torch.iinfo(torch.int32).max else None  # a tokenizer without a limit has 1e30


@contextmanager
def convert_errors(model: Path, kind: type[ElectraError], what: str) -> Iterator[None]:
    """Turn any error of transformers into one line."""
    try:
        yield
    except Exception as error:  # the type depends on the architecture and the file
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise kind("unreadable", f"{model}: transformers cannot load its {what} ({reason})") from error


@contextmanager
def hide_messages() -> Iterator[None]:
    """Hide the progress bars and warnings of transformers: what matters is checked after loading."""
    from transformers.utils import logging

    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()
