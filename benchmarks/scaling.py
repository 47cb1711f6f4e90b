"""What the paper's models cost on one machine like this, on one GPU, on eight and on 64, and where the time goes.

    python benchmarks/scaling.py

Reads what `pretrain_step.py` and `loader.py` have measured for Small on a CPU (`--results`). GPUs are not measured: their
rates are the manufacturer's, and the share of them that is reached is the project's mark. `docs/research/scaling.md` explains
the formulae and has the tables.
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
"""Dense bfloat16 operations a second of one H200, as published."""
GPU_SHARE = 0.45
"""Of that, what a training step is taken to reach (not measured)."""
NVLINK, INFINIBAND = 450e9, 8 * 50e9
"""Bytes a second that a GPU can send: to the others of its node; and that a node can send by a link of 400 Gb/s for each of
its eight GPUs, over which as many rings share what each GPU has to send; as published."""
GRADIENT_BYTES = 4
"""Of a parameter, in float32."""


@dataclass(frozen=True)
class Machine:
    """Equal devices that share every batch."""

    name: str
    devices: int
    flops: float
    """What one device does in a second of training."""
    bandwidth: float | None
    """Bytes a second that one device can send to the others; None where there are none."""
    batches: float
    """Tokens a second that the loader of one device makes."""


@dataclass(frozen=True)
class Cost:
    """One model on one machine: seconds of an update, by what they are spent on."""

    model: str
    machine: str
    steps: int
    compute: float
    traffic: float
    """Of the gradients, if nothing of it is hidden behind the backward pass."""
    loader: float
    """In the thread that makes batches ahead: it shows only where it is longer than all else."""

    @property
    def least(self) -> float:
        """Seconds of the whole run, if all traffic is hidden."""
        return self.steps * max(self.compute, self.traffic, self.loader)

    @property
    def most(self) -> float:
        """The same, if none is."""
        return self.steps * max(self.compute + self.traffic, self.loader)


def machines(results: Path) -> list[Machine]:
    """A machine like the one that was measured, and GPUs by their published rates."""
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


def cost(name: str, config: PretrainConfig, machine: Machine) -> Cost:
    """An update of a preset: operations over rate, a ring's traffic over bandwidth, tokens over the loader's rate."""
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


def duration(seconds: float) -> str:
    """Seconds in the largest unit of which there is one."""
    unit = next((unit for unit, size in UNITS.items() if seconds >= size), "µs")
    amount = seconds / UNITS[unit]
    return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def table(costs: list[Cost]) -> Iterator[str]:
    """Markdown."""
    yield "| Model | Machine | Time | Compute of a step | Gradients | Loader (beside) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for each in costs:
        shortest, longest = duration(each.least), duration(each.most)
        time = shortest if shortest == longest else f"{shortest} to {longest}"
        parts = [duration(part) if part else "" for part in (each.compute, each.traffic, each.loader)]
        yield f"| {each.model} | {each.machine} | {time} | {' | '.join(parts)} |"


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the JSON files")
    given = parser.parse_args(argv)
    on = machines(given.results)
    print("\n".join(table([cost(name, PRESETS[name](), each) for name in ("small", "base", "large") for each in on])))


if __name__ == "__main__":
    main()
