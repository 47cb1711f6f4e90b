"""A recommendation as a record, as a table, and as a config file."""

import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from electra.config.resolve import flat_fields
from electra.presets import get_preset
from electra.pretraining.config import PretrainConfig
from electra.studies.advice.advise import Advice, format_hours


def list_options(config: PretrainConfig) -> dict[str, Any]:
    """List the preset of a configuration and the options that differ from it, by dotted name."""
    preset = flat_fields(get_preset(config.preset))
    different = {name: value for name, value in flat_fields(config).items() if value != preset[name]}
    return {"preset": config.preset, **different}


def build_record(advice: Advice, hours: float) -> dict[str, Any]:
    """Build the result of `electra.advise`."""
    config = advice.config
    return {
        "hours": hours,
        "text": {"bytes": advice.text_bytes, "tokens": advice.text_tokens},
        "sizes": [
            {
                "name": each.name,
                "layers": each.config.model.num_layers,
                "hidden_size": each.config.model.hidden_size,
                "parameters": each.parameters,
                "vocab_size": each.config.model.vocab_size,
                "needed_tokens": each.needed_tokens,
                "needed_flops": each.needed_flops,
                "needed_hours": each.needed_hours,
                "measured": each.is_measured,
                "text_tokens": each.text_tokens,
            }
            for each in advice.estimates
        ],
        "run": {
            "size": advice.chosen.name,
            "objective": config.objective,
            "seq_len": config.seq_len,
            "batch_size": config.training.batch_size,
            "vocab_size": config.model.vocab_size,
            "steps": config.steps,
            "hours": advice.hours,
            "flops": advice.flops,
            "tokens": advice.tokens,
            "epochs": advice.epochs,
        },
        "expected": [vars(each) for each in advice.expected],
        "reasons": list(advice.reasons),
        "warnings": list(advice.warnings),
        "options": list_options(config),
    }


def format_record(record: Mapping[str, Any]) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """Format a record: a table of the sizes, one of the recommended run, and sentences."""
    run, text = record["run"], record["text"]
    rows = [["size", "layers x hidden", "parameters", "vocabulary", "needs tokens", "FLOPs", "time here", ""]]
    for size in record["sizes"]:
        rows.append(
            [
                size["name"],
                f"{size['layers']} x {size['hidden_size']}",
                f"{size['parameters'] / 1e6:.1f} M",
                f"{size['vocab_size']:,}",
                f"{size['needed_tokens']:.1e}",
                f"{size['needed_flops']:.1e}",
                ("" if size["measured"] else "about ") + format_hours(size["needed_hours"]),
                "recommended" if size["name"] == run["size"] else "",
            ]
        )
    shown = [
        ["text", f"{text['bytes'] / 1e6:,.1f} MB, about {text['tokens']:.2g} tokens"],
        ["size", run["size"]],
        ["objective", run["objective"]],
        ["sequence length", f"{run['seq_len']:,}"],
        ["batch size", f"{run['batch_size']:,}"],
        ["vocabulary", f"{run['vocab_size']:,}"],
        ["steps", f"{run['steps']:,}"],
        ["training", f"{format_hours(run['hours'])}, {run['flops']:.2g} FLOPs, {run['tokens']:.2g} tokens"],
        ["epochs", f"{run['epochs']:.2f}"],
    ]
    return rows, shown, [*record["reasons"], *map(format_expected, record["expected"]), *find_missing(record)]


METRICS = {"tags": "accuracy in % of a linear probe on tags of words, CoNLL-2000", "GLUE": "average of GLUE, dev"}
"""Descriptions of `Expected.metric`."""


def format_expected(score: Mapping[str, Any]) -> str:
    """Format an expected score."""
    spread = "" if score["std"] is None else f" ± {score['std']:.1f} over {score['seeds']} seeds"
    return (
        f"expected, by the nearest run of this size with {score['objective']}: {score['score']:.1f}{spread} after "
        f"{score['flops']:.2g} FLOPs ({METRICS[score['metric']]}; {score['source']})"
    )


def find_missing(record: Mapping[str, Any]) -> list[str]:
    """Return a sentence if there is no expected score."""
    if record["expected"]:
        return []
    return [f"expected scores of size {record['run']['size']} are not known: no study has run it"]


def format_recipe(record: Mapping[str, Any]) -> str:
    """Format a record as a config file of `electra pretrain`, with the reasons as comments."""
    nested: dict[str, Any] = {}
    for name, value in record["options"].items():
        *sections, last = name.split(".")
        section = nested
        for each in sections:
            section = section.setdefault(each, {})
        section[last] = list(value) if isinstance(value, tuple) else value
    lines = [f"For {record['hours']:g} hours: electra pretrain TEXT --config FILE --out RUN"]
    lines += [*record["reasons"], *(f"Warning: {warning}" for warning in record["warnings"])]
    comments = [f"# {line}" for each in lines for line in textwrap.wrap(each, 120)]
    return "\n".join(comments) + "\n" + yaml.safe_dump(nested, sort_keys=False)
