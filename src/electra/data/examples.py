"""Pre-training examples `[CLS] a [SEP] b [SEP]`, cut from the tokenized lines of a document.

They follow the builder of the paper's code, with two differences. No text is dropped: what does not fit begins the next
example. The order of the text is preserved: after segment b has begun, no later line is added to segment a.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt

MIN_SEQ_LEN = 5  # [CLS] x [SEP] y [SEP]
SHORT_EXAMPLE_SHARE = 0.05
SINGLE_SEGMENT_SHARE = 0.1


@dataclass(frozen=True)
class Examples:
    """Concatenated examples: example i is `ids[offsets[i]:offsets[i + 1]]`, with special tokens."""

    ids: UInt[np.ndarray, " T"]
    offsets: Int64[np.ndarray, " M"]
    segment_a: Int32[np.ndarray, " N"]
    """Length of `[CLS] a [SEP]`; the token type is 0 in this part and 1 after it."""

    def __len__(self) -> int:
        return len(self.segment_a)


def cut_examples(line_lengths: Sequence[int], seq_len: int, rng: np.random.Generator) -> Int64[np.ndarray, "N 3"]:
    """Cut one document into examples, given the number of tokens in each of its lines.

    Returns (start, boundary, end) for every example, as positions in the document's tokens: segment a is
    `[start, boundary)`, b is `[boundary, end)` and may be empty. The examples cover the document without gaps or overlap, and
    each fits in `seq_len` with its two or three special tokens.
    """
    assert seq_len >= MIN_SEQ_LEN
    cuts = []
    start = position = 0
    boundary: int | None = None
    target, first_target = _draw_targets(seq_len, rng)
    for line_length in line_lengths:
        rest = line_length
        while rest:
            length = position - start
            fits = length == 0 or length + rest < first_target
            # A line with which segment a exceeds its target is added with probability 0.5 if a is below the target.
            if boundary is None and not fits and (length >= first_target or rng.random() >= 0.5):
                boundary = position
            room = seq_len - length - (2 if boundary is None else 3)
            taken = min(rest, max(room, 0))
            position += taken
            if position - start >= target or taken < rest:
                cuts.append((start, position if boundary is None else boundary, position))
                start, boundary = position, None
                target, first_target = _draw_targets(seq_len, rng)
            rest -= taken
    if position > start:
        cuts.append((start, position if boundary is None else boundary, position))
    return np.array(cuts, dtype=np.int64).reshape(-1, 3)


def _draw_targets(seq_len: int, rng: np.random.Generator) -> tuple[int, int]:
    """Draw the number of text tokens that ends an example, and the number that ends segment a."""
    target = seq_len
    if rng.random() < SHORT_EXAMPLE_SHARE:
        target = int(rng.integers(MIN_SEQ_LEN, seq_len, endpoint=True))
    first_target = sys.maxsize if rng.random() < SINGLE_SEGMENT_SHARE else (target - 3) // 2
    return target, first_target


def pack_examples(tokens: UInt[np.ndarray, " T"], cuts: Int64[np.ndarray, "N 3"], cls_id: int, sep_id: int) -> Examples:
    """Insert the special tokens. `cuts` cover `tokens` in order (positions of later documents are shifted)."""
    start, boundary, end = cuts.T
    segment_a = boundary - start + 2
    lengths = end - start + 2 + (end > boundary)
    offsets = np.zeros(len(cuts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    ids = np.full(offsets[-1], sep_id, dtype=tokens.dtype)
    is_text: Bool[np.ndarray, " T"] = np.ones(len(ids), dtype=bool)
    is_text[offsets[:-1]] = False
    is_text[offsets[:-1] + segment_a - 1] = False
    is_text[offsets[1:] - 1] = False
    ids[is_text] = tokens
    ids[offsets[:-1]] = cls_id
    return Examples(ids, offsets, segment_a.astype(np.int32))
