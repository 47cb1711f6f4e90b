"""A study's results as Markdown, in the paper's layout, with the paper's numbers for comparison."""

from collections.abc import Callable, Iterator, Mapping

from electra.finetuning.benchmark.score_table import COLUMNS
from electra.model.flops import inference_flops
from electra.pretraining.build import build_meta_model
from electra.pretraining.evaluation.network_scorer import METHODS
from electra.studies.paper.run_costs import count_parameters
from electra.studies.reporting.crossover import build_crossing_rows
from electra.studies.reporting.notes import (
    list_compute_notes,
    list_finetuning_notes,
    list_missing_runs,
    list_published_notes,
    list_reading_notes,
)
from electra.studies.reporting.results import Outcome, Results, Spread
from electra.studies.reporting.scores import (
    Number,
    average,
    extract_best_layer,
    extract_best_pairs,
    extract_best_probe,
    extract_best_tags,
    extract_embeddings_tags,
    extract_finetuned,
    extract_finetuning_std,
    extract_frequency_pairs,
    extract_heldout,
    extract_last_probe,
    extract_last_tags,
    extract_pairs,
    extract_similarity,
    extract_tags_layer,
)

Rows = list[list[str]]


def to_markdown(results: Results) -> str:
    """Format the page: the paper's table first, then all tasks, the probes, and held-out text."""
    study = results.study
    summary = build_summary_rows(results)
    parts = [
        f"# {study.title}",
        (f"{study.published.source} of the paper, at" if study.published.source else "At")
        + f" scale `{results.scale}`.",
        format_table([list(column) for column in zip(*summary, strict=True)] if study.across else summary),
        format_bullets(
            [
                *list_compute_notes(results),
                *list_finetuning_notes(results),
                *list_missing_runs(results),
                *list_published_notes(results),
            ]
        ),
        *build_finetuning_parts(results),
        "## Linear probe of the frozen encoder, dev",
        "The layer that is best in cross-validation on training examples:",
        format_table(build_score_rows(results, extract_best_probe)),
        "The last layer:",
        format_table(build_score_rows(results, extract_last_probe)),
        "Best layer (0: the embeddings):",
        format_table(build_score_rows(results, extract_best_layer)),
        *build_tag_parts(results),
        *build_pretrained_parts(results),
        *build_crossing_parts(results),
        "## Held-out text",
        format_table(build_heldout_rows(results)),
        format_bullets(list_reading_notes(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def build_summary_rows(results: Results) -> Rows:
    """Build one row per variant: its compute, its scores, the paper's score."""
    header = ["Model", "Seeds", "Train FLOPs", "Hardware FLOPs", "Infer FLOPs", "Params", "Steps", "Train min"]
    kinds = {
        "GLUE avg.": extract_finetuned,
        "Probe avg.": extract_best_probe,
        "Probe avg., last layer": extract_last_probe,
    }
    if not results.has_finetuning:
        del kinds["GLUE avg."]
    numbers = {title: average(kind, results.tasks) for title, kind in kinds.items()}
    for name, title, number in (
        ("tags", "Tags", extract_best_tags),
        ("pairs", "Pairs, best method", extract_best_pairs),
    ):
        if results.has(name):
            numbers[title] = number
    rows = [header + list(numbers)]
    for outcome in results.outcomes:
        failed = f" ({len(outcome.failed)} failed)" if outcome.failed else ""
        config = outcome.variant.config
        rows.append(
            [
                outcome.variant.label,
                f"{len(outcome.records)}{failed}",
                format_mean(outcome, "flops", lambda flops: f"{flops:.3g}"),
                format_mean(outcome, "hardware_flops", lambda flops: f"{flops:.3g}"),
                f"{inference_flops(config.model, config.seq_len):.3g}",
                f"{count_parameters(build_meta_model(config).target) / 1e6:.3g}M",
                format_mean(outcome, "step", lambda steps: f"{steps:,.0f}"),
                format_mean(outcome, "seconds", lambda seconds: f"{seconds / 60:,.1f}"),
                *(format_spread(outcome.spread(number)) for number in numbers.values()),
            ]
        )
    if any(outcome.variant.published is not None for outcome in results.outcomes):
        rows[0].append("GLUE in the paper")
        for row, outcome in zip(rows[1:], results.outcomes, strict=True):
            row.append("" if outcome.variant.published is None else f"{outcome.variant.published:.1f}")
    return rows


def build_score_rows(results: Results, kind: Callable[[str], Number]) -> Rows:
    """Build rows of one kind of score for all tasks."""
    numbers = {COLUMNS.get(task, task.upper()): kind(task) for task in results.tasks}
    digits = count_layer_digits(results) if kind is extract_best_layer else 1
    if kind not in (extract_best_layer, extract_finetuning_std):
        numbers["Avg."] = average(kind, results.tasks)
    return build_number_rows(results, numbers, digits)


def count_layer_digits(results: Results) -> int:
    """Return the digits of a layer's number: 1 for means over several seeds, else 0."""
    return int(any(len(outcome.records) > 1 for outcome in results.outcomes))


def build_number_rows(results: Results, numbers: Mapping[str, Number], digits: int = 1) -> Rows:
    """Build a row of numbers per variant; `numbers` has the headings."""
    return [["Model", *numbers]] + [
        [outcome.variant.label, *(format_spread(outcome.spread(number), digits) for number in numbers.values())]
        for outcome in results.outcomes
    ]


def build_tag_parts(results: Results) -> Iterator[str]:
    """Yield the section of the tag probe, if there is one."""
    if results.has("tags"):
        numbers = {
            "Embeddings": extract_embeddings_tags,
            "Best layer": extract_best_tags,
            "Last layer": extract_last_tags,
        }
        yield "## Linear probe of words' tags"
        scores = build_number_rows(results, numbers)
        layers = build_number_rows(
            results, {"Best layer (0: the embeddings)": extract_tags_layer}, count_layer_digits(results)
        )
        yield format_table([[*row, layer] for row, (_, layer) in zip(scores, layers, strict=True)])


def build_pretrained_parts(results: Results) -> Iterator[str]:
    """Yield the sections of minimal pairs and of sentence similarity, where there are any."""
    if results.has("pairs"):
        yield "## Minimal pairs"
        yield "Accuracy, mean over paradigms; chance is 50. Token frequencies use no context:"
        columns = {method: extract_pairs(method) for method in METHODS}
        yield format_table(build_number_rows(results, columns | {"token frequencies": extract_frequency_pairs}))
    if results.has("similarity"):
        yield "## Similarity of frozen sentence vectors, STS-B dev"
        yield "Spearman's correlation of the cosine of mean-pooled hidden states with the similarity given by people:"
        yield format_table(
            build_number_rows(results, {"Embeddings": extract_similarity(0), "Last layer": extract_similarity(-1)})
        )


def build_crossing_parts(results: Results) -> Iterator[str]:
    """Yield the section on the compute at which one objective overtakes another, if the study varies it."""
    study = results.study
    if study.compared is None or study.axis is None or not study.axis.flops:
        return
    scores = {
        "GLUE average": average(extract_finetuned, results.tasks),
        "tags, best layer": extract_best_tags,
        "tags, last layer": extract_last_tags,
        "minimal pairs, best method": extract_best_pairs,
        "similarity, last layer": extract_similarity(-1),
    }
    if rows := build_crossing_rows(results, scores):
        yield f"## Crossover of {study.compared[0]} and {study.compared[1]}"
        yield (
            "Straight lines through all runs over the logarithm of compute, and where they cross, with Fieller's interval. "
            "Scores do not grow along straight lines for ever: a crossing beyond all runs is a guess."
        )
        yield format_table(rows)


def build_finetuning_parts(results: Results) -> Iterator[str]:
    """Yield the section of fine-tuning, if there is any."""
    if results.has_finetuning:
        yield "## Fine-tuned, dev"
        yield format_table(build_score_rows(results, extract_finetuned))
        yield from build_finetuning_spread(results)


def build_finetuning_spread(results: Results) -> Iterator[str]:
    """Yield the spread over the fine-tuning runs of one encoder, if there are several."""
    if any(runs != [1] for runs in results.finetuning_runs().values()):
        yield "Standard deviations over the fine-tuning runs of one encoder (median above):"
        yield format_table(build_score_rows(results, extract_finetuning_std))


def build_heldout_rows(results: Results) -> Rows:
    """Build rows of all pre-training metrics on held-out text."""
    records = [record for outcome in results.outcomes for record in outcome.records]
    names = dict.fromkeys(name for record in records for name in record["heldout"] if name != "evaluated_tokens")
    return build_number_rows(results, {name.replace("_", " "): extract_heldout(name) for name in names}, digits=3)


def format_spread(spread: Spread | None, digits: int = 1) -> str:
    """Format as `81.2 ± 0.4`, as `81.2` for one seed, or empty."""
    if spread is None:
        return ""
    return f"{spread.mean:.{digits}f}" + (f" ± {spread.std:.{digits}f}" if spread.std is not None else "")


def format_mean(outcome: Outcome, name: str, shown: Callable[[float], str]) -> str:
    """Format the mean of a field over a variant's runs."""
    spread = outcome.spread(lambda record: record[name])
    return shown(spread.mean) if spread else ""


def format_bullets(lines: list[str] | Iterator[str]) -> str:
    """Format a list."""
    return "\n".join(f"- {line}" for line in lines)


def format_table(rows: Rows) -> str:
    """Format a table whose first row is its header."""
    header, *body = rows
    escaped = [[text.replace("|", "\\|") for text in row] for row in (header, ["---"] * len(header), *body)]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)
