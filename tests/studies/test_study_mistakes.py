"""Invalid options of `electra study` raise an error and write nothing."""

from pathlib import Path

import pytest
from support.errors import fails, raises

import electra
from electra.errors import UsageError

GOOD = {"--data": "TEXT", "--glue": "GLUE", "--out": "OUT", "--scale": "toy"}
MISTAKES: dict[str, tuple[str, dict[str, str | None], tuple[str, ...]]] = {
    "unknown study": ("objective", {}, ("unknown-choice", "NAME", "objective", "generator-size")),
    "unknown scale": ("toy", {"--scale": "huge"}, ("unknown-choice", "--scale", "huge", "small++")),
    "unknown variant": ("toy", {"--variants": "bert"}, ("unknown-variant", "toy", "'bert'", "electra, mlm")),
    "unknown task": ("toy", {"--tasks": "squad"}, ("unknown-task", "--tasks", "'squad'", "cola, sst2")),
    "task not in the GLUE average": ("toy", {"--tasks": "wnli"}, ("unknown-task", "--tasks", "'wnli'", "cola, sst2")),
    "hours 0": ("toy", {"--hours": "0"}, ("out-of-range", "--hours is 0")),
    "share 0": ("toy", {"--share": "0"}, ("out-of-range", "--share is 0")),
    "share and hours": ("toy", {"--share": "2", "--hours": "1"}, ("conflicting-options", "--hours", "--share")),
    "seeds 0": ("toy", {"--seeds": "0"}, ("out-of-range", "--seeds is 0", "1")),
    "workers 0": ("toy", {"--workers": "0"}, ("out-of-range", "--workers is 0", "1")),
    "fine-tuning seeds -1": ("toy", {"--finetune-seeds": "-1"}, ("out-of-range", "--finetune-seeds is -1", "0")),
    "missing GLUE folder": ("toy", {"--glue": "nowhere"}, ("missing", "nowhere", "SST-2/train.tsv", "--glue")),
    "missing text": ("toy", {"--data": "nowhere"}, ("missing", "nowhere")),
    "no --data": ("toy", {"--data": None}, ("missing-option", "--data", "electra study --help")),
    "unknown objective": ("toy", {"--rates": "bert=1e-3"}, ("unknown-objective", "--rates", "toy", "'bert'", "electra, mlm")),
    "not a rate": ("toy", {"--rates": "mlm"}, ("bad-rate", "--rates mlm", "mlm=1e-3")),
    "rate 0": ("toy", {"--rates": "mlm=0"}, ("out-of-range", "--optimizer.learning-rate", "0.0")),
    "rates in a search of rates": ("learning-rate", {"--rates": "mlm=1e-3"}, ("meaningless-option", "--rates", "learning-rate")),
    "hub without network": ("toy", {"--glue": None}, ("unreadable", "nyu-mll/glue", "--glue")),
    "missing task": ("toy", {"--tasks": "cola"}, ("missing", "CoLA/train.tsv", "--tasks")),
}  # fmt: skip
"""Study, changes of `GOOD`, code and values of the error."""


@pytest.mark.parametrize("case", MISTAKES)
def test_invalid_options_raise(
    case: str, text: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, changes, expected = MISTAKES[case]
    places = {"TEXT": str(text), "GLUE": str(glue), "OUT": "out"}
    given = {option: value for option, value in (GOOD | changes).items() if value is not None}
    words = [word for option, value in given.items() for word in (option, places.get(value, value))]
    fails(["study", name, *words], *expected)
    assert not any(tmp_path.iterdir())


def test_directory_with_other_files_raises(text: Path, glue: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    words = ["--data", str(text), "--glue", str(glue), "--out", str(tmp_path), "--scale", "toy"]
    fails(["study", "toy", *words], "not-study", tmp_path, "--out")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_share_multiplies_the_budget(text: Path, glue: Path, tmp_path: Path) -> None:
    def plan(**more) -> dict:
        where = {"data": str(text), "glue": str(glue), "out": str(tmp_path / "out"), "scale": "toy"}
        return electra.study("toy", **where, variants="mlm", dry_run=True, **more)

    whole, quarter = plan(), plan(share=0.25)
    assert quarter["budget"] == 0.25 * whole["budget"]
    assert quarter["rows"][0]["flops"] == pytest.approx(0.25 * whole["rows"][0]["flops"])


def test_python_function_has_the_same_options(text: Path, glue: Path, tmp_path: Path) -> None:
    plan = electra.study(
        "toy", data=str(text), glue=str(glue), out=str(tmp_path / "out"), scale="toy", variants="mlm", dry_run=True
    )
    assert [row["variant"] for row in plan["rows"]] == ["mlm"]
    with raises(UsageError, "unknown-choice", "NAME", "objectives", "got x"):
        electra.study("x", data=str(text), glue=str(glue), out=str(tmp_path / "out"))
