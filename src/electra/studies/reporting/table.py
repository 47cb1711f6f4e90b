"""A study's results as Markdown, in the paper's layout, with the paper's numbers for comparison."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from electra.finetuning.benchmark.score_table import COLUMNS
from electra.model.flops import inference_flops
from electra.pretraining.build import build_meta_model
from electra.pretraining.evaluation.sentence_scores import METHODS
from electra.studies.compute import compute_look_up_share
from electra.studies.paper.run_costs import count_parameters
from electra.studies.reporting.results import (
    TOLERANCE,
    Number,
    Outcome,
    Results,
    Spread,
    average,
    best_layer,
    best_pairs,
    best_probe,
    best_tags,
    embeddings_tags,
    finetuned,
    finetuning_std,
    heldout,
    last_probe,
    last_tags,
    pairs,
    similarity,
    tags_layer,
)
from electra.studies.trial import get_finetuning_length

Rows = list[list[str]]


def to_markdown(results: Results) -> str:
    """Format the page: the paper's table first, then all tasks, the probes, and held-out text."""
    study = results.study
    summary = build_summary_rows(results)
    parts = [
        f"# {study.title}",
        (f"{study.published.source} of the paper, at" if study.published.source else "At")
        + f" scale `{results.scale}`.",
        markdown([list(column) for column in zip(*summary, strict=True)] if study.across else summary),
        bullets(
            [
                *compute_notes(results),
                *finetuning_notes(results),
                *list_missing_runs(results),
                *published_notes(results),
            ]
        ),
        *finetuning_parts(results),
        "## Linear probe of the frozen encoder, dev",
        "The layer that is best in cross-validation on training examples:",
        markdown(score_rows(results, best_probe)),
        "The last layer:",
        markdown(score_rows(results, last_probe)),
        "Best layer (0: the embeddings):",
        markdown(score_rows(results, best_layer)),
        *tag_parts(results),
        *pretrained_parts(results),
        "## Held-out text",
        markdown(heldout_rows(results)),
        bullets(reading_notes(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def build_summary_rows(results: Results) -> Rows:
    """Build one row per variant: its compute, its scores, the paper's score."""
    header = ["Model", "Seeds", "Train FLOPs", "Look-ups", "Infer FLOPs", "Params", "Steps", "Train min"]
    kinds = {"GLUE avg.": finetuned, "Probe avg.": best_probe, "Probe avg., last layer": last_probe}
    if not results.has_finetuning:
        del kinds["GLUE avg."]
    numbers = {title: average(kind, results.tasks) for title, kind in kinds.items()}
    for name, title, number in (("tags", "Tags", best_tags), ("pairs", "Pairs, best method", best_pairs)):
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
                f"{compute_look_up_share(config):.0%}",
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


def score_rows(results: Results, kind: Callable[[str], Number]) -> Rows:
    """Build rows of one kind of score for all tasks."""
    numbers = {COLUMNS.get(task, task.upper()): kind(task) for task in results.tasks}
    digits = count_layer_digits(results) if kind is best_layer else 1
    if kind not in (best_layer, finetuning_std):
        numbers["Avg."] = average(kind, results.tasks)
    return number_rows(results, numbers, digits)


def count_layer_digits(results: Results) -> int:
    """Return the digits of a layer's number: 1 for means over several seeds, else 0."""
    return int(any(len(outcome.records) > 1 for outcome in results.outcomes))


def number_rows(results: Results, numbers: Mapping[str, Number], digits: int = 1) -> Rows:
    """Build a row of numbers per variant; `numbers` has the headings."""
    return [["Model", *numbers]] + [
        [outcome.variant.label, *(format_spread(outcome.spread(number), digits) for number in numbers.values())]
        for outcome in results.outcomes
    ]


def tag_parts(results: Results) -> Iterator[str]:
    """Yield the section of the tag probe, if there is one."""
    if results.has("tags"):
        numbers = {
            "Embeddings": embeddings_tags,
            "Best layer": best_tags,
            "Last layer": last_tags,
        }
        yield "## Linear probe of words' tags"
        scores = number_rows(results, numbers)
        layers = number_rows(results, {"Best layer (0: the embeddings)": tags_layer}, count_layer_digits(results))
        yield markdown([[*row, layer] for row, (_, layer) in zip(scores, layers, strict=True)])


def pretrained_parts(results: Results) -> Iterator[str]:
    """Yield the sections of minimal pairs and of sentence similarity, where there are any."""
    if results.has("pairs"):
        yield "## Minimal pairs"
        yield "Accuracy, mean over paradigms; chance is 50:"
        yield markdown(number_rows(results, {method: pairs(method) for method in METHODS}))
    if results.has("similarity"):
        yield "## Similarity of frozen sentence vectors, STS-B dev"
        yield "Spearman's correlation of the cosine of mean-pooled hidden states with the similarity given by people:"
        yield markdown(number_rows(results, {"Embeddings": similarity(0), "Last layer": similarity(-1)}))


def finetuning_parts(results: Results) -> Iterator[str]:
    """Yield the section of fine-tuning, if there is any."""
    if results.has_finetuning:
        yield "## Fine-tuned, dev"
        yield markdown(score_rows(results, finetuned))
        yield from finetuning_spread(results)


def finetuning_spread(results: Results) -> Iterator[str]:
    """Yield the spread over the fine-tuning runs of one encoder, if there are several."""
    if any(runs != [1] for runs in results.finetuning_runs().values()):
        yield "Standard deviations over the fine-tuning runs of one encoder (median above):"
        yield markdown(score_rows(results, finetuning_std))


def heldout_rows(results: Results) -> Rows:
    """Build rows of all pre-training metrics on held-out text."""
    records = [record for outcome in results.outcomes for record in outcome.records]
    names = dict.fromkeys(name for record in records for name in record["heldout"] if name != "evaluated_tokens")
    return number_rows(results, {name.replace("_", " "): heldout(name) for name in names}, digits=3)


def format_spread(spread: Spread | None, digits: int = 1) -> str:
    """Format as `81.2 ± 0.4`, as `81.2` for one seed, or empty."""
    if spread is None:
        return ""
    return f"{spread.mean:.{digits}f}" + (f" ± {spread.std:.{digits}f}" if spread.std is not None else "")


def format_mean(outcome: Outcome, name: str, shown: Callable[[float], str]) -> str:
    """Format the mean of a field over a variant's runs."""
    spread = outcome.spread(lambda record: record[name])
    return shown(spread.mean) if spread else ""


def compute_notes(results: Results) -> Iterator[str]:
    """Yield notes on the budget, on deviations from it, and on the learning rates."""
    study = results.study
    unit = "FLOPs" if study.equal == "flops" else "updates"
    amount = f"{study.budget:.3g}" if study.equal == "flops" else f"{study.budget:,.0f}"
    shares = {outcome.variant.share for outcome in results.outcomes} - {0.0}
    times = "" if shares == {1.0} else ", times its share"
    yield f"Equal {unit}: {amount} for each run{times}. FLOPs are counted as in Appendix E of the paper."
    yield (
        "Look-ups: the share of the train FLOPs that hardware does not compute. Appendix E counts embeddings as products with "
        "one-hot vectors; the larger the vocabulary's share of a model, the less its FLOPs measure its work."
    )
    rates: dict[str, set[float]] = {}
    for outcome in results.outcomes:
        config = outcome.variant.config
        rates.setdefault(config.objective, set()).add(config.optimizer.learning_rate)
    shown = (f"{name} {', '.join(f'{rate:g}' for rate in sorted(each))}" for name, each in rates.items())
    yield f"Peak learning rates: {'; '.join(shown)}."
    off = results.list_off_budget()
    if off:
        yield f"Not equal: {'; '.join(off)} (off by more than {TOLERANCE:.0%}). These rows do not compare with the others."
    elif any(outcome.records for outcome in results.outcomes):
        yield f"Every run used its share of the budget within {TOLERANCE:.0%}."
    if any(outcome.variant.share == 0 for outcome in results.outcomes):
        yield "One update is a control close to random weights; it has no share of the budget."


def finetuning_notes(results: Results) -> Iterator[str]:
    """Yield the number of fine-tuning runs per score, with a note if it is not equal."""
    runs = results.finetuning_runs()
    different = {tuple(each) for each in runs.values()}
    if len(different) > 1 or any(len(each) > 1 for each in different):
        shown = ", ".join(f"{label} {' and '.join(map(str, each))}" for label, each in runs.items())
        yield f"Not equal: the fine-tuning runs behind a score ({shown}). A median of several is steadier than one run."
    elif different:
        (number,) = different.pop()
        yield (
            "A fine-tuned score is of one run."
            if number == 1
            else f"A fine-tuned score is the median of {number} runs."
        )


def list_missing_runs(results: Results) -> Iterator[str]:
    """Yield failed runs with the reason, and missing and partly scored runs."""
    for outcome in results.outcomes:
        for seed, reason in outcome.failed.items():
            yield f"Failed: {outcome.variant.label}, seed {seed}: {reason}"
        if outcome.missing:
            yield f"Not run yet: {outcome.variant.label}, seed {', '.join(map(str, outcome.missing))}"
        for record in outcome.records:
            if left := results.unscored_tasks(record):
                yield f"Scored in part: {outcome.variant.label}, seed {record['seed']}; not yet on {', '.join(left)}"


def published_notes(results: Results) -> Iterator[str]:
    """Yield the paper's results."""
    published = results.study.published
    if published.remark:
        yield f"The paper: {published.remark}"
    for name, points in published.lines:
        yield f"The paper, {name}: " + ", ".join(f"{score} at {place:.3g}" for place, score in points)


def reading_notes(results: Results) -> Iterator[str]:
    """Yield notes on how to read the numbers."""
    yield (
        "Scores in percent, held-out text in shares and nats; means ± standard deviations over pre-training seeds. Matthews "
        "correlation for CoLA, Spearman for STS, accuracy for the rest. GLUE avg. is over the tasks shown here, the paper's "
        "over eight."
    )
    config = results.study.variants[0].config
    warmup, steps = config.length_warmup, config.steps
    first = (
        f", of {warmup.length} in the first {warmup.steps / steps:.0%} of its updates" if steps and warmup.steps else ""
    )
    yield (
        f"Pre-training reads sequences of {config.seq_len} tokens{first}, the probe {config.seq_len} "
        f"tokens of a sentence. Fine-tuning reads "
        f"{get_finetuning_length(config)} tokens of an example at most; it trains the positions that pre-training never read."
    )
    names = ", ".join(f"{outcome.variant.label} `{outcome.variant.name}`" for outcome in results.outcomes)
    yield f"For `--variants`: {names}."
    yield (
        "Probe: logistic or ridge regression on mean-pooled hidden states of the frozen encoder; a pair's sentences are "
        "encoded one at a time. The penalty and the best layer are chosen in cross-validation on training examples."
    )
    if results.has("tags"):
        found = {
            (record["tags"]["source"], record["tags"]["split"])
            for each in results.outcomes
            for record in each.records
            if "tags" in record
        }
        where = " and ".join(f"{split} of {Path(folder).name}" for folder, split in sorted(found))
        yield (
            f"Tags: the share of words ({where}) whose tag a ridge classifier predicts from the hidden state of the word's "
            "first token. Embeddings depend on that token and its position, layers also on the rest of the word and its "
            "context."
        )


def bullets(lines: list[str] | Iterator[str]) -> str:
    """Format a list."""
    return "\n".join(f"- {line}" for line in lines)


def markdown(rows: Rows) -> str:
    """Format a table whose first row is its header."""
    header, *body = rows
    escaped = [[text.replace("|", "\\|") for text in row] for row in (header, ["---"] * len(header), *body)]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)
