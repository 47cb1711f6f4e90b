"""What two runs are compared by."""

from pathlib import Path

from electra.train.metrics_log import read_metrics

TIMES = ("seconds", "tokens_per_second", "flops_per_second", "mfu")


def trace(run: Path) -> list[dict]:
    """The metrics of a run without those that depend on the clock."""
    return [{k: v for k, v in row.items() if k not in TIMES} for row in read_metrics(run / "metrics.jsonl")]


def weights(run: Path) -> bytes:
    return (run / "discriminator/model.safetensors").read_bytes() + (run / "generator/model.safetensors").read_bytes()
