"""Scales of a study: the base run of its variants, the sizes it compares, its tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from electra.data.loader import LengthWarmup
from electra.finetuning.benchmark.score_table import COLUMNS
from electra.presets import PRESETS, tiny
from electra.pretraining.config import PretrainConfig
from electra.studies.widths import scale_generator


@dataclass(frozen=True)
class Scale:
    """The size of a study."""

    name: str
    config: PretrainConfig
    """The ELECTRA run. The FLOPs of its steps are the budget of studies at equal compute."""
    steps: int
    """Updates of studies at equal steps (section 3.2)."""
    widths: tuple[int, ...]
    """Hidden sizes of Figure 4."""
    discriminators: tuple[int, ...]
    """Hidden sizes of the discriminators of Figure 3."""
    generators: tuple[int, ...]
    """Hidden sizes of the generators of Figure 3."""
    rates: tuple[float, ...] = (1e-4, 2e-4, 3e-4, 5e-4)
    """Learning rates of the search (Appendix A)."""
    tasks: tuple[str, ...] = tuple(COLUMNS)
    """GLUE tasks."""


PAPER_STEPS = 500_000
"""Section 3.2: "we train these models for 500k steps"."""


SMALL_TASKS = ("cola", "sst2", "mrpc", "stsb", "rte")
"""Tasks on which a small network is fine-tuned in minutes."""


def tiny_scale() -> Scale:
    """Return the scale with runs of about five minutes on a CPU core.

    It has the network of preset tiny with a vocabulary large enough for GLUE. docs/research/log has the experiments behind
    the other choices: short sequences first, small initial embeddings, and a weak generator.
    """
    base = tiny()
    config = replace(
        base,
        steps=10_000,
        seq_len=32,
        model=replace(base.model, vocab_size=4_096, embedding_initializer_range=0.02),
        training=replace(base.training, batch_size=32, log_every=100, checkpoint_every=2_000),
        length_warmup=LengthWarmup(steps=5_000, length=16),
    )
    return Scale(
        "tiny",
        replace(config, generator=scale_generator(config, 16)),
        steps=config.steps or 0,
        widths=(32, 64, 128),
        discriminators=(64,),
        generators=(16, 32, 64, 128),
        rates=(1e-3, 2e-3, 4e-3),
        tasks=SMALL_TASKS,
    )


def mini_scale() -> Scale:
    """Return the scale with runs of about 25 minutes on a CPU core, with a larger network than scale tiny."""
    base = tiny_scale().config
    sizes: dict[str, Any] = {
        "embedding_size": 128,
        "hidden_size": 128,
        "num_layers": 3,
        "num_heads": 4,
        "ffn_size": 512,
    }
    config = replace(
        base,
        steps=8_000,
        model=replace(base.model, **sizes, vocab_size=8_192, initializer_range=0.09),
        masking=replace(base.masking, fraction=0.2),
        optimizer=replace(base.optimizer, learning_rate=1e-3),
        length_warmup=replace(base.length_warmup, steps=4_000),
    )
    return Scale(
        "mini",
        replace(config, generator=scale_generator(config, 32)),
        steps=config.steps or 0,
        widths=(32, 64, 128, 256),
        discriminators=(128,),
        generators=(32, 64, 128, 256),
        rates=(5e-4, 1e-3, 2e-3),
        tasks=SMALL_TASKS,
    )


# Widths, discriminators and generators by the hidden size of a preset. Those of Base are the paper's.
SIZES: Mapping[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    256: ((64, 128, 192, 256), (128, 256), (32, 64, 128, 256, 512)),
    768: ((128, 256, 384, 512, 768), (256, 512, 768), (64, 128, 256, 512, 768, 1024)),
    1024: ((256, 512, 768, 1024), (512, 1024), (128, 256, 512, 768, 1024)),
}


def preset_scale(name: str) -> Scale:
    """Return the scale of a preset with the paper's budget: the FLOPs of the preset's steps, or 500,000 steps."""
    config = PRESETS[name]()
    widths, discriminators, generators = SIZES[config.model.hidden_size]
    return Scale(name, config, PAPER_STEPS, widths, discriminators, generators)


SCALES: dict[str, Callable[[], Scale]] = {
    "tiny": tiny_scale,
    "mini": mini_scale,
    **{
        name: partial(preset_scale, name)
        for name in PRESETS
        if name != "tiny" and PRESETS[name]().objective == "electra"
    },
}
