"""The paper's studies: each function builds the variants of a table or figure from a scale."""

from dataclasses import replace
from typing import Literal

from electra.studies.catalog.variants import (
    BERT,
    ELECTRA,
    compute_budget_flops,
    configure_both,
    set_full_size,
    set_objective,
    vary_compute,
)
from electra.studies.compute import compute_step_flops
from electra.studies.paper import glue_scores
from electra.studies.scales import Scale
from electra.studies.study import Axis, Study, Variant
from electra.studies.widths import scale_generator, scale_width


def objectives(scale: Scale) -> Study:
    """Table 5: the stepping stones between BERT and ELECTRA (section 3.5)."""
    labels = {
        "electra": ELECTRA,
        "all-tokens-mlm": "All-Tokens MLM",
        "replace-mlm": "Replace MLM",
        "electra-15": "ELECTRA, masked tokens only",
        "electra-other-15": "ELECTRA, tokens sampled independently",
        "mlm": BERT,
    }
    variants = [
        Variant(name, label, set_objective(scale.config, name), published=glue_scores.OBJECTIVES.get(name))
        for name, label in labels.items()
    ]
    # Not in the paper: a generator without cost, with the task that a small network learns fastest (docs/research/results.md).
    frequencies = replace(scale.config, generator=replace(scale.config.generator, kind="unigram"))
    unigram = Variant("electra-unigram", "ELECTRA, unigram generator", frequencies)
    control = Variant("untrained", "one update", scale.config, share=0.0)
    return Study(
        "objectives",
        "Pre-training objectives at equal compute",
        (*variants, unigram, control),
        glue_scores.TABLE_5,
        budget=compute_budget_flops(scale),
        across=True,
    )


def generator_size(scale: Scale) -> Study:
    """Figure 3, left: generators of several sizes, at equal steps (section 3.2)."""
    places = ("uniform", "unigram", *map(str, scale.generators))
    variants = []
    for hidden in scale.discriminators:
        main, line = scale_width(scale.config, hidden), f"discriminator of {hidden}"
        generators = (
            replace(main.generator, kind="uniform"),
            replace(main.generator, kind="unigram"),
            *(scale_generator(main, width) for width in scale.generators),
        )
        for place, (name, generator) in enumerate(zip(places, generators, strict=True)):
            config = replace(main, generator=generator)
            variants.append(Variant(f"d{hidden}-g{name}", f"{name}, {line}", config, line, x=float(place)))
    return Study(
        "generator-size",
        "Generators of different sizes, equal steps",
        tuple(variants),
        glue_scores.FIGURE_3_LEFT,
        axis=Axis("generator (hidden size)", places),
        equal="steps",
        budget=float(scale.steps),
    )


def training_algorithms(scale: Scale) -> Study:
    """Figure 3, right: joint, two-stage and adversarial training, and BERT, over compute (section 3.2, Appendix F)."""
    config, generator = scale.config, scale.config.generator
    same_size = set_full_size(generator)  # two-stage training copies the generator's weights to the discriminator
    algorithms = {
        "electra": (ELECTRA, config),
        "two-stage": ("two-stage", replace(config, procedure="two-stage", generator=same_size)),
        "two-stage-scratch": (
            "two-stage, from scratch",
            replace(config, procedure="two-stage-scratch", generator=same_size),
        ),
        "adversarial": ("adversarial", replace(config, generator=replace(generator, training="adversarial"))),
        "mlm": (BERT, set_objective(config, "mlm")),
    }
    return Study(
        "training-algorithms",
        "Training algorithms over compute",
        tuple(vary_compute(algorithms, (0.25, 0.5, 1.0))),
        glue_scores.FIGURE_3_RIGHT,
        axis=Axis("pre-training FLOPs", flops=True),
        budget=compute_budget_flops(scale),
    )


def tying(scale: Scale) -> Study:
    """Section 3.2: no shared weights, shared embeddings, or all shared; networks of equal size, equal steps."""
    labels: dict[Literal["none", "embeddings", "all"], str] = {
        "none": "no tying",
        "embeddings": "embeddings tied",
        "all": "all weights tied",
    }
    variants = [
        Variant(
            name,
            label,
            replace(scale.config, generator=replace(set_full_size(scale.config.generator), tying=name)),
            published=glue_scores.TYING[name],
        )
        for name, label in labels.items()
    ]
    return Study(
        "tying",
        "Weight tying, equal steps",
        tuple(variants),
        glue_scores.SECTION_3_2,
        equal="steps",
        budget=float(scale.steps),
        across=True,
    )


