"""Recommendation of a pre-training configuration for a text and a number of hours on this machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from electra.external import format_count
from electra.pretraining.config import PretrainConfig
from electra.runtime.setup import RuntimeConfig
from electra.studies.advice.estimate import SizeEstimate, choose_size, estimate_sizes
from electra.studies.advice.expected import Expected, find_expected
from electra.studies.advice.rules import (
    EPOCHS_SOURCE,
    FEW_EPOCHS,
    MAX_EPOCHS,
    SIZE_SOURCE,
    compute_tokens_per_parameter,
    find_objective_rule,
)
from electra.studies.advice.sizes import SIZES
from electra.studies.advice.text_sample import sample_text
from electra.studies.catalog.variants import set_objective
from electra.studies.compute import Step, measure_step
from electra.text.corpus import Corpus


@dataclass(frozen=True)
class Advice:
    """A recommended run, and what it follows from."""

    config: PretrainConfig
    hours: float
    """Of the recommended run, at most those given."""
    flops: float
    tokens: int
    epochs: float
    """How often the run reads the text."""
    text_bytes: float
    text_tokens: float
    chosen: SizeEstimate
    estimates: Sequence[SizeEstimate]
    expected: Sequence[Expected]
    reasons: Sequence[str]
    warnings: Sequence[str]


def advise(
    corpus: Corpus,
    hours: float,
    runtime: RuntimeConfig,
    cased: bool = False,
    keep_accents: bool = False,
    measure: Callable[[PretrainConfig], Step] = measure_step,
) -> Advice:
    """Sample the text, time updates on this machine, and recommend a run.

    Raises:
        DeviceError: a GPU is requested but not available.
        TextError: the text cannot be read, or there is none.
        UsageError: the size of the text is not known.
    """
    sample = sample_text(corpus)

    def set_options(config: PretrainConfig) -> PretrainConfig:
        return replace(
            config,
            runtime=runtime,
            cased=cased,
            keep_accents=keep_accents,
            text_field=corpus.text_field,
            encoding_errors=corpus.encoding_errors,
        )

    def count_tokens(vocab_size: int) -> float:
        return sample.estimate_tokens(vocab_size, cased, keep_accents)

    estimates = estimate_sizes(SIZES, hours, set_options, measure, count_tokens)
    chosen = choose_size(estimates, hours)
    assert chosen.text_tokens is not None
    useful_steps = MAX_EPOCHS * chosen.text_tokens / chosen.step_tokens
    mlm_flops = min(hours * 3600 / chosen.step.seconds, useful_steps) * chosen.step.flops
    rule = find_objective_rule(mlm_flops)
    config = set_options(set_objective(SIZES[chosen.name].build(), rule.objective))
    step = chosen.step if rule.objective == "mlm" else measure(config)
    assert config.steps is not None, "sizes have steps"
    steps = max(1, int(min(hours * 3600 / step.seconds, useful_steps)))
    config = replace(config, steps=steps, length_warmup=config.length_warmup.scale(steps / config.steps))
    epochs = steps * chosen.step_tokens / chosen.text_tokens
    return Advice(
        config,
        steps * step.seconds / 3600,
        steps * step.flops,
        steps * chosen.step_tokens,
        epochs,
        sample.text_bytes,
        chosen.text_tokens,
        chosen,
        estimates,
        find_expected(chosen.name, rule.objective, steps * step.flops),
        [
            *explain_size(chosen, estimates, hours),
            f"objective {rule.objective}: {rule.reason} ({rule.source}); the run has {mlm_flops:.2g} FLOPs with mlm",
            f"sequences of {config.seq_len} tokens, batches of {config.training.batch_size}, learning rate "
            f"{config.optimizer.learning_rate:g}: {SIZES[chosen.name].origin}",
            f"vocabulary of {config.model.vocab_size:,}: that of this size; the text has {chosen.text_tokens:.2g} tokens "
            f"with it, {chosen.text_tokens / sample.text_bytes:.3f} per byte",
            f"{format_count(steps, 'step')}: {step.seconds:.3g} s each, as measured on random text",
        ],
        list_warnings(chosen, steps * step.seconds / 3600, epochs, steps * chosen.step_tokens, hours),
    )


def explain_size(chosen: SizeEstimate, estimates: Sequence[SizeEstimate], hours: float) -> list[str]:
    """Explain why this size, and not the next one."""
    ratio = compute_tokens_per_parameter()
    reasons = [
        f"size {chosen.name}: it needs {chosen.needed_tokens:.2g} tokens, {ratio:.1f} per parameter, as many as scale mini "
        f"reads where it is ahead of scale tiny ({SIZE_SOURCE}); for other sizes an extrapolation"
    ]
    number = estimates.index(chosen) + 1
    if number < len(estimates):
        larger = estimates[number]
        if larger.needed_hours > hours:
            about = "" if larger.is_measured else "about "
            obstacle = f"it needs {about}{format_hours(larger.needed_hours)}"
        else:
            obstacle = f"it needs {larger.needed_tokens:.2g} tokens, more than {MAX_EPOCHS} epochs of the text"
        reasons.append(f"not {larger.name}: {obstacle}")
    return reasons


def list_warnings(chosen: SizeEstimate, used_hours: float, epochs: float, tokens: int, hours: float) -> list[str]:
    """Warn of too little text or time."""
    warnings = []
    if epochs > FEW_EPOCHS:
        few_hours = format_hours(used_hours * FEW_EPOCHS / epochs)
        warnings.append(
            f"the text is read {epochs:.1f} times; beyond {FEW_EPOCHS} times, repeated text helps less and less "
            f"({EPOCHS_SOURCE}): add text, or train for {few_hours}; or continue from a pre-trained model of its language "
            "(electra pretrain --init)"
        )
    if epochs > 0.99 * MAX_EPOCHS:
        warnings.append(
            f"more than {MAX_EPOCHS} times are of no use: the run is limited to these, {format_hours(used_hours)} of the "
            f"{format_hours(hours)}"
        )
    if tokens < chosen.needed_tokens:
        warnings.append(
            f"{tokens:.2g} tokens are too few even for this size, which needs {chosen.needed_tokens:.2g}: the model will know "
            "little more than frequencies"
        )
    return warnings


def format_hours(hours: float) -> str:
    """Format a time in the unit that fits."""
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    if hours < 2:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"
