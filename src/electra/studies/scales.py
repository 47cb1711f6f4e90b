"""How large a study is: the run that all its variants differ from, the sizes it compares, the tasks it is scored on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from electra.data.loader import LengthWarmup
from electra.finetuning.benchmark.grid import COLUMNS
from electra.presets import PRESETS, tiny
from electra.pretraining.config import PretrainConfig
from electra.studies.widths import with_generator


@dataclass(frozen=True)
class Scale:
    """One scale."""

    name: str
    config: PretrainConfig
    """The ELECTRA run. What it spends in its steps is the budget where compute is equal."""
    steps: int
    """Updates where steps are equal (section 3.2)."""
    widths: tuple[int, ...]
    """Hidden sizes of Figure 4."""
    discriminators: tuple[int, ...]
    """Hidden sizes that Figure 3 looks for the best generator of."""
    generators: tuple[int, ...]
    """Hidden sizes of those generators."""
    rates: tuple[float, ...] = (1e-4, 2e-4, 3e-4, 5e-4)
    """Learning rates that are searched (Appendix A)."""
    tasks: tuple[str, ...] = tuple(COLUMNS)
    """Tasks of GLUE that count."""


PAPER_STEPS = 500_000
"""Section 3.2: "we train these models for 500k steps"."""


SMALL_TASKS = ("cola", "sst2", "mrpc", "stsb", "rte")
"""What fine-tuning of a small network scores in minutes."""


def tiny_scale() -> Scale:
    """About five minutes a run on a CPU core.

    The tiny preset's network, with words enough for GLUE. docs/research/log has how the rest was found: short sequences
    first, embeddings that start small, and a weak generator.
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
        replace(config, generator=with_generator(config, 16)),
        steps=config.steps or 0,
        widths=(32, 64, 128),
        discriminators=(64,),
        generators=(16, 32, 64, 128),
        rates=(1e-3, 2e-3, 4e-3),
        tasks=SMALL_TASKS,
    )


def mini_scale() -> Scale:
    """About 25 minutes a run on a CPU core.

    A larger network than at scale tiny, and a loss weight that leaves the shared embeddings to its generator.
    """
    base = tiny_scale().config
    sizes = {"embedding_size": 128, "hidden_size": 128, "num_layers": 3, "num_heads": 4, "ffn_size": 512}
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
        replace(config, generator=with_generator(config, 32)),
        steps=config.steps or 0,
        widths=(32, 64, 128, 256),
        discriminators=(128,),
        generators=(32, 64, 128, 256),
        rates=(5e-4, 1e-3, 2e-3),
        tasks=SMALL_TASKS,
    )


# By the hidden size of a preset: widths, discriminators, generators. Those of Base are the paper's.
SIZES: Mapping[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    256: ((64, 128, 192, 256), (128, 256), (32, 64, 128, 256, 512)),
    768: ((128, 256, 384, 512, 768), (256, 512, 768), (64, 128, 256, 512, 768, 1024)),
    1024: ((256, 512, 768, 1024), (512, 1024), (128, 256, 512, 768, 1024)),
}


def preset_scale(name: str) -> Scale:
    """A preset with the paper's budget: that of its own steps, or 500,000 steps."""
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
