"""Question answering: a tiny encoder overfits a few questions; splits, files, options and errors of the task."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from support.errors import check_message, notices, raises
from support.squad_toys import TOKENIZER, build_question, draw_questions, write_squad

from electra.errors import DataError, UsageError
from electra.finetuning.batching import BatchLoader
from electra.finetuning.model import FinetunedModel
from electra.finetuning.qa.config import SpanConfig, fit_to_length
from electra.finetuning.qa.task import QuestionAnswering, find_files, read_questions
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.initialization import initialize
from electra.runtime.setup import Runtime

ENCODER = EncoderConfig(
    vocab_size=TOKENIZER.vocab_size,
    embedding_size=32,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    ffn_size=64,
    max_positions=32,
    dropout=0.0,
    attention_dropout=0.0,
)
CPU = Runtime(torch.device("cpu"), torch.float32)


def config(**options: Any) -> SpanConfig:
    """Return options with which contexts of the toy questions need two windows."""
    return SpanConfig(max_length=24, doc_stride=8, max_query_length=8, **options)


def task_over(name: str, options: SpanConfig, **paths: Path) -> QuestionAnswering:
    splits = {split: read_questions(name, path, answered=split != "test") for split, path in paths.items()}
    return QuestionAnswering(name, splits, TOKENIZER, options)


def train(task: QuestionAnswering, steps: int) -> FinetunedModel:
    torch.manual_seed(0)
    encoder = Encoder(ENCODER)
    initialize(encoder, std=0.15)
    model = FinetunedModel(encoder, task.build_head(ENCODER)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = BatchLoader(task.encode("train"), batch_size=8, pad_id=TOKENIZER.pad_id, seed=0)
    for step in range(steps):
        batch = loader.batch(step)
        loss, _ = model(batch, model.counts(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("head", ["joint", "plain"])
@pytest.mark.parametrize("name", ["squad1", "squad2"])
def test_overfits_eight_questions(tmp_path: Path, name: str, head: str) -> None:
    questions = draw_questions(8, impossible_every=3 if name == "squad2" else 0)
    path = write_squad(tmp_path / "train.json", questions, "1.1" if name == "squad1" else "v2.0")
    task = task_over(name, config(head=head, null_threshold=0.0), train=path, dev=path)
    assert len(task.encode("train")) > 8
    model = train(task, steps=150)
    outputs = model.compute_outputs(task.encode("dev"), CPU, batch_size=4, pad_id=TOKENIZER.pad_id)
    scores = task.score("dev", outputs)
    assert (scores["em"], scores[task.main_metric]) == (100.0, 100.0)
    if name == "squad2":
        assert scores["best_f1"] == scores["has_ans_em"] == scores["no_ans_f1"] == 100.0
    predictions = task.format_predictions("dev", outputs)
    for question, predicted in zip(questions, predictions, strict=True):
        assert predicted["id"] == question.id
        assert predicted["answer"] == (question.answers[0].text if question.answers else "")
        assert (predicted["null_odds"] > 0) == question.impossible or name == "squad1"
        assert sum(each["probability"] for each in predicted["n_best"]) == pytest.approx(1)
    json.dumps(predictions, allow_nan=False)


def test_v1_questions_always_have_an_answer(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "dev.json", draw_questions(5), "1.1")
    task = task_over("squad1", config(null_threshold=-1e9), dev=path)
    outputs = untrained(task).compute_outputs(task.encode("dev"), CPU, batch_size=2, pad_id=TOKENIZER.pad_id)
    assert all(each["answer"] for each in task.format_predictions("dev", outputs))
    assert set(task.score("dev", outputs)) == {"em", "f1"}
    impossible = task_over("squad2", config(null_threshold=-1e9), dev=path)
    assert not any(each["answer"] for each in impossible.format_predictions("dev", outputs))


def untrained(task: QuestionAnswering) -> FinetunedModel:
    torch.manual_seed(0)
    return FinetunedModel(Encoder(ENCODER), task.build_head(ENCODER))


def test_mrqa(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    detected = [{"text": "anna", "char_spans": [[0, 3]]}]
    qa = {"qid": "q", "question": "Who met?", "detected_answers": detected, "answers": ["Anna"]}
    lines = [{"header": {}}, {"context": "Anna met Carl.", "qas": [qa]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    task = task_over("mrqa", config(), dev=path)
    targets = task.encode("dev").targets
    assert (targets["start"], targets["end"]) == (5, 5)


def test_examples_are_encoded_once(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "dev.json", draw_questions(3))
    task = task_over("squad2", config(), dev=path)
    assert task.encode("dev") is task.encode("dev")
    assert task.get_settings() == {"task": "squad2", "span": asdict(config()), "best_null_threshold": None}
    json.dumps(task.get_settings())


def test_splits_that_do_not_match_the_task(tmp_path: Path) -> None:
    path = write_squad(
        tmp_path / "dev.json", [build_question("a", "Who?", "Anna."), build_question("b", "Who?", "Anna.", "Anna")]
    )
    with raises(DataError, "missing-split", "squad2", "train"):
        task_over("squad2", config(), dev=path).encode("train")
    with raises(DataError, "impossible-question", "dev.json", "'a'", "squad1", "squad2"):
        read_questions("squad1", path, answered=True)
    unanswered = tmp_path / "test.json"
    unanswered.write_text(path.read_text().replace('"is_impossible": true', '"is_impossible": false'))
    assert task_over("squad1", config(), test=unanswered).encode("test").targets == {}
    with raises(DataError, "missing-answer", "test.json", "'a'"):
        read_questions("squad1", unanswered, answered=True)


def test_files_of_a_folder(tmp_path: Path) -> None:
    with raises(DataError, "missing", "train-v2.0.json"):
        find_files("squad2", tmp_path)
    for name in ("train.json", "train-v2.0.json.gz", "dev.json.gz", "test-v2.0.json", "train-v1.1.json"):
        (tmp_path / name).write_text("")
    found = find_files("squad2", tmp_path)
    assert {split: path.name for split, path in found.items()} == {
        "train": "train-v2.0.json.gz",
        "dev": "dev.json.gz",
        "test": "test-v2.0.json",
    }


def test_chunks_longer_than_the_positions_of_the_model() -> None:
    task = task_over("squad1", SpanConfig())
    with raises(UsageError, "longer-than-model", "--max-length", 512, 32):
        task.build_head(ENCODER)


def test_truncated_questions_are_counted(tmp_path: Path, caplog) -> None:
    path = write_squad(tmp_path / "train.json", draw_questions(4), "1.1")
    task = task_over("squad1", SpanConfig(max_length=24, max_query_length=2), train=path)
    assert task.encode("train").counts["questions_cut"] == 4
    task.encode("train")
    [message] = notices(caplog, "truncated")
    check_message(message, "squad1", 4, "train", 2, "--span.max-query-length", "--max-length")
    assert caplog.records[-1].levelname == "WARNING"


def test_default_span_options_fit_the_length() -> None:
    usual = fit_to_length(SpanConfig(), 512)
    assert (usual.max_length, usual.doc_stride, usual.max_query_length) == (512, 128, 64)
    short = fit_to_length(SpanConfig(), 128)
    assert (short.max_length, short.doc_stride, short.max_query_length) == (128, 32, 32)
    given = fit_to_length(SpanConfig(doc_stride=90, max_query_length=50), 128)
    assert (given.doc_stride, given.max_query_length) == (90, 50)
