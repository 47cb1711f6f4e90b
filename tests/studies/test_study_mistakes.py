"""Invalid command lines: one line each, exit code 2, nothing written."""

from pathlib import Path

import pytest
from support.command_line import error

import electra

GOOD = {"--data": "TEXT", "--glue": "GLUE", "--out": "OUT", "--scale": "toy"}
MISTAKES = {
    "no such study": ("objective", {}, "NAME: expected objectives, generator-size, "),
    "no such scale": ("toy", {"--scale": "huge"}, "--scale: expected tiny, mini, small, small++, "),
    "no such variant": ("toy", {"--variants": "bert"}, "toy has no variant 'bert'; there are electra, mlm"),
    "no such task": ("toy", {"--tasks": "squad"}, "no task 'squad'; it must be one of cola, sst2"),
    "a task that GLUE's average leaves out": (
        "toy",
        {"--tasks": "wnli"},
        "no task 'wnli'; it must be one of cola, sst2",
    ),
    "no hours": ("toy", {"--hours": "0"}, "--hours is 0; it must be more than 0"),
    "no seeds": ("toy", {"--seeds": "0"}, "--seeds is 0; it must be at least 1"),
    "no workers": ("toy", {"--workers": "0"}, "--workers is 0; it must be at least 1"),
    "less than no fine-tuning": ("toy", {"--finetune-seeds": "-1"}, "--finetune-seeds is -1; it must be at least 0"),
    "no GLUE": ("toy", {"--glue": "nowhere"}, "nowhere: no SST-2/train.tsv here; it is not a folder in the layout"),
    "no text": ("toy", {"--data": "nowhere"}, "nowhere"),
    "no data at all": ("toy", {"--data": None}, "--data is missing; electra study --help explains it"),
    "no such objective": ("toy", {"--rates": "bert=1e-3"}, "--rates: toy has no objective 'bert'; it has electra, mlm"),
    "no rate": ("toy", {"--rates": "mlm"}, "--rates mlm: expected an objective and a number, as in mlm=1e-3"),
    "a rate of 0": ("toy", {"--rates": "mlm=0"}, "optimizer.learning_rate is 0.0; it must be more than 0"),
    "rates of their own search": (
        "learning-rate",
        {"--rates": "mlm=1e-3"},
        "study learning-rate searches the learning rates",
    ),
    "GLUE from the hub, which tests do not reach": ("toy", {"--glue": None}, "nyu-mll/glue"),
    "a task without files": ("toy", {"--tasks": "cola"}, "no CoLA/train.tsv here"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_invalid_options_raise_one_line(
    case: str, text: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    name, changes, message = MISTAKES[case]
    places = {"TEXT": str(text), "GLUE": str(glue), "OUT": "out"}
    given = {option: value for option, value in (GOOD | changes).items() if value is not None}
    words = [word for option, value in given.items() for word in (option, places.get(value, value))]
    assert message in error(capsys, "study", name, *words)
    assert not any(tmp_path.iterdir())


def test_directory_with_other_files_raises(
    text: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "thesis.tex").write_text("")
    words = ["--data", str(text), "--glue", str(glue), "--out", str(tmp_path), "--scale", "toy"]
    assert "not empty and not a study; choose another --out" in error(capsys, "study", "toy", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_python_function_has_the_same_options(text: Path, glue: Path, tmp_path: Path) -> None:
    plan = electra.study(
        "toy", data=str(text), glue=str(glue), out=str(tmp_path / "out"), scale="toy", variants="mlm", dry_run=True
    )
    assert [row["variant"] for row in plan["rows"]] == ["mlm"]
    with pytest.raises(electra.ElectraError, match="NAME: expected objectives, .*, got x"):
        electra.study("x", data=str(text), glue=str(glue), out=str(tmp_path / "out"))
