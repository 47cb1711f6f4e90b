"""A new objective from outside the package: a corruption, a target and an entry in each registry; mistakes in it raise."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.errors import raises
from support.tiny_models import ENCODER, PAD, batch, model
from support.toy import TINY_RUN, sentences

import electra
from electra.data.batch import Batch
from electra.errors import ModelError, UsageError
from electra.model.checkpoints import find_pretraining_heads, save_pretrained
from electra.model.flops import Cost, discriminator_parts
from electra.presets import tiny
from electra.pretraining.objectives.catalog import ELECTRA_METRICS, OBJECTIVES
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, Corruption, compute_ratio
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, write_tokens
from electra.pretraining.objectives.metrics import LossTerm, Metric, describe_loss
from electra.pretraining.objectives.networks import Discriminator
from electra.pretraining.objectives.spec import (
    CORRUPTIONS,
    SCORED_AT,
    TARGETS,
    CorruptionKind,
    Objective,
    ObjectiveSpec,
    TargetKind,
)
from electra.pretraining.objectives.targets.replaced_tokens import (
    ContrastConfig,
    ReplacedTokenDetection,
    TokenPredictionConfig,
)
from electra.pretraining.objectives.targets.target import Prediction, Target
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.stages.initial_model import describe_directory
from electra.pretraining.stages.initial_sizes import find_main_directory
from electra.pretraining.stages.warm_start import find_head
from electra.train.metrics_log import read_metrics


class RepeatPrevious(Corruption):
    """The masked positions repeat the token before them."""

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        previous = batch.input_ids.gather(1, (masked.positions - 1).clamp(min=0))
        ids = write_tokens(batch.input_ids, masked.positions, previous, masked.used)
        return CorruptedBatch(ids, None, {"repeated": masked.used.sum()})

    def metrics(self, sums: dict) -> dict[str, float]:
        return {"repeated": compute_ratio(sums["repeated"], sums["masked"])}


class RepetitionDetection(Target):
    """Predict whether a token repeats the previous one, and with a second loss how many of a sequence do."""

    head = "replaced-token"
    network: Discriminator
    loss_name = "repetition_loss"

    def __init__(self, network: Discriminator) -> None:
        super().__init__()
        self.network = network
        self.loss_terms = {"count_loss": LossTerm("sequences", 0.5)}

    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        assert at is None
        logits = self.network(corrupted.input_ids, batch.token_type_ids, batch.attention_mask).float()
        real = torch.arange(logits.shape[1]) < batch.lengths[:, None]
        labels = (corrupted.input_ids != batch.input_ids) & real
        loss = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none") * real
        count = (logits.sigmoid() * real).sum(1) - labels.sum(1)
        correct = (((logits > 0) == labels) & real).sum()
        return Prediction(None, {self.loss_name: loss, "count_loss": count.abs()}, {"repetition_correct": correct})

    def metrics(self, sums: dict, scored: torch.Tensor) -> dict[str, float]:
        return {"repetition_accuracy": compute_ratio(sums["repetition_correct"], scored)}

    def cost(self, length: int, predictions: int) -> Cost:
        return Cost(discriminator_parts(self.network.config, length))


METRICS = {
    "repetition_loss": describe_loss("repetition: cross-entropy per token", "repetition"),
    "count_loss": describe_loss("repetition: error of the count", "count"),
    "repetition_accuracy": Metric("repetition: accuracy over all tokens", "tokens"),
    "repeated": Metric("repetition: share of the masked positions", "masked"),
}


def register(
    monkeypatch: pytest.MonkeyPatch,
    metrics: Mapping[str, Metric] = METRICS,
    target: type[RepetitionDetection] = RepetitionDetection,
) -> None:
    """Register the objective "repetition"."""
    monkeypatch.setitem(CORRUPTIONS, "repeat", CorruptionKind(lambda spec, main: RepeatPrevious()))
    monkeypatch.setitem(TARGETS, "repetition", TargetKind(target, lambda spec: target(Discriminator(spec.main))))
    row = Objective("repeat", "repetition", "tokens", 3.0, "detection of repeated tokens", metrics)
    monkeypatch.setitem(OBJECTIVES, "repetition", row)


@pytest.mark.parametrize("loss", ["repetition_loss", "count_loss"])
def test_loss_that_is_not_listed_raises(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report would not have it; the model cannot be built."""
    register(monkeypatch, {name: metric for name, metric in METRICS.items() if name != loss})
    with pytest.raises(ValueError, match=loss):
        model("repetition")


