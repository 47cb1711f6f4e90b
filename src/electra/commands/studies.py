"""What the paper counts and compares."""

from typing import Any


def flops(
    *,
    preset: str | None = None,
    table: int | None = None,
    objective: str | None = None,
    seq_len: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Train and inference FLOPs, counted as in Appendix E of the paper, and parameters: of a preset, or a table's.

    Args:
        preset: Whose costs, by part: tiny, small, small++, base, base++ or large (default: small).
        table: A table of the paper instead, 1, 2, 4 or 8: every figure computed, beside the printed one.
        objective: Pre-training task, instead of the preset's.
        seq_len: Tokens of a sequence, instead of the preset's.
        steps: Number of updates, instead of the preset's.
        batch_size: Sequences of one update, instead of the preset's.

    Returns:
        What was shown, as numbers: see `electra.studies.counts.counts` and `electra.studies.paper_tables.paper_table`.
    """
    from electra.errors import UsageError
    from electra.studies.counts import counts, preset_config, show_counts
    from electra.studies.paper_tables import paper_table, show_table

    options = {
        "preset": preset,
        "objective": objective,
        "seq-len": seq_len,
        "steps": steps,
        "batch-size": batch_size,
    }
    if table is not None:
        if clash := [f"--{name}" for name, value in options.items() if value is not None]:
            raise UsageError(f"--table counts the paper's models as they are; leave out {' and '.join(clash)}")
        result = paper_table(table)
        show_table(result)
        return result
    result = counts(preset_config(preset or "small", objective, seq_len, steps, batch_size))
    show_counts(result)
    return result
