"""A new kind of task from outside the package: multiple choice, added to the table of tasks and nowhere else."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.toy_tasks import save_model, write_jsonl
from torch import Tensor, nn

import electra
from electra.errors import ModelError, UsageError
from electra.finetuning.batching import EncodedExamples, LabeledBatch
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.inputs import iterate_values, read_records
from electra.finetuning.recipe import TaskRecipe
from electra.finetuning.registry import TASK_OPTIONS, TASKS
from electra.finetuning.splits import get_split_files
from electra.finetuning.task import Outputs, Prediction, PredictOptions, SavedTask, TaskSpec, Values
from electra.inference.config import PredictConfig
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

STEPS = 20


@dataclass(frozen=True)
class Choice:
    """A question with its possible answers."""

    id: str
    question: str
    choices: list[str]
    answer: int | None


def parse_choice(id: str, record: Mapping[str, Any]) -> Choice:
    return Choice(id, record["question"], record["choices"], record.get("answer"))


def encode(examples: list[Choice], tokenizer: Tokenizer, max_length: int) -> EncodedExamples:
    """Every choice as `[CLS] question [SEP] choice [SEP]`; the target is whether it is the answer."""
    input_ids, segment_a, targets = [], [], []
    for each in examples:
        for number, choice in enumerate(each.choices):
            question, answer = tokenizer.encode_lines([each.question, choice])
            ids = [tokenizer.cls_id, *question, tokenizer.sep_id, *answer, tokenizer.sep_id]
            input_ids.append(ids[:max_length])
            segment_a.append(len(question) + 2)
            targets.append(float(number == each.answer))
    return EncodedExamples(input_ids, segment_a, {"right": np.array(targets, np.float32)})


def choose(examples: list[Choice], outputs: Outputs) -> list[int]:
    """The choice with the highest logit of each question."""
    logits = iter(float(output["logit"]) for output in outputs)
    return [int(np.argmax([next(logits) for _ in each.choices])) for each in examples]


class ChoiceHead(nn.Module):
    """A logit for each choice, from [CLS]."""

    only_cls = True

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, 1)

    def loss(self, hidden: Tensor, batch: LabeledBatch) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            self.predict(hidden, batch)["logit"], batch.targets["right"], reduction="none"
        )

    def predict(self, hidden: Tensor, batch: LabeledBatch) -> dict[str, Tensor]:
        return {"logit": self.output(hidden[:, 0]).squeeze(-1)}


@dataclass(frozen=True)
class SavedChoice:
    """What `task.json` has, and what predicting does with it."""

    task: str
    max_length: int

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        return ChoiceHead(encoder.hidden_size)

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Choice]:
        for number, (_, record) in enumerate(read_records(file, "a JSON object in each")):
            yield parse_choice(str(number), record)

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Choice]:
        for _, id, value in iterate_values(values):
            yield parse_choice(id, value)

    def predict(
        self,
        examples: list[Choice],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        chosen = choose(examples, compute(encode(examples, tokenizer, self.max_length)))
        return [{"id": each.id, "choice": number} for each, number in zip(examples, chosen, strict=True)]


class MultipleChoice:
    """The task over the files of --train and --dev."""

    name = "choice"
    main_metric = "accuracy"
    scored_splits = ("dev",)
    predicted_splits = ()

    def __init__(self, config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.splits = {
            split: list(SavedChoice(self.name, max_length).read_file(str(path), PredictConfig()))
            for split, path in get_split_files(config).items()
        }

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        return ChoiceHead(encoder.hidden_size)

    def encode(self, split: str) -> EncodedExamples:
        return encode(self.splits[split], self.tokenizer, self.max_length)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        chosen = choose(self.splits[split], outputs)
        right = [each.answer == number for each, number in zip(self.splits[split], chosen, strict=True)]
        return {"accuracy": 100 * sum(right) / len(right)}

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        chosen = choose(self.splits[split], outputs)
        return [{"id": each.id, "choice": n} for each, n in zip(self.splits[split], chosen, strict=True)]

    def get_logits(self, split: str, outputs: Outputs) -> None:
        return None

    def get_settings(self) -> Mapping[str, Any]:
        return asdict(SavedChoice(self.name, self.max_length))


CHOICE = TaskSpec(build=MultipleChoice, recipe=TaskRecipe(max_length=32), saved=SavedChoice)


def write_choices(path: Path, number: int, seed: int) -> Path:
    """Questions of which adjective is kind."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        choices = [draw.choice(["bad", "awful"]), draw.choice(["good", "fine"])]
        draw.shuffle(choices)
        answer = next(i for i, choice in enumerate(choices) if choice in ("good", "fine"))
        rows.append({"question": f"the {draw.choice(['cat', 'dog'])} is", "choices": choices, "answer": answer})
    return write_jsonl(path, rows)


def test_new_kind_of_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "choice", CHOICE)
    model = save_model(tmp_path / "model")
    files = {
        "train": write_choices(tmp_path / "train.jsonl", 40, 0),
        "dev": write_choices(tmp_path / "dev.jsonl", 60, 1),
    }
    summary = electra.finetune(
        "choice", model=model, out=tmp_path / "out", **files, epochs=5, batch_size=20, learning_rate=1e-2
    )
    results = json.loads((tmp_path / "out/seed-0/results.json").read_text())
    assert results["steps"] == STEPS
    assert summary["metrics"]["dev"]["accuracy"]["median"] > 90
    saved = json.loads((tmp_path / "out/seed-0/model/task.json").read_text())
    assert saved == {"task": "choice", "max_length": 32}
    lines = (tmp_path / "out/seed-0/predictions-dev.jsonl").read_text().splitlines()
    assert list(electra.predict(tmp_path / "out", files["dev"])) == [json.loads(line) for line in lines]
    question = {"id": "q", "question": "the cat is", "choices": ["awful", "fine"]}
    assert list(electra.predict(tmp_path / "out", question)) == [{"id": "q", "choice": 1}]
    with pytest.raises(UsageError, match="--text has no meaning for choice"):
        electra.finetune("choice", model=model, out=tmp_path / "other", **files, text="question")
    monkeypatch.delitem(TASKS, "choice")
    with pytest.raises(ModelError, match=r"task\.json: there is no task 'choice'"):
        electra.predict(tmp_path / "out", question)


@pytest.mark.parametrize("name", TASKS)
def test_specs_are_complete(name: str) -> None:
    spec = TASKS[name]
    assert spec.options <= set(TASK_OPTIONS)
    assert all(hasattr(PredictConfig(), option) for option in spec.predict_options)
    if spec.saved is not None:
        assert all(hasattr(spec.saved, method) for method in ("build_head", "read_file", "read_values", "predict"))
    if spec.from_hugging_face is not None:
        task = spec.from_hugging_face(["no", "yes"], None, 100)
        assert isinstance(task, SavedTask)
        assert task.max_length == 100
        head = task.build_head(EncoderConfig(vocab_size=9, hidden_size=32, num_heads=2), spec.head)
        assert any(isinstance(weight, torch.nn.Parameter) for weight in head.parameters())
