"""Multiple choice: SWAG's layout, errors in rows, training, prediction, and the class of Hugging Face."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from support.errors import fails, raises
from support.toy_tasks import TINY, save_model, toy_tokenizer, write_jsonl
from transformers import AutoTokenizer, ElectraForMultipleChoice

import electra
from electra import cli
from electra.errors import DataError
from electra.finetuning.batching import BatchLoader, EncodedExamples, iterate_by_length
from electra.finetuning.export import save_finetuned
from electra.finetuning.model import FinetunedModel
from electra.finetuning.multiple_choice.data import Question, check_choices, parse_question, read_questions
from electra.finetuning.multiple_choice.heads import MultipleChoiceHead
from electra.finetuning.multiple_choice.inference import SavedMultipleChoice, encode_questions
from electra.finetuning.multiple_choice.task import MULTIPLE_CHOICE, MultipleChoice, score_baselines
from electra.inference.config import PredictConfig
from electra.model.encoder import Encoder
from electra.model.initialization import initialize
from electra.runtime.setup import RuntimeConfig, start_runtime

ENDINGS = ["ending0", "ending1", "ending2", "ending3"]
ROW = {
    "video-id": "v",
    "startphrase": "the cat sees. it is",
    "sent1": "the cat sees.",
    "sent2": "it is",
    "gold-source": "gold",
    **dict(zip(ENDINGS, ["bad", "good", "awful", "not very good"], strict=True)),
    "label": 1,
}
FAST = {"epochs": 6, "learning_rate": 1e-2, "batch_size": 8}


def write_swag(path: Path, number: int, seed: int) -> Path:
    """Write a CSV file in SWAG's layout, in which the only ending with "good" or "fine" is right."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        animal, answer = draw.choice(["cat", "dog"]), draw.randrange(4)
        endings = [draw.choice(["bad .", "awful .", "very bad ."]) for _ in ENDINGS]
        endings[answer] = draw.choice(["good .", "fine ."])
        texts = dict(zip(ENDINGS, endings, strict=True))
        start = {"startphrase": f"the {animal} sees the owl", "sent1": f"the {animal} sees", "sent2": "the owl"}
        rows.append({"": len(rows), "video-id": "v", **start, **texts, "label": answer})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("swag")
    model = save_model(root / "model")
    return {"model": model, "train": write_swag(root / "train.csv", 64, 0), "dev": write_swag(root / "dev.csv", 40, 1)}


@pytest.mark.slow
def test_learns_and_predicts(files, tmp_path: Path, capsys) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in (files | FAST).items()]
    test = write_swag(tmp_path / "test.csv", 10, 2)
    cli.main(["finetune", "multiple-choice", *words, f"--test={test}", f"--out={tmp_path / 'out'}"])
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert results["metrics"]["dev"]["accuracy"]["median"] > 90
    assert set(results["baselines"]) == {"most frequent index", "TF-IDF, logistic regression"}
    rows = [json.loads(line) for line in (tmp_path / "out/seed-0/predictions-dev.jsonl").read_text().splitlines()]
    logits = np.load(tmp_path / "out/seed-0/logits-dev.npy")
    assert logits.shape == (40, 4)
    assert [row["choice"] for row in rows] == logits.argmax(1).tolist()
    assert len((tmp_path / "out/seed-0/predictions-test.jsonl").read_text().splitlines()) == 10
    capsys.readouterr()
    cli.main(["predict", "--model", str(tmp_path / "out"), "--input", str(files["dev"])])
    predicted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row, again in zip(rows, predicted, strict=True):
        assert (row["id"], row["choice"]) == (again["id"], again["choice"])
        np.testing.assert_allclose(row["probabilities"], again["probabilities"], atol=1e-5)
    [one] = electra.predict(tmp_path / "out", {"context": "the cat", "endings": ["bad", "bad", "fine", "awful"]})
    assert (one["id"], one["choice"], len(one["probabilities"])) == ("0", 2, 4)
    fewer = write_jsonl(tmp_path / "fewer.jsonl", [{"context": "the cat", "endings": ["bad", "fine"]}])
    fails(["predict", "--model", tmp_path / "out", "--input", fewer], "other-number", f"{fewer}:1")


