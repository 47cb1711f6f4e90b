"""Weights with NaN or infinity: every command that reads weights names the file and the tensor in its error."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.errors import fails, raises
from support.toy_tasks import save_model

from electra.errors import ModelError
from electra.model.checkpoints import load_pretrained
from electra.model.weights_file import check_finite

BODY = "electra.encoder.layer.0.attention.output.dense.weight"


def spoil(file: Path, name: str, value: float = math.nan) -> None:
    """Replace one value of a tensor in a file."""
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
    run: Path, text: Path, tmp_path: Path, part: str, name: str, tiny_run: dict
) -> None:
    spoil(run / part / "model.safetensors", name)
    more = [
        word
        for section, value in tiny_run.items()
        for option, each in (value.items() if isinstance(value, dict) else [("", value)])
        for word in (f"--{section}{'.' if option else ''}{option}".replace("_", "-"), str(each))
    ]
    words = ["pretrain", text, "--out", tmp_path / "out", "--init", run, *more]
    fails(words, "not-finite", f"{run / part}/model.safetensors: {name}: 1 of ")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_finetune_rejects_weights_that_are_not_finite(run: Path, tmp_path: Path, value: float) -> None:
    spoil(run / "discriminator/model.safetensors", BODY, value)
    (tmp_path / "table.csv").write_text("text,label\n" + "some words,a\nother words,b\n" * 8)
    words = ["finetune", "table", "--model", run, "--out", tmp_path / "out"]
    words += ["--train", tmp_path / "table.csv", "--text", "text", "--label", "label"]
    fails(words, "not-finite", f"{run}/discriminator/model.safetensors: {BODY}: 1 of ")


@pytest.mark.parametrize("part", ["generator", "discriminator"])
def test_fill_mask_rejects_weights_that_are_not_finite(run: Path, part: str) -> None:
    spoil(run / part / "model.safetensors", BODY)
    words = ["fill-mask", "the [MASK] sees mice .", "--model", run]
    fails(words, "not-finite", f"{run / part}/model.safetensors: {BODY}: 1 of ")


def test_predict_rejects_weights_that_are_not_finite(tmp_path: Path) -> None:
    """Weights of the encoder, and weights of a head in a separate file."""
    model = save_model(tmp_path / "model")
    (tmp_path / "line.txt").write_text("one line\n")
    span = {"head": "joint", "max_length": 20, "max_query_length": 8}
    (model / "task.json").write_text(json.dumps({"task": "squad1", "span": span}))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["ElectraModel"]}))
    words = ("predict", "--model", str(model), "--input", str(tmp_path / "line.txt"))
    save_file({"start.weight": torch.tensor([1.0, math.nan])}, model / "head.safetensors")
    fails(words, "not-finite", f"{model}/head.safetensors: start.weight: 1 of 2 ")
    spoil(model / "model.safetensors", BODY)
    fails(words, "not-finite", f"{model}/model.safetensors: {BODY}: 1 of ")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_and_pickles(tmp_path: Path, dtype: torch.dtype) -> None:
    model = save_model(tmp_path)
    weights = {name: tensor.to(dtype) for name, tensor in load_file(model / "model.safetensors").items()}
    (model / "model.safetensors").unlink()
    torch.save(weights, model / "pytorch_model.bin")
    load_pretrained(model)
    weights[BODY][0, 0] = math.nan
    torch.save(weights, model / "pytorch_model.bin")
    with raises(ModelError, "not-finite", f"pytorch_model.bin: {BODY}: 1 of "):
        load_pretrained(model)


def test_large_weights_are_finite() -> None:
    """Finite weights are accepted although their sum is infinite."""
    check_finite(Path("file"), {"a": torch.full((9,), 3e38), "b": torch.full((9,), 6e4, dtype=torch.float16)})
    with raises(ModelError, "not-finite", "file: b: 2 of 9 "):
        check_finite(Path("file"), {"a": torch.ones(9), "b": torch.tensor([3e38] * 7 + [math.inf, -math.inf])})


def test_values_that_do_not_fit_float32_are_named(tmp_path: Path) -> None:
    model = save_model(tmp_path)
    weights = {name: tensor.double() for name, tensor in load_file(model / "model.safetensors").items()}
    weights[BODY][0, 0] = 1e300
    save_file(weights, model / "model.safetensors")
    with raises(ModelError, "not-finite", f"model.safetensors: {BODY}: 1 of "):
        load_pretrained(model)
