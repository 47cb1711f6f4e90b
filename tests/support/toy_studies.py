"""A scale and a study of seconds, and a command line that knows them: worker processes need neither."""

import sys
from dataclasses import replace
from pathlib import Path

from electra import cli
from electra.data.loader import LengthWarmup
from electra.studies.catalog import STUDIES
from electra.studies.config import StudyConfig
from electra.studies.paper.glue_scores import TABLE_5
from electra.studies.scales import SCALES, Scale, tiny_scale
from electra.studies.study import Study, Variant

TASKS = ("sst2", "stsb")


def toy_scale() -> Scale:
    """The tiny scale, on models of 2 layers of 16."""
    scale = tiny_scale()
    model = replace(
        scale.config.model,
        vocab_size=160,
        embedding_size=16,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        ffn_size=32,
        max_positions=64,
    )
    training = replace(scale.config.training, batch_size=4, log_every=5)
    config = replace(
        scale.config,
        steps=200,
        seq_len=24,
        model=model,
        training=training,
        length_warmup=LengthWarmup(steps=10, length=8),
    )
    return replace(
        scale,
        name="toy",
        config=config,
        steps=500,
        widths=(8, 16),
        discriminators=(16,),
        generators=(4, 8),
        rates=(1e-3, 2e-3),
        tasks=TASKS,
    )


def toy_study(scale: Scale) -> Study:
    """ELECTRA, BERT, one that cannot be trained, and the control."""
    broken = replace(scale.config, training=replace(scale.config.training, micro_batch_size=3))
    variants = (
        Variant("electra", "ELECTRA", scale.config, published=85.0),
        Variant("mlm", "BERT", replace(scale.config, objective="mlm"), published=82.2),
        Variant("broken", "uneven batches", broken),
        Variant("untrained", "one update", scale.config, share=0.0),
    )
    return Study("toy", "A toy study", variants, TABLE_5, budget=1e9, across=True)


SCALES["toy"] = toy_scale
STUDIES["toy"] = toy_study


def study_config(data: Path, glue: Path, out: Path, **more) -> StudyConfig:
    settings = {"seeds": 1, "hours": None, "tasks": (), "variants": (), "finetune_seeds": 1, "workers": 1, **more}
    return StudyConfig("toy", str(data), str(glue), out, "toy", **settings)


if __name__ == "__main__":
    cli.main(sys.argv[1:])
