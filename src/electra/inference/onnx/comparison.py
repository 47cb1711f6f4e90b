"""Comparison of an ONNX file with PyTorch. Shapes: B sequences, L tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from electra.finetuning.batching import EncodedExamples, iterate_by_length
from electra.finetuning.config import MIN_LENGTH
from electra.inference.onnx.session import OnnxSession
from electra.inference.sources import ExportedNetwork
from electra.text.tokenizer import Tokenizer

TOLERANCE = 1e-4
"""Maximum difference in float32, absolute for values up to 1, relative for larger ones."""
EXAMPLES, BATCH_SIZE = 16, 4
"""Few, because the logits of a masked language model for one sequence of 512 tokens have 60 MB."""
MASK_EVERY = 7
"""For a masked language model, every token at a multiple of this position is masked."""

Arrays = Mapping[str, np.ndarray]
Decide = Callable[[Arrays, np.ndarray], np.ndarray]
"""Function of outputs [B, ...] and the mask of tokens [B, L] to the predictions, one after the other."""

DECISIONS: dict[str, Decide] = {
    "replaced-token": lambda outputs, mask: outputs["logits"][mask] > 0,
    "masked-lm": lambda outputs, mask: outputs["logits"][mask].argmax(-1),
    "token-classification": lambda outputs, mask: outputs["logits"][mask].argmax(-1),
    "sequence-classification": lambda outputs, mask: outputs["logits"].argmax(-1),
    "multilabel": lambda outputs, mask: outputs["logits"] > 0,
    "question-answering": lambda outputs, mask: np.stack(
        [np.where(mask, logits, -np.inf).argmax(-1) for logits in outputs.values()]
    ),
}
"""Kind of head, or of labels -> its predictions; other kinds have none."""
PER_SEQUENCE = ("sequence-classification", "multilabel", "regression")
"""Kinds with outputs per sequence; the others have outputs per token."""


@dataclass(frozen=True)
class Comparison:
    """Differences of an ONNX file from PyTorch."""

    max_difference: float
    """Largest absolute difference of an output, at tokens only."""
    max_excess: float
    """The same, divided by the larger of 1 and the absolute value in PyTorch."""
    equal_predictions: float | None
    """Share of equal predictions; None for outputs that are none, such as hidden states and numbers."""


def build_examples(
    tokenizer: Tokenizer, max_length: int, encoded: tuple[list[list[int]], list[int]] | None, masked: bool
) -> EncodedExamples:
    """Build the inputs of a comparison.

    Args:
        tokenizer: Tokenizer of the model.
        max_length: Maximum number of tokens.
        encoded: Token ids of sequences, and the numbers of tokens of their first segments; None: pairs of segments of random
            tokens, with all lengths up to the maximum.
        masked: Mask tokens.
    """
    if encoded is None:
        draw = np.random.default_rng(0)
        ordinary = sorted(set(range(tokenizer.vocab_size)) - set(tokenizer.special_ids))
        ids, segment_a = [], []
        for length in np.linspace(MIN_LENGTH, max_length, EXAMPLES).astype(int).tolist():
            row = draw.choice(ordinary, length).tolist()
            middle = max(length // 3, 1)
            row[0], row[middle], row[-1] = tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id
            ids.append(row)
            segment_a.append(middle + 1)
    else:
        ids, segment_a = encoded
    if masked:
        ids = [
            [tokenizer.mask_id if 0 < i < len(row) - 1 and i % MASK_EVERY == 1 else each for i, each in enumerate(row)]
            for row in ids
        ]
    return EncodedExamples(ids, segment_a, {})


@torch.inference_mode()
def compare(network: ExportedNetwork, session: OnnxSession, examples: EncodedExamples, pad_id: int) -> Comparison:
    """Compare the outputs of an ONNX file with those of the network it was made of. NaN differs from everything."""
    differences, excesses, equal = [], [], []
    for _, batch in iterate_by_length(examples, BATCH_SIZE, pad_id):
        inputs = batch.inputs
        mask = np.arange(inputs.input_ids.shape[1]) < inputs.lengths.numpy()[:, None]
        expected = {name: tensor.numpy() for name, tensor in network.compute(inputs).items()}
        found = session.run(inputs)
        for name, theirs in found.items():
            ours = expected[name]
            if network.kind not in PER_SEQUENCE:  # what a network computes at padding is undefined
                ours, theirs = ours[mask], theirs[mask]
            difference = np.nan_to_num(np.abs(ours - theirs), nan=np.inf)
            differences.append(difference.max())
            excesses.append((difference / np.maximum(1, np.abs(ours))).max())
        if decide := DECISIONS.get(network.kind):
            equal.append((decide(expected, mask) == decide(found, mask)).ravel())
    share = float(np.concatenate(equal).mean()) if equal else None
    return Comparison(float(max(differences)), float(max(excesses)), share)