@pytest.mark.parametrize("metric", ["repetition_accuracy", "repeated"])
def test_metric_that_is_not_listed_raises(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the target or of the corruption, when metrics are computed."""
    register(monkeypatch, {name: each for name, each in METRICS.items() if name != metric})
    network = model("repetition")
    sums = network.run(batch()).sums
    with pytest.raises(ValueError, match=metric):
        network.metrics(sums)


def test_losses_of_the_same_name_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(RepetitionDetection):
        loss_name = "count_loss"

    register(monkeypatch, target=Twice)
    with pytest.raises(ValueError, match="count_loss"):
        model("repetition")


@pytest.mark.parametrize("name", ["repeated", "masked", "count_loss"])
def test_sums_of_the_same_name_raise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of the target with the name of the corruption's sum, of a count, or of a loss."""

    class Overwriting(RepetitionDetection):
        def forward(self, *inputs: Any) -> Prediction:
            prediction = super().forward(*inputs)
            return prediction._replace(sums={**prediction.sums, name: torch.tensor(1.0)})

    register(monkeypatch, target=Overwriting)
    with pytest.raises(ValueError, match=name):
        model("repetition").run(batch())


def test_metrics_of_the_same_name_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overwriting(RepetitionDetection):
        def metrics(self, sums: dict, scored: torch.Tensor) -> dict[str, float]:
            return {"repeated": 0.0}

    register(monkeypatch, target=Overwriting)
    network = model("repetition")
    sums = network.run(batch()).sums
    with pytest.raises(ValueError, match="repeated"):
        network.metrics(sums)


@pytest.mark.slow
def test_objective_from_outside_the_package_is_trained_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch)
    (tmp_path / "text.txt").write_text(sentences(150))
    runtime = {"device": "cpu", "threads": 1, "kernels": False}
    given = {**TINY_RUN, "steps": 20, "objective": "repetition", "runtime": runtime}
    summary = electra.pretrain(str(tmp_path / "text.txt"), out=str(tmp_path / "run"), **given)
    rows = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert rows[-1]["step"] == 20
    for each in (*rows, summary["heldout"]):
        assert each["repeated"] == 1.0
        assert each["loss"] == pytest.approx(3 * each["repetition_loss"] + 0.5 * each["count_loss"])
    assert rows[-1]["loss"] < rows[0]["loss"]
    report = (tmp_path / "run/report.html").read_text()
    assert rows[-1]["weighted_loss"] == pytest.approx(3 * rows[-1]["repetition_loss"])
    listed = [*METRICS.values(), OBJECTIVES["repetition"].all_metrics["weighted_loss"]]
    assert all(metric.description in report for metric in listed)
    assert (tmp_path / "run/pictures/training.png").exists()
    assert (tmp_path / "run/discriminator").is_dir(), "the target has a discriminator's head"
    more = {**given, "init": str(tmp_path / "run"), "steps": 2}
    assert electra.pretrain(str(tmp_path / "text.txt"), out=str(tmp_path / "more"), **more)["step"] == 2


def test_hard_masking_needs_losses_at_the_masked_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    with raises(UsageError, "conflicting-options", "masking.strategy hard", "--objective repetition"):
        electra.pretrain("builtin", out=tmp_path / "run", objective="repetition", **{"masking.strategy": "hard"})


