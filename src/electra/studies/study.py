"""What a study is: variants, how much compute each of them gets, how it is drawn, and what the paper found."""

from dataclasses import dataclass, replace
from typing import Literal

from electra.pretraining.config import PretrainConfig


@dataclass(frozen=True)
class Variant:
    """One row of the table: a whole configuration, run once for every seed."""

    name: str
    """Also its directory's name."""
    label: str
    """In tables and figures."""
    config: PretrainConfig
    """What is pre-trained; the study decides its data, seed and budget."""
    line: str = ""
    """Variants of the same line are joined in the figure."""
    x: float | None = None
    """Place on the figure's axis; None: where its FLOPs are, or a bar of its own."""
    share: float = 1.0
    """Of the study's budget. 0 is a single update: next to random weights, a control that equal compute does not bind."""
    published: float | None = None
    """The paper's GLUE score."""


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a figure of lines."""

    label: str
    ticks: tuple[str, ...] = ()
    """Names of the places 0, 1, 2, …; without them, places are numbers."""
    flops: bool = False
    """The place of a variant is what it has spent, on a logarithmic axis."""


@dataclass(frozen=True)
class Published:
    """What the paper prints, for a panel of its own."""

    source: str
    """Table or figure."""
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    """By name: (place, GLUE score) of each point."""
    remark: str = ""
    """What it says in words, where it prints no numbers."""


@dataclass(frozen=True)
class Study:
    """A grid of runs."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    published: Published
    axis: Axis | None = None
    """None: a bar for each variant."""
    equal: Literal["flops", "steps"] = "flops"
    """What all variants get the same of, times their share."""
    budget: float = 0.0
    """FLOPs, or steps."""
    across: bool = False
    """The paper's table has a column for each variant."""
    compared: tuple[str, str] | None = None
    """Two lines whose difference has a panel of its own."""

    def configured(self, variant: Variant) -> PretrainConfig:
        """A variant's configuration with its part of the budget."""
        target = self.target(variant)
        if target is None:
            return replace(variant.config, steps=1, hours=None, flops=None)
        if self.equal == "steps":
            return replace(variant.config, steps=max(1, round(target)), hours=None, flops=None)
        return replace(variant.config, steps=None, hours=None, flops=target)

    def target(self, variant: Variant) -> float | None:
        """What a variant's runs must spend in the unit of `equal`; None: they are not bound."""
        return variant.share * self.budget or None
