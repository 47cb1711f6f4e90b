"""What a study is: variants, how much compute each of them gets, how it is drawn, and what the paper found."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from electra.errors import UsageError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.studies.compute import step_flops


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
        """A variant's configuration with its part of the budget.

        Short sequences have the share of its updates that they have of the scale's own, so that no variant reads them for
        longer than another. So has the learning rate's warm-up under a budget of FLOPs, where it is a share of them.
        """
        config, target = variant.config, self.target(variant)
        if target is None:
            return replace(config, steps=1, hours=None, flops=None)
        assert config.steps is not None, "a scale has steps"
        updates = target if self.equal == "steps" else target / step_flops(config)
        config = replace(config, hours=None, length_warmup=config.length_warmup.scaled(updates / config.steps))
        if self.equal == "steps":
            return replace(config, steps=max(1, round(target)), flops=None)
        schedule = replace(config.schedule, max_warmup=config.schedule.warmup(config.steps))
        return replace(config, steps=None, flops=target, schedule=schedule)

    def target(self, variant: Variant) -> float | None:
        """What a variant's runs must spend in the unit of `equal`; None: they are not bound."""
        return variant.share * self.budget or None


def with_rates(study: Study, rates: Mapping[str, float]) -> Study:
    """The study with the peak learning rates of these objectives, as a search found them.

    ELECTRA's is also that of the other objectives with a generator, unless they have one of their own: what Table 5 puts
    between ELECTRA and BERT differs from ELECTRA in what it predicts alone.

    Raises:
        UsageError: no variant has such an objective, or the study is the search.
    """
    known = dict.fromkeys(variant.config.objective for variant in study.variants)
    for name in rates:
        if name not in known:
            raise UsageError(f"--rates: {study.name} has no objective {name!r}; it has {', '.join(known)}")
    if rates and study.name == "learning-rate":
        raise UsageError("--rates: learning-rate is the study that searches them")

    def at_its_rate(config: PretrainConfig) -> PretrainConfig:
        inherited = "electra" if OBJECTIVES[config.objective].has_generator else config.objective
        rate = rates.get(config.objective, rates.get(inherited, config.optimizer.learning_rate))
        return replace(config, optimizer=replace(config.optimizer, learning_rate=rate))

    return replace(study, variants=tuple(replace(each, config=at_its_rate(each.config)) for each in study.variants))
