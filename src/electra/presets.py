"""Presets: the configurations of the paper (Table 6), the released ones, and small ones for minutes on a CPU.

A preset is a function that returns a configuration; an ablation changes one line:

    replace(small(), objective="mlm")
"""

from collections.abc import Callable
from dataclasses import replace

from electra.config.checks import check_choice
from electra.data.loader import LengthWarmup
from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.train.config import TrainingConfig
from electra.train.optimizer import OptimizerConfig


def tiny() -> PretrainConfig:
    """A demonstration for three minutes on two CPU cores; not a useful model.

    Short sequences, a small vocabulary and many small steps: attention must learn to find neighbors by position before
    anything else, which takes thousands of steps. Initial kernels scaled to the width, and a loss weight with which the
    generator dominates the shared embeddings, shorten this phase (docs/research/log). No dropout: no example is repeated
    often enough to overfit.
    """
    return PretrainConfig(
        preset="tiny",
        steps=20_000,
        seq_len=16,
        model=EncoderConfig(
            vocab_size=2_048,
            embedding_size=64,
            hidden_size=64,
            num_layers=2,
            num_heads=2,
            ffn_size=256,
            dropout=0.0,
            attention_dropout=0.0,
            initializer_range=0.12,
        ),
        loss_weight=5.0,
        generator=GeneratorConfig(size=0.5),
        masking=MaskingConfig(fraction=0.25),
        training=TrainingConfig(batch_size=64, log_every=50, checkpoint_every=1_000),
        optimizer=OptimizerConfig(learning_rate=2e-3),
    )


def nano() -> PretrainConfig:
    """A masked language model of 2 layers for minutes of a CPU core.

    At this size no form of replaced token detection that was tried is better (docs/research/results.md). With whole words
    masked, Muon, and heads that attend to neighbors from the start, it learns context sooner.
    """
    config = tiny()
    return replace(
        config,
        preset="nano",
        objective="mlm",
        loss_weight=None,
        steps=16_000,
        seq_len=32,
        model=replace(
            config.model, vocab_size=4_096, embedding_initializer_range=0.02, attention_initializer="neighbors"
        ),
        training=TrainingConfig(batch_size=32, log_every=100, checkpoint_every=2_000),
        masking=replace(config.masking, strategy="word"),
        optimizer=OptimizerConfig(kind="muon", learning_rate=4e-3),
        length_warmup=LengthWarmup(steps=8_000, length=16),
    )


def micro() -> PretrainConfig:
    """A masked language model of 3 layers for half an hour of a CPU core; otherwise like nano."""
    config = nano()
    return replace(
        config,
        preset="micro",
        steps=13_000,
        model=replace(
            config.model,
            vocab_size=8_192,
            embedding_size=128,
            hidden_size=128,
            num_layers=3,
            num_heads=4,
            ffn_size=512,
            initializer_range=0.09,
        ),
        masking=replace(config.masking, fraction=0.2),
        optimizer=replace(config.optimizer, learning_rate=2e-3),
        length_warmup=LengthWarmup(steps=6_500, length=16),
    )


def small() -> PretrainConfig:
    """ELECTRA-Small: 14 M parameters; four days on one V100 in the paper."""
    return PretrainConfig(
        preset="small",
        steps=1_000_000,
        seq_len=128,
        model=EncoderConfig(),
        generator=GeneratorConfig(size=1 / 4),
        training=TrainingConfig(batch_size=128),
        optimizer=OptimizerConfig(learning_rate=5e-4),
    )


def base() -> PretrainConfig:
    """ELECTRA-Base: 110 M parameters."""
    return PretrainConfig(
        preset="base",
        steps=766_000,
        seq_len=512,
        model=EncoderConfig(embedding_size=768, hidden_size=768, num_layers=12, num_heads=12, ffn_size=3072),
        generator=GeneratorConfig(size=1 / 3),
        training=TrainingConfig(batch_size=256),
        optimizer=OptimizerConfig(learning_rate=2e-4),
    )


def large() -> PretrainConfig:
    """ELECTRA-Large as released (ELECTRA-1.75M): 335 M parameters."""
    return PretrainConfig(
        preset="large",
        steps=1_750_000,
        seq_len=512,
        model=EncoderConfig(embedding_size=1024, hidden_size=1024, num_layers=24, num_heads=16, ffn_size=4096),
        generator=GeneratorConfig(size=1 / 4),
        masking=MaskingConfig(fraction=0.25),
        training=TrainingConfig(batch_size=2048),
        optimizer=OptimizerConfig(learning_rate=2e-4),
    )


def small_plus_plus() -> PretrainConfig:
    """ELECTRA-Small++, the released "electra_small": more steps, and a generator as wide as the discriminator."""
    return replace(small(), preset="small++", steps=4_000_000, seq_len=512, generator=GeneratorConfig(size=1.0))


def base_plus_plus() -> PretrainConfig:
    """ELECTRA-Base++, the released "electra_base": Base trained for 4 M steps (Appendix D)."""
    return replace(base(), preset="base++", steps=4_000_000)


def bert_small() -> PretrainConfig:
    """BERT-Small: the baseline of the paper's Table 1, with the compute of ELECTRA-Small."""
    return replace(small(), preset="bert-small", objective="mlm", steps=1_450_000)


def bert_base() -> PretrainConfig:
    """BERT-Base without next-sentence prediction."""
    return replace(base(), preset="bert-base", objective="mlm", steps=1_000_000)


def bert_large() -> PretrainConfig:
    """BERT-Large as trained in the paper ("BERT (ours)", Table 2); 15 % of the tokens are masked, 25 % only in ELECTRA."""
    return replace(large(), preset="bert-large", objective="mlm", steps=464_000, masking=MaskingConfig())


PRESETS: dict[str, Callable[[], PretrainConfig]] = {
    "tiny": tiny,
    "nano": nano,
    "micro": micro,
    "small": small,
    "small++": small_plus_plus,
    "base": base,
    "base++": base_plus_plus,
    "large": large,
    "bert-small": bert_small,
    "bert-base": bert_base,
    "bert-large": bert_large,
}


def get_preset(name: str) -> PretrainConfig:
    """Return the configuration of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    check_choice("--preset", name, PRESETS)
    return PRESETS[name]()


def reference(config: PretrainConfig) -> PretrainConfig:
    """Return a configuration with the remaining quirks of the original code, for comparisons with it.

    Positions are drawn with replacement, losses are means of micro-batch means, there is no bias correction, warm-up is
    multiplied by decay and is never shortened, and a BERT baseline is masked 85/15 like the generator's input. As in the
    original code, a run of 1,000 steps with 10,000 warm-up steps reaches about a fortieth of the learning rate.
    """
    return replace(
        config,
        masking=replace(config.masking, with_replacement=True, mlm_mask=0.85, mlm_random=0.0),
        training=replace(config.training, means="local"),
        optimizer=replace(config.optimizer, bias_correction=False),
        schedule=replace(config.schedule, kind="linear-product"),
    )
