"""Export to ONNX and prediction by ONNX Runtime; oracles: transformers' classes, onnxruntime itself, and PyTorch's predictions."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from onnx import TensorProto, helper
from support.errors import fails, raises
from support.toy_tasks import finetune_settings as settings
from support.toy_tasks import save_model, toy_tokenizer, write_conll, write_glue, write_jsonl, write_questions
from transformers import ElectraConfig

import electra
from electra import cli
from electra.errors import ModelError, UsageError
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.run import finetune
from electra.inference.onnx import comparison

QUESTION = {"question": "likes very", "context": "the owl likes milk ."}
INPUTS: dict[str, list[Any]] = {
    "sst2": ["the cat is good .", "the dog is not very likely , bad .", ""],
    "stsb": [("the cat sleeps", "a dog hunts mice"), ("the fox", "the fox")],
    "chunk": ["the cat likes milk .", "the owl fears birds ."],
    "mean": ["the cat is good .", "bad"],
    "joint": [QUESTION, {**QUESTION, "context": "the cat likes birds . " * 5}],
    "plain": [QUESTION, {**QUESTION, "context": "the cat likes birds . " * 5}],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch for each type of task, and its export to ONNX in float32."""
    root = tmp_path_factory.mktemp("runs")
    model, glue = save_model(root / "model"), write_glue(root / "glue", rows=32)
    for split, seed in (("train", 0), ("dev", 1)):
        write_conll(root / "conll" / f"{split}.txt", 20, seed)
    squad = {"train": str(write_questions(root / "t.json", 16, 0)), "dev": str(write_questions(root / "d.json", 8, 1))}
    rows = write_jsonl(root / "a.jsonl", [{"text": "the cat is good", "label": "a"}, {"text": "bad", "label": "b"}] * 8)
    for name, config in {
        "sst2": settings(model, "sst2", data=str(glue), epochs=1.0),
        "stsb": settings(model, "stsb", data=str(glue), epochs=1.0),
        "chunk": settings(model, "chunk", data=str(root / "conll"), epochs=1.0),
        "mean": settings(model, "table", train=str(rows), text="text", label="label", pooling="mean", epochs=1.0),
        "joint": settings(model, "squad1", **squad, epochs=1.0),
        "plain": settings(model, "squad1", **squad, epochs=1.0, span=SpanConfig(head="plain")),
    }.items():
        finetune(config, root / name)
        electra.export(root / name, out=root / "onnx" / name)
    return root


def flatten(value: Any) -> list[Any]:
    """List the numbers and texts of nested lists and dictionaries, keys included."""
    if isinstance(value, dict):
        return [each for key, item in value.items() for each in (key, *flatten(item))]
    return [each for item in value for each in flatten(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", INPUTS)
def test_predictions_equal_those_of_pytorch(name: str, runs: Path) -> None:
    expected = flatten(list(electra.predict(runs / name, INPUTS[name])))
    for model in (runs / "onnx" / name, runs / "onnx" / name / "model.onnx"):
        found = flatten(list(electra.load(model, runtime={"engine": "onnx"}).predict(INPUTS[name])))
        assert [type(each) for each in found] == [type(each) for each in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == (pytest.approx(theirs, abs=1e-4) if isinstance(theirs, float) else theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "outputs"),
    [
        ("ElectraModel", ["last_hidden_state"]),
        ("ElectraForPreTraining", ["logits"]),
        ("ElectraForMaskedLM", ["logits"]),
        ("ElectraForSequenceClassification", ["logits"]),
        ("ElectraForTokenClassification", ["logits"]),
        ("ElectraForQuestionAnswering", ["start_logits", "end_logits"]),
        ("BertForMaskedLM", ["logits"]),
    ],
)
def test_outputs_equal_those_of_transformers(kind: str, outputs: list[str], tmp_path: Path) -> None:
    """For batches of any size and length, with padding, by onnxruntime itself."""
    torch.manual_seed(0)
    tokenizer = toy_tokenizer()
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 48,
    }
    config = (
        transformers.BertConfig(vocab_size=tokenizer.vocab_size, **sizes)
        if kind.startswith("Bert")
        else ElectraConfig(vocab_size=tokenizer.vocab_size, embedding_size=16, num_labels=2, **sizes)
    )
    theirs = getattr(transformers, kind)(config).eval()
    theirs.save_pretrained(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    result = electra.export(tmp_path / "model", out=tmp_path / "out")
    assert result["max_difference"] < 1e-4
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out").architectures == [kind]
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / "out")) == tokenizer.vocab_size
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_outputs()] == outputs
    for size, length in ((1, 48), (3, 11)):
        ids = torch.randint(5, tokenizer.vocab_size, (size, length))
        mask = (torch.arange(length) < length - 2 * torch.arange(size)[:, None]).long()
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": (torch.arange(length) > 5).long() * mask}
        with torch.inference_mode():
            expected = theirs(**given)
        found = session.run(outputs, {name: tensor.numpy() for name, tensor in given.items()})
        for name, array in zip(outputs, found, strict=True):
            reference = expected[name].numpy()
            keep = np.ones(size, bool) if kind.endswith("SequenceClassification") else mask.numpy().astype(bool)
            np.testing.assert_allclose(array[keep], reference[keep], atol=1e-4)