@pytest.mark.slow
def test_positions_from_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORED_AT, "same", lambda masked, sample_others: masked)
    monkeypatch.setitem(OBJECTIVES, "mlm-same", replace(OBJECTIVES["mlm"], scored="same"))
    (tmp_path / "text.txt").write_text(sentences(150))
    summaries = [
        electra.pretrain(tmp_path / "text.txt", out=tmp_path / name, **TINY_RUN, objective=name)
        for name in ("mlm", "mlm-same")
    ]
    assert summaries[0]["heldout"] == summaries[1]["heldout"]


class RenamedDetection(ReplacedTokenDetection):
    """Replaced token detection with another name of its loss."""

    loss_name = "detection_loss"


@pytest.mark.slow
def test_subclass_of_replaced_token_detection_is_trained_reported_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its held-out metrics, findings and figures are those of a discriminator, under any key and name of its loss."""

    def build(spec: ObjectiveSpec) -> RenamedDetection:
        return RenamedDetection(Discriminator(spec.main), spec.vocabulary.mask_id, spec.contrast, spec.token_prediction)

    monkeypatch.setitem(TARGETS, "renamed", TargetKind(RenamedDetection, build))
    metrics = {**ELECTRA_METRICS, "detection_loss": describe_loss("detection: cross-entropy per token")}
    row = Objective("generator", "renamed", "tokens", 50.0, "detection of replaced tokens", metrics)
    monkeypatch.setitem(OBJECTIVES, "renamed", row)
    (tmp_path / "text.txt").write_text(sentences(150))
    given = {**TINY_RUN, "steps": 4, "contrast": {"weight": 1.0}, "token_prediction": {"masked": 1.0}}
    ours, theirs = (
        electra.pretrain(tmp_path / "text.txt", out=tmp_path / name, objective=name, **given)
        for name in ("renamed", "electra")
    )
    assert ours["heldout"].pop("detection_loss") == theirs["heldout"].pop("discriminator_loss")
    assert ours["heldout"] == theirs["heldout"]
    assert "frequency_auc" in ours["heldout"]
    assert ours["findings"] == theirs["findings"]
    for name in ("pictures/detection.png", "pictures/sentences.png", "generator/config.json"):
        assert (tmp_path / "renamed" / name).exists()
    directory = tmp_path / "renamed/discriminator"
    assert find_pretraining_heads(directory) == {"replaced-token", "masked-lm"}


@pytest.mark.slow
def test_target_with_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Renamed(RepetitionDetection):
        directory = "repetition_detector"

    register(monkeypatch, target=Renamed)
    (tmp_path / "text.txt").write_text(sentences(150))
    given = {**TINY_RUN, "steps": 2, "objective": "repetition"}
    electra.pretrain(tmp_path / "text.txt", out=tmp_path / "run", **given)
    assert RunDirectory(tmp_path / "run").list_networks() == [tmp_path / "run/repetition_detector"]
    assert find_main_directory(tmp_path / "run").name == "repetition_detector"
    electra.pretrain(tmp_path / "text.txt", out=tmp_path / "more", init=tmp_path / "run", **given)


def test_initial_model_with_another_kind_of_head_is_refused(tmp_path: Path) -> None:
    save_pretrained(tmp_path, model().target.network.state_dict(), ENCODER, "replaced-token", PAD)
    network = describe_directory(tmp_path)
    find_head(network, "replaced-token")
    for other in ("token-classification", "head-of-another-architecture"):
        with raises(ModelError, "other-head", tmp_path, "replaced-token", other):
            find_head(network, other)


def test_options_that_a_target_does_not_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    for options in ({"contrast.weight": 1.0}, {"token_prediction.masked": 1.0}, {"copy": True}):
        with raises(UsageError, "conflicting-options", *(name.partition(".")[0] for name in options)):
            electra.pretrain("builtin", out=tmp_path / "run", objective="repetition", **options)
    monkeypatch.setattr(RepetitionDetection, "uses", frozenset({"contrast", "token_prediction", "copy"}))
    read = {"contrast": ContrastConfig(weight=1.0), "token_prediction": TokenPredictionConfig(masked=1.0)}
    assert replace(tiny(), objective="repetition", copy=True, **read).copy
