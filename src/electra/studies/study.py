"""A study: its variants, their compute, its figure, and the paper's results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from electra.errors import UsageError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.studies.compute import compute_step_flops


@dataclass(frozen=True)
class Variant:
    """One row of the table: a full configuration, run once per seed."""

    name: str
    """Also the name of its directory."""
    label: str
    """Name in tables and figures."""
    config: PretrainConfig
    """The pre-training run; the study sets its data, seed and budget."""
    line: str = ""
    """Variants of the same line are connected in the figure."""
    x: float | None = None
    """Position on the figure's axis; None: its FLOPs, or a separate bar."""
    share: float = 1.0
    """Share of the study's budget. 0 is a single update, a control close to random weights outside of the equal compute."""
    published: float | None = None
    """The paper's GLUE score."""


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a line plot."""

    label: str
    ticks: tuple[str, ...] = ()
    """Names of the positions 0, 1, 2, …; without them, positions are numbers."""
    flops: bool = False
    """The position of a variant is its compute, on a logarithmic axis."""


@dataclass(frozen=True)
class Published:
    """The paper's results, for a separate panel."""

    source: str
    """Table or figure; empty for a study that is not in the paper."""
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    """By name: (position, GLUE score) of each point."""
    remark: str = ""
    """Results that the paper states in words."""


@dataclass(frozen=True)
class Study:
    """A grid of runs."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    published: Published = Published("")
    axis: Axis | None = None
    """None: a bar for each variant."""
    equal: Literal["flops", "steps"] = "flops"
    """Unit of the budget, which is equal for all variants, times their share."""
    budget: float = 0.0
    """FLOPs, or steps."""
    across: bool = False
    """The table has a column for each variant, as in the paper."""
    compared: tuple[str, str] | None = None
    """Two lines whose difference has a separate panel."""

    def build_config(self, variant: Variant) -> PretrainConfig:
        """Build a variant's configuration with its share of the budget.

        The warm-ups of length and batch take the same share of a variant's updates as of the scale's own run, so that no
        variant reads short sequences for longer than another. So does the learning rate's warm-up under a budget of FLOPs, as
        a share of these.
        """
        config, target = variant.config, self.target(variant)
        if target is None:
            return replace(config, steps=1, hours=None, flops=None)
        assert config.steps is not None, "a scale has steps"
        updates = target if self.equal == "steps" else target / compute_step_flops(config)
        share = updates / config.steps
        length, batch = config.length_warmup.scale(share), config.batch_warmup.scale(share)
        config = replace(config, hours=None, length_warmup=length, batch_warmup=batch)
        if self.equal == "steps":
            return replace(config, steps=max(1, round(target)), flops=None)
        schedule = replace(config.schedule, max_warmup=config.schedule.warmup(config.steps))
        return replace(config, steps=None, flops=target, schedule=schedule)

    def target(self, variant: Variant) -> float | None:
        """FLOPs or steps that a variant's runs must spend; None for a control without a budget."""
        return variant.share * self.budget or None


def set_learning_rates(study: Study, rates: Mapping[str, float]) -> Study:
    """Return the study with these peak learning rates by objective, as found by a search.

    ELECTRA's rate also applies to other objectives with a generator that have no rate of their own: the objectives that Table
    5 puts between ELECTRA and BERT differ from ELECTRA only in their predictions.

    Raises:
        UsageError: no variant has the objective, or the study is the search itself.
    """
    known = dict.fromkeys(variant.config.objective for variant in study.variants)
    for name in rates:
        if name not in known:
            raise UsageError(
                "unknown-objective", f"--rates: {study.name} has no objective {name!r}; it has {', '.join(known)}"
            )
    if rates and study.name == "learning-rate":
        raise UsageError(
            "meaningless-option", "--rates: study learning-rate searches the learning rates; leave --rates out"
        )

    def set_rate(config: PretrainConfig) -> PretrainConfig:
        inherited = "electra" if OBJECTIVES[config.objective].has_generator else config.objective
        rate = rates.get(config.objective, rates.get(inherited, config.optimizer.learning_rate))
        return replace(config, optimizer=replace(config.optimizer, learning_rate=rate))

    return replace(study, variants=tuple(replace(each, config=set_rate(each.config)) for each in study.variants))
