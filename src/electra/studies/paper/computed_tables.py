"""Tables 1, 2, 4 and 8: FLOPs and parameters computed, next to the printed ones."""

import math
from decimal import Decimal
from typing import Any

import torch

from electra.errors import UsageError
from electra.model.flops import discriminator_step_flops, inference_flops, masked_lm_step_flops
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig, MaskedLM, compute_generator_sizes
from electra.studies.paper.printed_tables import MODELS, NOT_COVERED, TABLES, PaperModel, PrintedTable, Row
from electra.studies.paper.run_costs import count_parameters, format_flops

INFERENCE_LENGTH = 128
"""Tokens of the sequence in Table 1's inference FLOPs."""

FIGURES = {
    "train": "train FLOPs",
    "multiple": "multiple",
    "infer": "infer FLOPs",
    "infer_multiple": "speedup",
    "parameters": "parameters",
}
"""Figures of a model that the paper prints, with the headings of our columns."""


def compute_train_flops(model: PaperModel) -> int:
    """Compute the FLOPs of the full training (forward and backward), with the functions of the training loop."""
    length, predictions = model.seq_len, round(model.predicted * model.seq_len)
    if model.generator is None:
        row_flops = masked_lm_step_flops(model.sizes, length, predictions)
    else:
        generator = compute_generator_sizes(model.sizes, GeneratorConfig(size=model.generator))
        row_flops = masked_lm_step_flops(generator, length, predictions) + discriminator_step_flops(model.sizes, length)
    return model.batch_size * model.steps * row_flops


def compute_figures(row: Row, table: PrintedTable) -> dict[str, float | int]:
    """Compute a row's figures; empty for a model that the formula does not cover."""
    if row.model in NOT_COVERED:
        return {}
    model, reference = MODELS[row.model], MODELS[table.reference]
    train, infer = row.trained * compute_train_flops(model), inference_flops(model.sizes, INFERENCE_LENGTH)
    multiple = train / compute_train_flops(reference)
    computed = {
        "train": train,
        "multiple": 1 / multiple if table.speedup else multiple,
        "infer": infer,
        "infer_multiple": inference_flops(reference.sizes, INFERENCE_LENGTH) / infer,
    }
    return computed if model.shared_layers else computed | {"parameters": count_main_parameters(model)}


def count_main_parameters(model: PaperModel) -> int:
    """Count the parameters of our network of these sizes with its pre-training head, without a generator."""
    with torch.device("meta"):
        return count_parameters(MaskedLM(model.sizes) if model.generator is None else Discriminator(model.sizes))


def agrees(computed: float | int, printed: str) -> bool:
    """Whether a figure equals the printed one to two digits (one if only one is printed), within half of the last digit."""
    scale, number = 1e6 if printed.endswith("M") else 1.0, Decimal(printed.rstrip("xM"))
    figure, digits = float(number) * scale, min(2, len(number.as_tuple().digits))
    last_digit = 10.0 ** (math.floor(math.log10(min(computed, figure))) - digits + 1)
    return abs(computed - figure) <= last_digit / 2


def paper_table(number: int) -> dict[str, Any]:
    """Recompute a table of the paper.

    Returns:
        "rows": for each "model" its "figures" by name, each "computed", "printed" and whether that "agrees" to two
        digits (None: cannot be computed), and "why" one differs or is missing.

    Raises:
        UsageError: not a table that can be computed.
    """
    if number not in TABLES:
        raise UsageError(
            "unknown-choice", f"table {number} cannot be computed; it must be one of {', '.join(map(str, TABLES))}"
        )
    table, rows = TABLES[number], []
    for row in table.rows:
        computed, figures = compute_figures(row, table), {}
        for name in FIGURES:
            if printed := getattr(row, name):
                value = computed.get(name)
                same = None if value is None else agrees(value, printed)
                figures[name] = {"computed": value, "printed": printed, "agrees": same}
        rows.append({"model": row.label, "figures": figures, "why": NOT_COVERED.get(row.model, row.why)})
    return {"table": number, "title": table.title, "reference": table.reference, "rows": rows}


def format_table(table: dict[str, Any]) -> tuple[str, list[list[str]], list[str]]:
    """Format the table: a heading, its rows, and notes on figures that differ or are missing."""
    names = [name for name in FIGURES if any(name in row["figures"] for row in table["rows"])]
    rows = [["computed, printed", *(FIGURES[name] for name in names)]]
    rows += [[row["model"], *(format_figure(name, row["figures"][name]) for name in names)] for row in table["rows"]]
    models_of: dict[str, list[str]] = {}
    for row in table["rows"]:
        if row["why"]:
            models_of.setdefault(row["why"], []).append(row["model"])
    notes = [f"{models[0]}{' …' if len(models) > 1 else ''}: {why}." for why, models in models_of.items()]
    inference = f" Inference: one sequence of {INFERENCE_LENGTH} tokens." if "infer" in names else ""
    return f"{table['title']}; multiples of {table['reference']}", rows, [*notes, LEGEND + inference, CONVENTION]


LEGEND = "computed ≈ printed: equal to two digits; ≠: different; -: cannot be computed."
CONVENTION = (
    "Here masked language models have their head at 20 of every 128 positions, as in the original script; training and "
    "electra flops count the predicted positions: 19 of 128, 77 of 512, 128 of 512 for large."
)


def format_figure(name: str, figure: dict[str, Any]) -> str:
    """Format a computed figure and the printed one."""
    value, printed = figure["computed"], figure["printed"]
    if value is None:
        return f"- | {printed}"
    texts = {"parameters": f"{value / 1e6:.1f}M", "multiple": f"{value:.3g}x" if value < 100 else f"{value:.0f}x"}
    text = texts.get(name.removeprefix("infer_"), format_flops(value))
    return f"{text} {'≈' if figure['agrees'] else '≠'} {printed}"
