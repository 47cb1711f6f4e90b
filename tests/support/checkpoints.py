"""A small module with an optimizer that has state, and checkpoints of it."""

from pathlib import Path

import torch
from torch import nn

from electra.train.checkpoint import Checkpoints
from electra.train.optimizer import OptimizerConfig, build_optimizer


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