@pytest.mark.parametrize("choices", [2, 3, 5])
def test_class_of_hugging_face_computes_the_same_logits(tmp_path: Path, choices: int) -> None:
    """The saved model has the logits of the head in training, in transformers and in `electra.predict`."""
    torch.manual_seed(0)
    head = MultipleChoiceHead(TINY.hidden_size, 0.1)
    torch.nn.init.normal_(head.output.bias)
    model, tokenizer = FinetunedModel(Encoder(TINY), head), toy_tokenizer()
    initialize(model.encoder, 0.15)
    endings = ["bad", "not very good .", "is awful", "likes mice", "very fine"][:choices]
    questions = [
        Question(str(i), text, tuple(endings), 0, "") for i, text in enumerate(["the cat", "a dog sees the owl ."])
    ]
    with start_runtime(RuntimeConfig("cpu", "float32")) as runtime:
        examples = encode_questions(questions, tokenizer, 32, "")
        ours = np.stack([each["logits"] for each in model.compute_outputs(examples, runtime, 8, tokenizer.pad_id)])
    save_finetuned(
        tmp_path, model, MultipleChoice({"train": questions}, tokenizer, 32, 0.1), MULTIPLE_CHOICE, tokenizer
    )
    stock = ElectraForMultipleChoice.from_pretrained(tmp_path).eval()
    contexts = [question.context for question in questions for _ in endings]
    inputs = AutoTokenizer.from_pretrained(tmp_path)(contexts, endings * 2, padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs = stock(**{name: tensor.view(2, choices, -1) for name, tensor in inputs.items()}).logits
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)
    rows = [{"context": question.context, "endings": endings} for question in questions]
    (tmp_path / "task.json").unlink()  # as a model that was fine-tuned with transformers
    predicted = np.array([row["probabilities"] for row in electra.predict(tmp_path, rows)])
    np.testing.assert_allclose(predicted, theirs.softmax(1).numpy(), rtol=1e-3, atol=1e-5)


def test_layouts(tmp_path: Path) -> None:
    swag = parse_question(ROW, None, "label", "0", "here")
    assert (swag.context, swag.endings[3], swag.answer) == ("the cat sees.", "it is not very good", 1)
    started = parse_question({k: v for k, v in ROW.items() if k != "sent2"}, None, "label", "0", "here")
    assert (started.context, started.endings[3]) == ("the cat sees. it is", "not very good")
    named = parse_question(ROW, ("gold-source", "sent2"), None, "0", "here")
    assert (named.context, named.endings[0], named.answer) == ("gold", "it is bad", None)
    listed = parse_question({"context": "a", "endings": ["b", "c"], "label": "0"}, None, "label", "7", "here")
    assert (listed.id, listed.endings, listed.answer) == ("7", ("b", "c"), 0)
    file = write_jsonl(tmp_path / "a.jsonl", [ROW, ROW])
    assert [question.id for question in read_questions(str(file), None, "label")] == ["0", "1"]


