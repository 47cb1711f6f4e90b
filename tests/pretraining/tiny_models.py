"""Tiny models and batches for the tests of this folder."""

import torch

from electra.data.loader import Batch
from electra.model.encoder import EncoderConfig
from electra.pretraining.masking import MaskingConfig
from electra.pretraining.networks import GeneratorConfig
from electra.pretraining.objectives import OBJECTIVES, PretrainingModel, Setting, Vocabulary

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = (PAD, CLS, SEP, MASK)
VOCAB = 64
ENCODER = EncoderConfig(
    vocab_size=VOCAB, embedding_size=16, hidden_size=32, num_layers=2, num_heads=4, ffn_size=64, max_positions=64
)


def model(
    objective: str = "electra",
    masking: MaskingConfig | None = None,
    encoder: EncoderConfig = ENCODER,
    size: float = 0.25,
    seed: int = 0,
) -> PretrainingModel:
    torch.manual_seed(seed)
    vocabulary = Vocabulary(encoder.vocab_size, MASK, SPECIAL)
    setting = Setting(
        OBJECTIVES[objective], encoder, GeneratorConfig(size=size), masking or MaskingConfig(), vocabulary
    )
    return PretrainingModel(setting)


def batch(lengths: tuple[int, ...] = (40, 40, 23, 7), seed: int = 1, vocab: int = VOCAB) -> Batch:
    """Rows `[CLS] a [SEP] b [SEP]` of random tokens, padded."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    ids = torch.full((len(lengths), longest), PAD)
    types = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(5, vocab, (length,), generator=generator)
        middle = length // 2
        ids[row, 0], ids[row, middle], ids[row, length - 1] = CLS, SEP, SEP
        types[row, middle + 1 : length] = 1
    counts = torch.tensor(lengths)
    mask = torch.arange(longest) < counts[:, None]
    return Batch(ids, types, counts, None if mask.all() else mask)
