"""Weights with NaN or infinity, in every place where a command reads weights: one line with the file and the tensor."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.command_line import error
from support.toy_tasks import save_model

from electra.errors import ModelError
from electra.model.checkpoints import check_finite, load_pretrained

BODY = "electra.encoder.layer.0.attention.output.dense.weight"


def spoil(file: Path, name: str, value: float = math.nan) -> None:
    """Put one such value into a tensor of a file."""
    weights = load_file(file)
    weights[name].view(-1)[-1] = value
    save_file(weights, file, {"format": "pt"})


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return shutil.copytree(finished, tmp_path / "finished")


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("discriminator", BODY),
        ("discriminator", "discriminator_predictions.dense.bias"),
        ("generator", "generator_lm_head.bias"),
    ],
)
def test_init_rejects_weights_that_are_not_finite(
    run: Path, text: Path, tmp_path: Path, part: str, name: str, tiny_run: dict, capsys
) -> None:
    spoil(run / part / "model.safetensors", name)
    more = [
        word
        for section, value in tiny_run.items()
        for option, each in (value.items() if isinstance(value, dict) else [("", value)])
        for word in (f"--{section}{'.' if option else ''}{option}".replace("_", "-"), str(each))
    ]
    out = tmp_path / "out"
    line = error(capsys, "pretrain", str(text), "--out", str(out), "--init", str(run), *more)
    assert f"{part}/model.safetensors: {name}: 1 of " in line
    assert "values are NaN or infinite, expected finite numbers" in line


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_finetune(run: Path, tmp_path: Path, value: float, capsys) -> None:
    spoil(run / "discriminator/model.safetensors", BODY, value)
    (tmp_path / "table.csv").write_text("text,label\n" + "some words,a\nother words,b\n" * 8)
    words = ("--train", str(tmp_path / "table.csv"), "--text", "text", "--label", "label")
    line = error(capsys, "finetune", "table", "--model", str(run), "--out", str(tmp_path / "out"), *words)
    assert f"discriminator/model.safetensors: {BODY}: 1 of " in line


@pytest.mark.parametrize("part", ["generator", "discriminator"])
def test_fill_mask(run: Path, part: str, capsys) -> None:
    spoil(run / part / "model.safetensors", BODY)
    line = error(capsys, "fill-mask", "the [MASK] sees mice .", "--model", str(run))
    assert f"{part}/model.safetensors: {BODY}: 1 of " in line


def test_predict(tmp_path: Path, capsys) -> None:
    """Weights of the encoder, and of a head in a file of its own."""
    model = save_model(tmp_path / "model")
    (tmp_path / "line.txt").write_text("one line\n")
    span = {"head": "joint", "max_length": 20, "max_query_length": 8}
    (model / "task.json").write_text(json.dumps({"task": "squad1", "span": span}))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["ElectraModel"]}))
    words = ("predict", "--model", str(model), "--input", str(tmp_path / "line.txt"))
    save_file({"start.weight": torch.tensor([1.0, math.nan])}, model / "head.safetensors")
    line = error(capsys, *words)
    assert "head.safetensors: start.weight: 1 of 2 values are NaN or infinite" in line
    spoil(model / "model.safetensors", BODY)
    assert f"model.safetensors: {BODY}: 1 of " in error(capsys, *words)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_and_pickles(tmp_path: Path, dtype: torch.dtype) -> None:
    model = save_model(tmp_path)
    weights = {name: tensor.to(dtype) for name, tensor in load_file(model / "model.safetensors").items()}
    (model / "model.safetensors").unlink()
    torch.save(weights, model / "pytorch_model.bin")
    load_pretrained(model)
    weights[BODY][0, 0] = math.nan
    torch.save(weights, model / "pytorch_model.bin")
    with pytest.raises(ModelError, match=f"pytorch_model.bin: {BODY}: 1 of"):
        load_pretrained(model)


def test_large_weights_are_finite() -> None:
    """Though their sum is not."""
    check_finite(Path("file"), {"a": torch.full((9,), 3e38), "b": torch.full((9,), 6e4, dtype=torch.float16)})
    with pytest.raises(ModelError, match="file: b: 2 of 9 values"):
        check_finite(Path("file"), {"a": torch.ones(9), "b": torch.tensor([3e38] * 7 + [math.inf, -math.inf])})


def test_values_that_do_not_fit_float32_are_named(tmp_path: Path) -> None:
    model = save_model(tmp_path)
    weights = {name: tensor.double() for name, tensor in load_file(model / "model.safetensors").items()}
    weights[BODY][0, 0] = 1e300
    save_file(weights, model / "model.safetensors")
    with pytest.raises(ModelError, match=BODY):
        load_pretrained(model)