def test_int8_and_the_encoder_alone(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "texts.txt").write_text("the cat is good .\nthe dog is bad .\n")
    words = f"--precision int8 --texts {tmp_path / 'texts.txt'} --out {tmp_path / 'int8'} --threads 1"
    cli.main(["export", str(runs / "sst2"), *words.split()])
    assert "2 sequences" in capsys.readouterr().out
    operators = {node.op_type for node in onnx.load(tmp_path / "int8" / "model_quantized.onnx").graph.node}
    assert "MatMulInteger" in operators
    assert not (tmp_path / "int8" / "model.onnx").exists()
    predicted = electra.predict(tmp_path / "int8", INPUTS["sst2"], runtime={"engine": "onnx"})
    assert len(list(predicted)) == 3
    electra.export(runs / "sst2", out=tmp_path / "encoder", encoder=True)
    session = onnxruntime.InferenceSession(tmp_path / "encoder" / "model.onnx", providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_outputs()] == ["last_hidden_state"]
    assert not (tmp_path / "encoder" / "task.json").exists()
    with raises(ModelError, "other-engine", "--runtime.engine onnx"):
        electra.load(runs / "onnx" / "sst2")


def test_a_file_that_differs_is_not_written(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.inference.onnx.export.TOLERANCE", 0.0)
    fails(["export", runs / "model", "--out", tmp_path / "out"], "differs", runs / "model")
    assert list(tmp_path.iterdir()) == []


def test_difference_of_another_network_is_found(runs: Path, tmp_path: Path) -> None:
    """The comparison reads the file: weights changed in it are a difference."""
    from electra.inference.onnx.session import OnnxSession
    from electra.inference.sources import load_source

    source = load_source(str(runs / "model"), encoder=False)
    electra.export(runs / "model", out=tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model.onnx")
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) * 1.01).tobytes()
    onnx.save(model, tmp_path / "out" / "model.onnx")
    examples = comparison.build_examples(source.tokenizer, 20, None, masked=False)
    found = comparison.compare(source.network, OnnxSession(tmp_path / "out" / "model.onnx"), examples, 0)
    assert found.max_excess > comparison.TOLERANCE


def edit_model(change: Callable[[onnx.ModelProto], object]) -> Callable[[Path], object]:
    def damage(file: Path) -> None:
        model = onnx.load(file)
        change(model)
        file.write_bytes(model.SerializeToString())

    return damage


def read_from_outside(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")


def rename_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "tokens"


def fix_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def other_graph(file: Path) -> None:
    """A graph with the right inputs and one output of a wrong shape."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "s"]) for name in ("input_ids", "attention_mask")
    ]
    node = helper.make_node("Cast", ["input_ids"], ["logits"], to=TensorProto.FLOAT)
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s"])
    graph = helper.make_graph([node], "g", values, [output])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), file)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "external data outside the folder": (edit_model(read_from_outside), "outside-folder"),
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-1000]), "not-onnx"),
    "text": (lambda file: file.write_text("not a model\n" * 50), "not-onnx"),
    "empty": (lambda file: file.write_bytes(b""), "not-onnx"),
    "another input": (edit_model(rename_input), "unreadable"),
    "a batch of one": (edit_model(fix_batch), "wrong-inputs"),
    "another output": (other_graph, "wrong-outputs"),
    "missing": (lambda file: file.unlink(), "missing-onnx"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_invalid_files_are_rejected(case: str, runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "onnx" / "sst2", tmp_path / "m")
    (tmp_path / "a.txt").write_text("the cat\n")
    damage, code = HOSTILE[case]
    damage(folder / "model.onnx")
    words = ["predict", "--model", folder, "--input", tmp_path / "a.txt", "--runtime.engine", "onnx"]
    fails(words, code, folder)


def test_options_that_do_not_fit(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    fails(["export", runs / "model", "--out", tmp_path / "full"], "not-empty", tmp_path / "full")
    fails(["export", runs / "model", "--out", tmp_path / "new", "--to", "x"], "unknown-choice", "onnx")
    with raises(UsageError, "conflicting-options", "bfloat16"):
        electra.load(runs / "onnx" / "sst2", runtime={"engine": "onnx", "precision": "bfloat16"})
    with raises(ModelError, "not-finetuned"):
        electra.export(runs / "model", out=tmp_path / "new")
        electra.load(tmp_path / "new", runtime={"engine": "onnx"})
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if "onnx" in name else find(name, *rest))
    with raises(UsageError, "missing-extra", "pip install 'electra[onnx]'"):
        electra.load(runs / "onnx" / "sst2", runtime={"engine": "onnx"})
    with raises(UsageError, "missing-extra", "pip install 'electra[onnx]'"):
        electra.export(runs / "model", out=tmp_path / "other")
    assert json.loads((tmp_path / "new" / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
