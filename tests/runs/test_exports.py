"""Networks that a run saves on its way (`--export-at`, `--export-every`), and learning curves of them."""

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.callbacks import AtStep, CrashError, crash
from support.errors import fails, notices, raises
from support.toy import TINY_RUN, trace, weights
from transformers import ElectraForMaskedLM, ElectraForPreTraining

import electra
from electra import cli
from electra.errors import ElectraError, RunError, UsageError
from electra.pretraining.learning_curve import list_exports
from electra.train.checkpoint import TrainingState
from electra.train.schedule import Amount

AMOUNTS = ("step", "tokens", "flops", "seconds")
OPTIONS = TINY_RUN | {"export_at": ("12steps", "3steps"), "export_every": "5steps", "optimizer": {"ema": 0.7}}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A run with exports after 3, 5, 10 and 12 steps, of averaged weights."""
    out = tmp_path_factory.mktemp("exports") / "run"
    electra.pretrain(text, out=out, **OPTIONS)
    return out


def read_steps(run: Path) -> list[int]:
    return [json.loads((path / "state.json").read_text())["step"] for path in list_exports(run)]


def test_exports_of_a_run(exported: Path) -> None:
    assert read_steps(exported) == [3, 5, 10, 12]
    rows = {row["step"]: row for row in trace(exported)}
    for path in list_exports(exported):
        state = json.loads((path / "state.json").read_text())
        assert path.name == f"tokens-{state['tokens']:012.0f}"
        assert all(state[name] == rows[state["step"]][name] for name in ("tokens", "flops"))
        assert {each.name for each in path.iterdir()} == {"config.yaml", "discriminator", "generator", "state.json"}
        assert f"{state['step']:,} steps, " in (path / "discriminator/README.md").read_text()
        ElectraForPreTraining.from_pretrained(path / "discriminator")
        ElectraForMaskedLM.from_pretrained(path / "generator")
    assert not [path for path in (exported / "exports").iterdir() if path.name.startswith(".")]


def test_export_at_the_end_equals_the_final_networks(exported: Path) -> None:
    last = list_exports(exported)[-1]
    for network in ("discriminator", "generator"):
        for file in (exported / network).iterdir():
            if file.name != "README.md":  # the held-out metrics are not known on the way
                assert (last / network / file.name).read_bytes() == file.read_bytes(), file.name
    assert "Held-out" not in (last / "discriminator/README.md").read_text()
    first, second = (load_file(path / "discriminator/model.safetensors") for path in list_exports(exported)[:2])
    assert not all(torch.equal(first[name], second[name]) for name in first)


def test_exports_do_not_change_the_training(exported: Path, finished: Path) -> None:
    assert trace(exported) == trace(finished)


def test_learning_curve(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = electra.evaluate(exported, at="all")
    assert isinstance(rows, list)
    assert [row["step"] for row in rows] == [3, 5, 10, 12]
    heldout = json.loads((exported / "summary.json").read_text())["heldout"]
    assert {name: value for name, value in rows[-1].items() if name not in AMOUNTS} == heldout
    assert len({row["loss"] for row in rows}) == 4
    assert all(a[name] < b[name] for a, b in pairwise(rows) for name in AMOUNTS)
    with (exported / "exports/held_out.csv").open() as file:
        saved = list(csv.DictReader(file))
    assert [{name: float(value) for name, value in row.items()} for row in saved] == rows
    (exported / "exports/held_out.csv").unlink()
    cli.main(["evaluate", str(exported), "--at", "all", "--data", str(exported / "data")])
    shown = capsys.readouterr().out.splitlines()
    table = [line.split() for line in shown if line.split()[:1] in (["step"], ["3"], ["5"], ["10"], ["12"])]
    assert [line[0] for line in table] == ["step", "3", "5", "10", "12"]
    assert table[-1][1] == f"{rows[-1]['tokens']:,.0f}"
    assert not (exported / "exports/held_out.csv").exists(), "of other data"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"objective": "all-tokens-mlm"}, {"target.copy.weight", "target.copy.bias"}),
        ({"generator": {"training": "adversarial"}}, {"corruption.baseline.weight", "corruption.baseline.bias"}),
        ({"objective": "mlm", "optimizer": {"ema": 0.0}}, set()),
        ({"token_prediction": {"masked": 1.0}, "generator": {"tying": "all", "size": 1.0}}, set()),
        ({"token_prediction": {"filled": 1.0}, "masking": {"strategy": "rare"}}, set()),
        ({"generator": {"kind": "unigram"}, "contrast": {"weight": 1.0}}, {"target.sentence.weight", "target.sentence.bias"}),
    ],
    ids=["copy mechanism", "adversarial", "mlm", "shared", "token prediction", "unigram"],
)  # fmt: skip
def test_every_parameter_is_exported(options: dict, other: set, text: Path, tmp_path: Path) -> None:
    """The held-out metrics of an export at the end are those of the run."""
    out = tmp_path / "run"
    settings = TINY_RUN | {"steps": 4, "optimizer": {"ema": 0.7}, "export_at": "4steps"} | options
    summary = electra.pretrain(text, out=out, **settings)
    (path,) = list_exports(out)
    file = path / "other.safetensors"
    assert (set(load_file(file)) if file.exists() else set()) == other
    (row,) = electra.evaluate(out, at="all")
    assert {name: value for name, value in row.items() if name not in AMOUNTS} == summary["heldout"]


@pytest.mark.slow
def test_resumed_run_has_the_same_exports(
    exported: Path, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It continues at step 4: the export of step 5, written before the crash, is kept; the others are equal to the bit."""
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        electra.pretrain(text, out=out, callbacks=[AtStep(7, crash)], **OPTIONS)
    assert read_steps(out) == [3, 5]
    kept = list_exports(out)[1]
    (kept.parent / f".writing-{kept.name}").mkdir()  # of a kill
    before = (kept / "state.json").stat()
    caplog.clear()
    electra.pretrain(text, out=out, **OPTIONS)
    assert [f"step {step}:" in notice for step, notice in zip((10, 12), notices(caplog, "exported"), strict=True)] == [
        True
    ] * 2
    assert (kept / "state.json").stat() == before
    assert read_steps(out) == read_steps(exported)
    for ours, theirs in zip(list_exports(out), list_exports(exported), strict=True):
        assert weights(ours) == weights(theirs)


