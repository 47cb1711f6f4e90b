"""Estimated training time of the paper's models on this machine and on 1, 8 and 64 GPUs, by part of a step.

    python benchmarks/scaling.py

Reads the results of `pretrain_step.py` and `loader.py` for Small on a CPU (`--results`). GPUs are not measured: their rates
are the manufacturer's, and the share of them that is reached is the project's mark. `docs/research/scaling.md` has the
formulas and the tables.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from measuring import HERE

from electra.presets import PRESETS
from electra.pretraining.build import build_meta_model
from electra.pretraining.config import PretrainConfig

STEP, LOADER = "pretrain_step_small_16x128_cpu", "loader_cpu"
H200_FLOPS = 989e12
"""Dense bfloat16 operations per second of one H200, as published."""
GPU_SHARE = 0.45
"""Share of that rate that a training step is assumed to reach (not measured)."""
NVLINK, INFINIBAND = 450e9, 8 * 50e9
"""Published bytes per second: from a GPU to the others of its node; and from a node, by a link of 400 Gb/s for each of its
eight GPUs, over which eight rings share the traffic of each GPU."""
GRADIENT_BYTES = 4
"""Bytes per parameter, in float32."""


@dataclass(frozen=True)
class Machine:
    """Equal devices that share every batch."""

    name: str
    devices: int
    flops: float
    """Operations per second of one device in training."""
    bandwidth: float | None
    """Bytes per second from one device to the others; None for one device."""
    batches: float
    """Tokens per second of the loader of one device."""


@dataclass(frozen=True)
class Cost:
    """Seconds of an update of a model on a machine, by part."""

    model: str
    machine: str
    steps: int
    compute: float
    traffic: float
    """Communication of gradients, if none of it overlaps with the backward pass."""
    loader: float
    """The loader's time, which overlaps with the step: it matters only if it is longer than all else."""

    @property
    def shortest(self) -> float:
        """Seconds of the run if all communication overlaps."""
        return self.steps * max(self.compute, self.traffic, self.loader)

    @property
    def longest(self) -> float:
        """Seconds of the run if no communication overlaps."""
        return self.steps * max(self.compute + self.traffic, self.loader)


def list_machines(results: Path) -> list[Machine]:
    """Return the measured machine, and GPUs by their published rates."""
    step, loader = (json.loads((results / f"{name}.json").read_text()) for name in (STEP, LOADER))
    batches = loader["step"]["batches_per_second"] * loader["batch_size"] * loader["seq_len"]
    gpu = H200_FLOPS * GPU_SHARE
    return [
        Machine(
            f"{step['threads']} CPU cores", 1, step["matmul_flops_per_second"] * step["utilization"], None, batches
        ),
        Machine("1 GPU", 1, gpu, None, batches),
        Machine("8 GPUs", 8, gpu, NVLINK, batches),
        Machine("64 GPUs", 64, gpu, INFINIBAND, batches),
    ]


def compute_cost(name: str, config: PretrainConfig, machine: Machine) -> Cost:
    """Compute the cost of an update: operations / rate, traffic of ring all-reduce / bandwidth, tokens / loader's rate."""
    assert config.steps is not None
    model, n = build_meta_model(config), machine.devices
    rows = config.training.batch_size / n
    operations = rows * model.row_flops(config.seq_len) * model.utilized_share(config.seq_len)
    sent = 2 * (n - 1) / n * GRADIENT_BYTES * sum(p.numel() for p in model.parameters())
    return Cost(
        name,
        machine.name,
        config.steps,
        operations / machine.flops,
        sent / machine.bandwidth if machine.bandwidth else 0.0,
        rows * config.seq_len / machine.batches,
    )


UNITS = {"years": 365 * 86_400, "days": 86_400, "hours": 3600, "minutes": 60, "s": 1, "ms": 1e-3, "µs": 1e-6}


def format_duration(seconds: float) -> str:
    """Format seconds in the largest unit that gives at least 1."""
    unit = next((unit for unit, size in UNITS.items() if seconds >= size), "µs")
    amount = seconds / UNITS[unit]
    return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def format_table(costs: list[Cost]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| Model | Machine | Time | Compute of a step | Gradients | Loader (overlapped) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for each in costs:
        shortest, longest = format_duration(each.shortest), format_duration(each.longest)
        time = shortest if shortest == longest else f"{shortest} to {longest}"
        parts = [format_duration(part) if part else "" for part in (each.compute, each.traffic, each.loader)]
        yield f"| {each.model} | {each.machine} | {time} | {' | '.join(parts)} |"


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the JSON files")
    given = parser.parse_args(argv)
    on = list_machines(given.results)
    print(
        "\n".join(
            format_table(
                [compute_cost(name, PRESETS[name](), each) for name in ("small", "base", "large") for each in on]
            )
        )
    )


if __name__ == "__main__":
    main()
