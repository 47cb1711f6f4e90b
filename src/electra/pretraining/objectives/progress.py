"""Options that change over training: a value, and next to it `final_` and its name, the value at the end of the run.

The training loop gives the module the share of the run that is over, and a value changes linearly with it. Outside training,
for held-out metrics for instance, values are final: metrics of a finished run are those of its last configuration.
"""

from dataclasses import fields, replace
from typing import Any, TypeVar

from torch import nn

FINAL = "final_"
"""Start of the name of a final value; None there: the value is constant."""

Config = TypeVar("Config", bound=Any)


def interpolate(value: float, final: float, done: float) -> float:
    """Interpolate linearly: `value` where the share `done` of the run is over is 0, `final` where it is 1."""
    return (1 - done) * value + done * final


def list_changing(config: Any) -> list[str]:
    """List the options of a dataclass that change over training."""
    return [
        each.name.removeprefix(FINAL)
        for each in fields(config)
        if each.name.startswith(FINAL) and getattr(config, each.name) is not None
    ]


def resolve_at(config: Config, done: float) -> Config:
    """Return a configuration with the values where the share `done` of the run is over; it is constant."""
    values: dict[str, float | None] = {}
    for name in list_changing(config):
        values[name] = interpolate(getattr(config, name), getattr(config, FINAL + name), done)
        values[FINAL + name] = None
    return replace(config, **values) if values else config


class ProgressModule(nn.Module):
    """Base class of modules with options that may change over training."""

    progress: float = 0.0
    """Share of the run that is over at the current update."""

    def resolve(self, config: Config) -> Config:
        """Return a configuration with the values of the current update; in evaluation mode, with the final ones."""
        return resolve_at(config, self.progress if self.training else 1.0)
