"""Notes below the table of a study: budget, fine-tuning runs, missing runs, the paper's results, how scores are computed."""

from collections.abc import Iterator

from electra.studies.reporting.results import TOLERANCE, Results
from electra.studies.trial import get_finetuning_length


def list_compute_notes(results: Results) -> Iterator[str]:
    """Yield notes on the budget, on deviations from it, and on the learning rates."""
    study = results.study
    unit = "FLOPs" if study.equal == "flops" else "updates"
    amount = f"{study.budget:.3g}" if study.equal == "flops" else f"{study.budget:,.0f}"
    shares = {outcome.variant.share for outcome in results.outcomes} - {0.0}
    times = "" if shares == {1.0} else ", times its share"
    yield f"Equal {unit}: {amount} for each run{times}. FLOPs are counted as in Appendix E of the paper."
    yield (
        "Hardware FLOPs: those that hardware computes. Appendix E counts embeddings as products with one-hot vectors, and a "
        "backward pass as much as a forward pass; here look-ups count nothing, and a backward pass twice a forward pass."
    )
    rates: dict[str, set[float]] = {}
    for outcome in results.outcomes:
        config = outcome.variant.config
        rates.setdefault(config.objective, set()).add(config.optimizer.learning_rate)
    shown = (f"{name} {', '.join(f'{rate:g}' for rate in sorted(each))}" for name, each in rates.items())
    yield f"Peak learning rates: {'; '.join(shown)}."
    if off_budget := results.find_off_budget():
        runs = (f"{label}, seed {seed}: {spent:.1%} of its budget" for (label, seed), spent in off_budget.items())
        yield f"Not equal: {'; '.join(runs)} (off by more than {TOLERANCE:.0%}). Do not compare these rows with the others."
    elif any(outcome.records for outcome in results.outcomes):
        yield f"Every run used its share of the budget within {TOLERANCE:.0%}."
    if any(outcome.variant.share == 0 for outcome in results.outcomes):
        yield "One update is a control close to random weights; it has no share of the budget."


def list_finetuning_notes(results: Results) -> Iterator[str]:
    """Yield the number of fine-tuning runs per score, with a note if it is not equal."""
    runs = results.finetuning_runs()
    different = {tuple(each) for each in runs.values()}
    if len(different) > 1 or any(len(each) > 1 for each in different):
        shown = ", ".join(f"{label} {' and '.join(map(str, each))}" for label, each in runs.items())
        yield f"Not equal: the fine-tuning runs behind a score ({shown}). A median of several varies less than one run."
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


def list_published_notes(results: Results) -> Iterator[str]:
    """Yield the paper's results."""
    published = results.study.published
    if published.remark:
        yield f"The paper: {published.remark}"
    for name, points in published.lines:
        yield f"The paper, {name}: " + ", ".join(f"{score} at {place:.3g}" for place, score in points)


def list_reading_notes(results: Results) -> Iterator[str]:
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
        f"{get_finetuning_length(config)} tokens of an example at most; it trains the positions that pre-training does not."
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
        where = " and ".join(f"{split} of {source}" for source, split in sorted(found))
        yield (
            f"Tags: the share of words ({where}) whose tag a ridge classifier predicts from the hidden state of the word's "
            "first token. Embeddings depend on that token and its position, layers also on the rest of the word and its "
            "context."
        )