def model_size(scale: Scale) -> Study:
    """Figure 4, left and center: ELECTRA and BERT of several widths.

    The budget of a width is the FLOPs of its ELECTRA for the scale's steps.
    """
    variants = []
    for hidden in scale.widths:
        config = scale_width(scale.config, hidden)
        share = compute_step_flops(config) / compute_step_flops(scale.config)
        for line, objective in ((ELECTRA, "electra"), (BERT, "mlm")):
            variants.append(
                Variant(
                    f"{objective}-{hidden}",
                    f"{line} {hidden}",
                    set_objective(config, objective),
                    line,
                    x=float(hidden),
                    share=share,
                )
            )
    return Study(
        "model-size",
        "ELECTRA and BERT of several sizes",
        tuple(variants),
        glue_scores.FIGURE_4,
        axis=Axis("hidden size"),
        budget=compute_budget_flops(scale),
        compared=(ELECTRA, BERT),
    )


def convergence(scale: Scale) -> Study:
    """Figure 4, right: a small ELECTRA and a small BERT with up to four times the scale's compute."""
    return Study(
        "convergence",
        "ELECTRA and BERT trained for longer",
        tuple(vary_compute(configure_both(scale.config), (0.25, 0.5, 1.0, 2.0, 4.0))),
        glue_scores.FIGURE_4_RIGHT,
        axis=Axis("pre-training FLOPs", flops=True),
        budget=compute_budget_flops(scale),
        compared=(ELECTRA, BERT),
    )


def efficiency(scale: Scale) -> Study:
    """Figure 1 and Table 1: ELECTRA and BERT after 6.25, 12.5, 25, 50 and 100 % of the compute."""
    by_share = glue_scores.BY_SHARE.get(scale.name, {})
    variants = [
        replace(variant, published=by_share.get(variant.line, {}).get(variant.share))
        for variant in vary_compute(configure_both(scale.config), (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0))
    ]
    return Study(
        "efficiency",
        "Score against compute",
        tuple(variants),
        glue_scores.FIGURE_1,
        axis=Axis("pre-training FLOPs", flops=True),
        budget=compute_budget_flops(scale),
        compared=(ELECTRA, BERT),
    )


def negative_results(scale: Scale) -> Study:
    """Appendix H: ideas that did not help, compared with their baselines."""
    config, generator = scale.config, scale.config.generator
    bert = set_objective(config, "mlm")
    ideas = {
        "electra": (ELECTRA, config),
        "temperature-1.5": ("ELECTRA, temperature 1.5", replace(config, generator=replace(generator, temperature=1.5))),
        "temperature-2": ("ELECTRA, temperature 2", replace(config, generator=replace(generator, temperature=2.0))),
        "never-original": (
            "ELECTRA, never the original",
            replace(config, generator=replace(generator, exclude_original_token=True)),
        ),
        "contrast": ("ELECTRA, sentence-level contrast", replace(config, contrast=replace(config.contrast, weight=1.0))),
        "mlm": (BERT, bert),
        "mlm-rare": ("BERT, rare tokens masked", replace(bert, masking=replace(bert.masking, strategy="rare"))),
        "mlm-hard": ("BERT, hard tokens masked", replace(bert, masking=replace(bert.masking, strategy="hard"))),
    }  # fmt: skip
    return Study(
        "negative-results",
        "Negative results",
        tuple(Variant(name, label, changed) for name, (label, changed) in ideas.items()),
        glue_scores.APPENDIX_H,
        budget=compute_budget_flops(scale),
    )


def learning_rate(scale: Scale) -> Study:
    """Appendix A: the learning rate, searched for ELECTRA and BERT in the same way."""
    variants = [
        Variant(
            f"{name}-{rate:g}",
            f"{line}, {rate:g}",
            replace(config, optimizer=replace(config.optimizer, learning_rate=rate)),
            line,
            x=float(place),
        )
        for name, (line, config) in configure_both(scale.config).items()
        for place, rate in enumerate(scale.rates)
    ]
    return Study(
        "learning-rate",
        "Learning rates of ELECTRA and BERT",
        tuple(variants),
        glue_scores.APPENDIX_A,
        axis=Axis("peak learning rate", tuple(f"{rate:g}" for rate in scale.rates)),
        budget=compute_budget_flops(scale),
    )
