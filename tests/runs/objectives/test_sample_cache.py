"""Samples of a frozen generator that are drawn before training: equal to those drawn in it, reused, and checked."""

from pathlib import Path

import pyarrow as pa
import pytest
from support.callbacks import AtStep, CrashError, crash
from support.errors import raises
from support.toy import trace, weights

import electra
from electra.errors import DataError, UsageError
from electra.pretraining.stages import sample_cache

FROZEN = {
    "generator.training": "frozen",
    "generator.tying": "none",
    "model.dropout": 0.0,  # samples drawn before training have none
    "model.attention_dropout": 0.0,
}
VARIANTS: dict[str, dict] = {
    "plain": {},
    "changing values": {"generator.final_temperature": 2.0, "masking.final_fraction": 0.3},
    "pieces, growing batches of whole words": {
        "length_warmup.steps": 4,
        "length_warmup.length": 10,
        "batch_warmup.steps": 6,
        "batch_warmup.size": 4,
        "masking.strategy": "word",
    },
    "some by frequency, predicting them": {"generator.frequency_share": 0.5, "token_prediction.filled": 1.0},
}


@pytest.fixture
def train(text: Path, tiny_run: dict, tmp_path: Path):
    """Train a toy run with options, given with dots."""

    def call(name: str, **options) -> Path:
        electra.pretrain(str(text), out=str(tmp_path / name), **tiny_run | options)
        return tmp_path / name

    return call


def drop_generator_metrics(rows: list[dict]) -> list[dict]:
    """The metrics that need the generator's probabilities are not computed from samples alone."""
    return [{name: value for name, value in row.items() if not name.startswith("generator_")} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_samples_drawn_before_training_equal_those_drawn_in_it(variant: str, train, tmp_path: Path) -> None:
    options = FROZEN | VARIANTS[variant]
    cache = tmp_path / "cache" / "samples.arrow"
    live, cached = train("live", **options), train("cached", **options, **{"generator.samples": str(cache)})
    assert drop_generator_metrics(trace(live)) == drop_generator_metrics(trace(cached))
    assert weights(live) == weights(cached)
    assert list(cache.parent.iterdir()) == [cache]


@pytest.mark.slow
def test_a_second_run_reads_the_file_and_an_interrupted_one_resumes(train, tmp_path: Path, monkeypatch) -> None:
    options = FROZEN | {"generator.samples": str(tmp_path / "samples.arrow")}
    first = train("first", **options)
    monkeypatch.setattr(sample_cache, "draw_samples", lambda *args: pytest.fail("drawn again"))
    second = train("second", **options, **{"optimizer.learning_rate": 1e-4, "loss_weight": 10.0})
    assert [row["sampled_accuracy"] for row in trace(first)] == [row["sampled_accuracy"] for row in trace(second)]
    with pytest.raises(CrashError):
        train("resumed", **options, callbacks=[AtStep(6, crash)])
    assert trace(train("resumed", **options)) == trace(first)


@pytest.mark.slow
def test_samples_of_another_run_are_refused(train, tmp_path: Path) -> None:
    options = FROZEN | {"generator.samples": str(tmp_path / "samples.arrow")}
    train("first", **options)
    before = (tmp_path / "samples.arrow").read_bytes()
    changes = {"seed": 1, "steps": 11, "masking.fraction": 0.2, "generator.temperature": 2.0, "training.batch_size": 4}
    for name, value in changes.items():
        with raises(DataError, "other-samples", f"{tmp_path}/samples.arrow"):
            train(f"other-{name}", **options | {name: value})
    assert (tmp_path / "samples.arrow").read_bytes() == before


@pytest.mark.slow
def test_damaged_files_are_refused(train, tmp_path: Path) -> None:
    path = tmp_path / "samples.arrow"
    options = FROZEN | {"generator.samples": str(path)}
    train("first", **options)
    intact = path.read_bytes()
    with pa.ipc.open_file(path) as reader:
        records, schema = [reader.get_batch(step) for step in range(reader.num_record_batches)], reader.schema
    foreign = pa.record_batch({"key": pa.array([1]), "tokens": pa.array([[2]], pa.list_(pa.uint16()))}, schema=schema)
    outside = pa.record_batch([records[0]["key"], pa.array([[9999]] * 8, pa.list_(pa.uint16()))], schema=schema)
    for damage in (b"", b"no arrow", intact[: len(intact) // 2]):
        path.write_bytes(damage)
        with raises(DataError, "damaged", str(path)):
            train("damaged", **options)
    for code, record in (("other-samples", foreign), ("damaged", outside)):
        with pa.ipc.new_file(path, schema) as writer:
            for each in (record, *records[1:]):
                writer.write_batch(each)
        with raises(DataError, code, str(path)):
            train("damaged", **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "--generator.training frozen"),
        (FROZEN | {"steps": None, "hours": 1.0}, "--steps"),
        (FROZEN | {"masking.strategy": "hard"}, "masking.strategy hard"),
        (FROZEN | {"objective": "electric"}, "--objective electric"),
    ],
)
def test_runs_that_cannot_have_samples_are_refused(options: dict, named: str, train, tmp_path: Path) -> None:
    with raises(UsageError, "conflicting-options", named):
        train("refused", **options | {"generator.samples": str(tmp_path / "samples.arrow")})