@pytest.mark.slow
def test_amounts_of_tokens_and_flops(text: Path, tmp_path: Path, finished: Path) -> None:
    """An export is made by the first update that reaches an amount; amounts may be added to a run that continues."""
    rows = trace(finished)
    tokens, flops = rows[1]["tokens"] + 1, rows[6]["flops"]
    out = tmp_path / "run"
    with pytest.raises(CrashError):
        electra.pretrain(text, out=out, export_at=f"{tokens:.0f}tokens", callbacks=[AtStep(4, crash)], **TINY_RUN)
    electra.pretrain(text, out=out, export_at=(f"{tokens:.0f}tokens", f"{flops:.0f}FLOPs"), **TINY_RUN)
    assert read_steps(out) == [3, 7]
    electra.pretrain(text, out=tmp_path / "every", export_every=f"{(tokens - 1) / 1e3:g}ktokens", **TINY_RUN)
    steps = [row["step"] for a, row in pairwise(rows) if a["tokens"] // (tokens - 1) < row["tokens"] // (tokens - 1)]
    assert read_steps(tmp_path / "every") == steps
    assert len(steps) > 2


@pytest.mark.slow
def test_minimal_pairs_of_exports(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.jsonl"
    pairs = [("the cat sees mice .", "cat the mice sees ."), ("the owl likes milk .", "owl milk the likes .")]
    file.write_text("".join(json.dumps({"sentence_good": good, "sentence_bad": bad}) + "\n" for good, bad in pairs))
    results = electra.minimal_pairs(exported, file, at="all", out=tmp_path / "out")
    end = electra.minimal_pairs(exported, file)
    assert [row["step"] for row in results["exports"]] == [3, 5, 10, 12]
    methods = {name: each["overall"] for name, each in end["methods"].items()}
    assert set(methods) == {"discriminator", "masked-lm", "both"}
    assert {name: results["exports"][-1][name] for name in methods} == methods
    with (tmp_path / "out/learning_curve.csv").open() as table:
        assert [int(row["step"]) for row in csv.DictReader(table)] == [3, 5, 10, 12]
    cli.main(["minimal-pairs", str(exported), str(file), "--at", "all"])
    assert "tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["", "5", "5 steps", "-1steps", "0tokens", "1e400flops", "5hours", "Mtokens", "1ksteps5"]
)
def test_other_amounts_are_rejected(text: str) -> None:
    with raises(UsageError, "wrong-amount", "--export-at", "500steps"):
        Amount.parse("--export-at", text)


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("500steps", 500.0, "steps"),
        ("1.5Mtokens", 1.5e6, "tokens"),
        ("2BTOKENS", 2e9, "tokens"),
        ("1e13flops", 1e13, "flops"),
        ("3kSteps", 3e3, "steps"),
        ("1Tflops", 1e12, "flops"),
    ],
)
def test_amounts(text: str, number: float, unit: str) -> None:
    amount = Amount.parse("--export-at", text)
    assert amount == Amount(number, unit)
    reached = TrainingState(step=5 * int(number)) if unit == "steps" else TrainingState(**{unit: 5 * number})
    assert amount.count(reached) == 5.0


def test_mistakes_of_users(finished: Path, tmp_path: Path) -> None:
    with raises(RunError, "no-exports", finished, "--export-at"):
        electra.evaluate(finished, at="all")
    words = ["pretrain", "text", "--preset", "tiny", "--out", str(tmp_path / "out")]
    fails([*words, "--export-every", "5"], "wrong-amount", "--export-every", "got 5")
    for option in ("at", "every"):
        two_stages = ["--procedure", "two-stage-scratch", f"--export-{option}", "5steps"]
        fails([*words, *two_stages], "conflicting-options", f"--export-{option}", "--procedure two-stage-scratch")


@pytest.mark.slow
def test_damaged_exports_are_reported(exported: Path, tmp_path: Path) -> None:
    for name, content in (("state.json", b"{}"), ("generator/model.safetensors", b"")):
        run = tmp_path / name.partition("/")[0]
        shutil.copytree(exported, run)
        (list_exports(run)[0] / name).write_bytes(content)
        with pytest.raises(ElectraError) as raised:
            electra.evaluate(run, at="all")
        assert name in str(raised.value)


@pytest.mark.slow
def test_amounts_that_are_not_reached_are_named(
    text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    electra.pretrain(text, out=tmp_path / "run", **tiny_run, export_at=("2steps", "1Btokens"))
    (warning,) = (record for record in caplog.records if getattr(record, "code", "") == "export-not-reached")
    assert "1Btokens" in warning.getMessage()
    assert "2steps" not in warning.getMessage()
