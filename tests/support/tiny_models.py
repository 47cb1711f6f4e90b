"""Tiny models, batches and checkpoints."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from electra.data.batch import Batch
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.corruptions.masking import (
    MaskedPositions,
    MaskingConfig,
    count_masked,
    mark_maskable_tokens,
    sample_positions,
)
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.spec import ObjectiveSpec, Vocabulary
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.seeding import Stream, derive_row_keys
from electra.train.checkpoint import Checkpoints
from electra.train.optimizer import OptimizerConfig, build_optimizer

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
    generator: GeneratorConfig | None = None,
    contrast: ContrastConfig | None = None,
    copies: bool = True,
    token_prediction: TokenPredictionConfig | None = None,
    sequence_contrast: SequenceContrastConfig | None = None,
    corrective: CorrectiveConfig | None = None,
    continuation_ids: tuple[int, ...] = (),
) -> PretrainingModel:
    """A model of any objective; `size` is the generator's, if nothing else is said of it. Counts: id 5 once, 6 twice, ..."""
    torch.manual_seed(seed)
    unigrams = (torch.arange(encoder.vocab_size) - 4).clamp(min=0)
    return PretrainingModel(
        ObjectiveSpec(
            OBJECTIVES[objective],
            encoder,
            generator or GeneratorConfig(size=size),
            masking or MaskingConfig(),
            Vocabulary(encoder.vocab_size, MASK, SPECIAL, continuation_ids=continuation_ids),
            unigrams,
            contrast or ContrastConfig(),
            copies,
            token_prediction or TokenPredictionConfig(),
            sequence_contrast or SequenceContrastConfig(),
            corrective or CorrectiveConfig(),
        )
    )


def choose(inputs: Batch, config: MaskingConfig) -> MaskedPositions:
    """Positions drawn as a model draws them."""
    candidates = mark_maskable_tokens(inputs.input_ids, SPECIAL)
    return sample_positions(candidates, count_masked(inputs.lengths, config.fraction), config, inputs.row_keys)


def redraw(inputs: Batch, seed: int) -> Batch:
    """The same rows with other keys, so that everything is drawn anew."""
    return replace(inputs, keys=torch.from_numpy(derive_row_keys(np.arange(len(inputs.lengths)), Stream.ROWS, seed)))


def batch(lengths: tuple[int, ...] = (40, 40, 23, 7), seed: int = 1, vocab: int = VOCAB) -> Batch:
    """Rows `[CLS] a [SEP] b [SEP]` of random tokens, padded, with keys."""
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
    return redraw(Batch(ids, types, counts, None if mask.all() else mask), seed)


def trained_module(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A module and its optimizer after three updates."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
    optimizer = build_optimizer(module.named_parameters(), OptimizerConfig())
    for _ in range(3):
        module(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    return module, optimizer


def checkpoints_in(directory: Path, keep: int = 3) -> Checkpoints:
    """The checkpoints in `directory/checkpoints`."""
    return Checkpoints(directory / "checkpoints", keep)