@pytest.mark.parametrize(
    ("changes", "code", "values"),
    [
        ({"ending2": ""}, "missing-ending", ("'ending2'",)),
        ({"ending3": None}, "missing-ending", ("'ending3'",)),
        ({"ending0": 3}, "wrong-type", ("'ending0'", "int")),
        ({"ending5": "more"}, "missing-ending", ("'ending4'",)),
        ({"label": 4}, "wrong-label", ("4", "0 to 3")),
        ({"label": -1}, "wrong-label", ("-1",)),
        ({"label": "1.5"}, "wrong-label", ("1.5",)),
        ({"label": True}, "wrong-label", ("True",)),
        ({"label": None}, "wrong-label", ("0 to 3",)),
        ({"sent1": None}, "wrong-type", ("'sent1'",)),
        ({"endings": "abc"}, "wrong-type", ("str",)),
        ({"endings": ["one"]}, "too-few-endings", ("1 endings",)),
        ({"endings": ["one", " "]}, "missing-ending", ("endings[1]",)),
    ],
)
def test_malformed_rows(files, tmp_path: Path, changes: dict, code: str, values: tuple[str, ...]) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", [ROW, ROW | changes])
    words = ["finetune", "multiple-choice", f"--model={files['model']}", f"--out={tmp_path / 'out'}"]
    fails([*words, f"--train={train}"], code, f"{train}:2", *values)
    assert not (tmp_path / "out").exists()


def test_missing_fields_and_other_numbers(tmp_path: Path) -> None:
    def read(rows: list[dict]) -> None:
        file = write_jsonl(tmp_path / "a.jsonl", rows)
        list(check_choices(read_questions(str(file), None, "label")))

    with raises(DataError, "missing-field", "a.jsonl:1", "'label'"):
        read([{k: v for k, v in ROW.items() if k != "label"}])
    with raises(DataError, "missing-field", "a.jsonl:1", "'context'"):
        read([{"endings": ["a", "b"], "label": 0}])
    with raises(DataError, "too-few-endings", "a.jsonl:1", "0 endings"):
        read([{"context": "a", "label": 0}])
    with raises(DataError, "other-number", "a.jsonl:2", "3 endings", "expected 4"):
        read([ROW, {k: v for k, v in ROW.items() if k != "ending3"}])


def test_choices_of_a_question_stay_together() -> None:
    """Each batch has all sequences of its questions, in their order, and every question once in an epoch."""
    lengths = np.random.default_rng(0).integers(1, 9, 30)
    ids = [[10 + row] * length for row, length in enumerate(lengths)]
    examples = EncodedExamples(ids, [1] * 30, {"label": np.arange(10)}, group_size=3)
    loader = BatchLoader(examples, batch_size=4, pad_id=0, seed=0)
    assert (len(examples), loader.steps_per_epoch) == (10, 3)
    batches = [loader.batch(step) for step in range(3)]
    found = [(batch.inputs.input_ids[:, 0] - 10).view(-1, 3) for batch in batches]
    for rows, batch in zip(found, batches, strict=True):
        assert rows.equal(3 * batch.targets["label"][:, None] + torch.arange(3))
        assert len(batch) == len(rows)
    assert sorted(torch.cat(found)[:, 0].tolist()) == list(range(0, 30, 3))
    indices = np.concatenate([indices for indices, _ in iterate_by_length(examples, 4, 0)])
    assert np.diff(lengths.reshape(-1, 3).max(1)[indices]).min() >= 0


def test_baselines() -> None:
    """The linear model finds the ending whose word is always right; the constant one has the share of its index."""
    draw = random.Random(0)
    questions = []
    for _ in range(60):
        answer = draw.randrange(2)
        endings = tuple("good" if i == answer else "bad" for i in range(2))
        questions.append(Question("", "the cat", endings, answer, ""))
    task = MultipleChoice({"train": questions, "dev": questions}, toy_tokenizer(), 32, 0.1)
    scores = score_baselines(task, "dev")
    share = 100 * max(np.bincount([question.answer for question in questions])) / 60
    assert scores["TF-IDF, logistic regression"]["accuracy"] == 100
    assert scores["most frequent index"]["accuracy"] == pytest.approx(share)


def test_saved_task_takes_columns_from_the_options() -> None:
    saved = SavedMultipleChoice("multiple-choice", 32, 2, ["question"])
    row = {"question": "a", "other": "b", "endings": ["c", "d"]}
    [mine] = saved.read_values(row, PredictConfig())
    [other] = saved.read_values(row, PredictConfig(text="other"))
    assert (mine.context, other.context) == ("a", "b")
