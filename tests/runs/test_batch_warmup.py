"""Runs whose first batches are small (`--batch-warmup`): tokens, FLOPs, micro-batches, resuming, graphs."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from support.callbacks import AtStep, CrashError, crash
from support.computing_again import ComputeAgain
from support.errors import notices
from support.toy import TINY_RUN, trace, weights

import electra
from electra.pretraining import run as run_module
from electra.train import loop

WARM = {"batch_warmup": {"steps": 6, "size": 2}}
"""Batches of 2, 2, 4, 4, 6, 6 and then 8 sequences."""
NO_DROPOUT = TINY_RUN["model"] | {"dropout": 0.0, "attention_dropout": 0.0}
LOSSES = ("loss", "generator_loss", "discriminator_loss", "gradient_norm")


def test_first_updates_read_fewer_tokens(
    finished: Path, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the warm-up, every update reads what an update of the run without one reads, three updates earlier."""
    electra.pretrain(text, out=tmp_path / "run", **TINY_RUN, **WARM)
    assert len(notices(caplog, "batch-warmup")) == 1
    warm, plain = trace(tmp_path / "run"), trace(finished)
    assert [row["tokens"] for row in warm[5:]] == [row["tokens"] for row in plain[2:9]]
    small = TINY_RUN | {"steps": 2, "training": TINY_RUN["training"] | {"batch_size": 2, "micro_batch_size": 2}}
    electra.pretrain(text, out=tmp_path / "small", **small)
    first = trace(tmp_path / "small")
    for name in ("tokens", "flops", *LOSSES):
        assert warm[0][name] == first[0][name], name
    spent = [row["flops"] for row in warm]
    assert all(later - before > 2 * first[0]["flops"] for before, later in pairwise(spent[5:]))
    assert spent[1] == first[1]["flops"]
    page = (tmp_path / "run/report.html").read_text()
    assert "<td>batch<td>8 sequences of up to 24 tokens, from 2 on in the first 6 steps" in page


@pytest.mark.slow
def test_micro_batches_do_not_change_the_run(text: Path, tmp_path: Path) -> None:
    losses = []
    for size in (8, 4, 1):
        training = TINY_RUN["training"] | {"micro_batch_size": size}
        options = TINY_RUN | WARM | {"model": NO_DROPOUT, "training": training}
        electra.pretrain(text, out=tmp_path / str(size), **options)
        losses.append([[row[name] for name in LOSSES] for row in trace(tmp_path / str(size))])
    for other in losses[1:]:
        for row, expected in zip(other, losses[0], strict=True):
            assert row == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_run_resumes_with_both_warmups(text: Path, tmp_path: Path) -> None:
    options = TINY_RUN | WARM | {"length_warmup": {"steps": 5, "length": 12}}
    electra.pretrain(text, out=tmp_path / "whole", **options)
    for step in (5, 7):
        with pytest.raises(CrashError):
            electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(step, crash)], **options)
    electra.pretrain(text, out=tmp_path / "run", **options)
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.slow
def test_graphs_record_each_size(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CudaRecorder", ComputeAgain)
    monkeypatch.setattr(run_module, "check_graphs", lambda *_: None)
    monkeypatch.setattr(run_module, "list_graph_lengths", lambda seq_len: [])
    electra.pretrain(text, out=tmp_path / "plain", **TINY_RUN, **WARM)
    graphed = TINY_RUN | {"training": TINY_RUN["training"] | {"graphs": True}}
    electra.pretrain(text, out=tmp_path / "graphs", **graphed, **WARM)
    assert trace(tmp_path / "graphs") == trace(tmp_path / "plain")


@pytest.mark.slow
def test_two_stages_share_the_warmup(text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    electra.pretrain(text, out=tmp_path / "run", **TINY_RUN, **WARM, procedure="two-stage-scratch")
    assert [re.findall(r"\d+", notice) for notice in notices(caplog, "batch-warmup")] == [["2", "3"]] * 2
    saved = yaml.safe_load((tmp_path / "run/first-stage/config.yaml").read_text())
    assert saved["batch_warmup"] == {"steps": 3, "size": 2}
