"""Results of `pretrain_step.py`: medians over the rounds, the marks of a preset, the table."""

import argparse
import statistics
from typing import Any

from measuring import Mark, compute_median_ratio

from electra.runtime.setup import Runtime

OURS, EAGER, COMPILED, MASKED_ONLY = "electra", "transformers", "transformers-compiled", "transformers-chosen-only"
SIDES = (OURS, EAGER, COMPILED, MASKED_ONLY)
Turn = dict[str, float]
"""Measurements of a turn by name."""


def summarize(rounds: dict[str, list[Turn]], share: float) -> dict[str, Any]:
    """Compute medians and ratios; `share` is the ratio of hardware operations to the FLOPs of Appendix E, without padding."""
    ours = rounds[OURS]
    rates = {
        name: [own["tokens"] / turn["seconds"] for own, turn in zip(ours, turns, strict=True)]
        for name, turns in rounds.items()
    }
    appendix_e = statistics.median(turn["flops"] / turn["seconds"] / turn["matmul"] for turn in ours)
    filled = sum(turn["tokens"] for turn in ours) / sum(turn["places"] for turn in ours)
    return {
        "tokens_per_second": {name: statistics.median(each) for name, each in rates.items()},
        "ratio": {name: compute_median_ratio(rates[OURS], each) for name, each in rates.items() if name != OURS},
        "matmul_flops_per_second": statistics.median(turn["matmul"] for turn in ours),
        "utilization": appendix_e * share * filled,
        "utilization_by_appendix_e": appendix_e,
        "places_filled": filled,
        "peak_bytes": {name: turns[-1]["peak"] for name, turns in rounds.items()},
        "rounds": rates,
    }


def build_marks(preset: str, found: dict[str, Any], runtime: Runtime) -> list[Mark]:
    """Build the marks of a preset on a device."""
    ratios, utilization = found["ratio"], found["utilization"]
    limit = f"{preset}: share of the limit (all at the measured rate of a matrix product)"
    if runtime.device.type == "cpu":
        bounds = {EAGER: 2.5} if preset == "small" else {}
        limits = [Mark(limit, utilization, 0.8)] if preset == "small" else []
    else:
        bounds = {EAGER: 6.0, COMPILED: 2.0} if preset == "small" else {}
        limits = [Mark(f"{limit}, by Appendix E", found["utilization_by_appendix_e"], 0.45)] if preset == "base" else []
        if preset == "small":
            limits.append(Mark("small: tokens/s", found["tokens_per_second"][OURS], 3e6))
    return [Mark(f"{preset}: times {name}", ratios[name], bounds[name]) for name in bounds if name in ratios] + limits


def print_table(given: argparse.Namespace, found: dict[str, Any], runtime: Runtime) -> None:
    """Print the table."""
    print(f"{given.preset}, {given.batch_size} x {given.seq_len}, on {runtime.describe()}")
    print(f"{'':<26}{'tokens/s':>12}{'electra is':>12}{'peak memory':>14}")
    for name, rate in found["tokens_per_second"].items():
        times = f"{found['ratio'][name]:.2f} x" if name in found["ratio"] else ""
        memory = f"{found['peak_bytes'][name] / 1e6:,.0f} MB"
        print(f"{name:<26}{rate:>12,.0f}{times:>12}{memory:>14}")
    limit = found["tokens_per_second"][OURS] / found["utilization"]
    print(
        f"{'limit':<26}{limit:>12,.0f}   at {found['matmul_flops_per_second'] / 1e9:,.0f} GFLOP/s of a matrix product"
    )
    print(
        f"share of the limit {found['utilization']:.1%}; by Appendix E's own count {found['utilization_by_appendix_e']:.1%}"
    )
