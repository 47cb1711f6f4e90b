"""The heads compared with loops over tokens, with a search over all spans, and with the head of Hugging Face."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import ElectraConfig, ElectraForQuestionAnswering

from electra.data.batch import Batch
from electra.finetuning.batching import LabeledBatch
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.heads import JointSpanHead, PlainSpanHead

HIDDEN = 16
LENGTHS, SEGMENT_A = [12, 9, 7], [4, 3, 5]


def batch() -> LabeledBatch:
    """Two questions with an answer and one without; the last two rows are padded."""
    lengths, segment_a = torch.tensor(LENGTHS), torch.tensor(SEGMENT_A)
    positions = torch.arange(max(LENGTHS))
    real = positions < lengths[:, None]
    types = ((positions >= segment_a[:, None]) & real).long()
    ids = torch.where(real, 7, 0)
    targets = {"start": [5, 3, 0], "end": [8, 3, 0], "impossible": [0, 0, 1]}
    return LabeledBatch(
        Batch(ids, types, lengths, real), {name: torch.tensor(target) for name, target in targets.items()}
    )


def hidden(seed: int = 0) -> torch.Tensor:
    return torch.randn(len(LENGTHS), max(LENGTHS), HIDDEN, generator=torch.Generator().manual_seed(seed))


def joint(**options) -> JointSpanHead:
    torch.manual_seed(3)
    head = JointSpanHead(HIDDEN, SpanConfig(**options))
    for parameter in head.parameters():  # biases start as zeros, with which an error in them would not show
        parameter.data += 0.1 * torch.randn_like(parameter)
    return head


def allowed(row: int) -> list[int]:
    return [0, *range(SEGMENT_A[row], LENGTHS[row])]


def log_softmax(logits: dict[int, float]) -> dict[int, float]:
    total = math.log(sum(math.exp(each) for each in logits.values()))
    return {token: logit - total for token, logit in logits.items()}


def literal_start(head: JointSpanHead, vectors: torch.Tensor, row: int) -> dict[int, float]:
    return log_softmax({token: float(head.start(vectors[row, token])) for token in allowed(row)})


def literal_end(head: JointSpanHead, vectors: torch.Tensor, row: int, start: int) -> dict[int, float]:
    logits = {}
    for token in allowed(row):
        both = torch.cat([vectors[row, start], vectors[row, token]])
        logits[token] = float(head.end(F.gelu(F.linear(both, head.end_dense.weight, head.end_dense.bias))))
    return log_softmax(logits)


def literal_impossible(head: JointSpanHead, vectors: torch.Tensor, row: int) -> float:
    expected = sum(math.exp(p) * vectors[row, token] for token, p in literal_start(head, vectors, row).items())
    features = torch.cat([vectors[row, 0], expected])
    return float(head.impossible(F.gelu(head.impossible_dense(features))))


@torch.no_grad()
@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_joint_loss_against_a_loop(weight: float) -> None:
    head, vectors, rows = joint(answerable_weight=weight), hidden(), batch()
    losses = head.loss(vectors, rows)
    for row, loss in enumerate(losses):
        start, end, impossible = (int(rows.targets[name][row]) for name in ("start", "end", "impossible"))
        of_start = -literal_start(head, vectors, row)[start]
        of_end = -literal_end(head, vectors, row, start)[end]
        logit = literal_impossible(head, vectors, row)
        of_impossible = math.log(1 + math.exp(-logit if impossible else logit))
        assert float(loss) == pytest.approx((of_start + of_end) / 2 + weight * of_impossible, abs=1e-4)


@torch.no_grad()
def test_training_conditions_the_end_on_the_true_start() -> None:
    """Training uses the target's start, not the predicted start."""
    head, vectors, rows = joint(), hidden(), batch()
    best_starts = head.predict(vectors, rows)["starts"][:, 0]
    truth = torch.tensor([6, 4, 5])
    assert not (best_starts == truth).any()
    rows.targets["start"] = truth
    of_end = 2 * (head.loss(vectors, rows) - joint_loss_without_end(head, vectors, rows))
    expected = [-literal_end(head, vectors, row, int(truth[row]))[int(rows.targets["end"][row])] for row in range(3)]
    mistaken = [
        -literal_end(head, vectors, row, int(best_starts[row]))[int(rows.targets["end"][row])] for row in range(3)
    ]
    np.testing.assert_allclose(of_end, expected, atol=1e-4)
    assert (abs(np.array(expected) - mistaken) > 1e-3).all()


def joint_loss_without_end(head: JointSpanHead, vectors: torch.Tensor, rows: LabeledBatch) -> torch.Tensor:
    losses = []
    for row in range(3):
        logit = literal_impossible(head, vectors, row)
        sign = -1 if rows.targets["impossible"][row] else 1
        of_start = -literal_start(head, vectors, row)[int(rows.targets["start"][row])]
        losses.append(of_start / 2 + 0.5 * math.log(1 + math.exp(sign * logit)))
    return torch.tensor(losses)


@torch.no_grad()
def test_beam_as_wide_as_the_row_has_every_span() -> None:
    head, vectors = joint(beam_size=20), hidden()
    output = head.predict(vectors, batch())
    assert output["starts"].shape == output["start_log_probs"].shape == (3, 20)
    assert output["ends"].shape == output["end_log_probs"].shape == (3, 20, 20)
    for row in range(3):
        found = {
            (int(output["starts"][row, i]), int(output["ends"][row, i, j])): (
                float(output["start_log_probs"][row, i] + output["end_log_probs"][row, i, j])
            )
            for i in range(20)
            for j in range(20)
            if output["start_log_probs"][row, i] > -500 and output["end_log_probs"][row, i, j] > -500
        }
        starts = literal_start(head, vectors, row)
        expected = {
            (start, end): starts[start] + log_prob
            for start in allowed(row)
            for end, log_prob in literal_end(head, vectors, row, start).items()
        }
        assert found == pytest.approx(expected, abs=1e-4)
        assert float(output["impossible_logit"][row]) == pytest.approx(literal_impossible(head, vectors, row), abs=1e-4)


@torch.no_grad()
def test_narrow_beam_has_the_best_starts_and_ends() -> None:
    head, vectors = joint(beam_size=3), hidden()
    output = head.predict(vectors, batch())
    assert output["ends"].shape == (3, 3, 3)
    for row in range(3):
        starts = literal_start(head, vectors, row)
        best = sorted(starts, key=starts.__getitem__, reverse=True)[:3]
        assert output["starts"][row].tolist() == best
        for i, start in enumerate(best):
            ends = literal_end(head, vectors, row, start)
            assert output["ends"][row, i].tolist() == sorted(ends, key=ends.__getitem__, reverse=True)[:3]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["joint", "plain"])
def test_padding_and_question_do_not_change_the_span_loss(kind: str) -> None:
    head = joint() if kind == "joint" else PlainSpanHead(HIDDEN)
    rows, vectors, others = batch(), hidden(), hidden(1)
    for row in range(3):
        others[row, allowed(row)] = vectors[row, allowed(row)]
    torch.testing.assert_close(head.loss(others, rows), head.loss(vectors, rows))


@torch.no_grad()
def test_plain_loss_against_a_loop() -> None:
    head, vectors, rows = PlainSpanHead(HIDDEN), hidden(), batch()
    for row, loss in enumerate(head.loss(vectors, rows)):
        both = [
            log_softmax({token: float(head.output(vectors[row, token])[i]) for token in allowed(row)}) for i in (0, 1)
        ]
        start, end = int(rows.targets["start"][row]), int(rows.targets["end"][row])
        assert float(loss) == pytest.approx(-(both[0][start] + both[1][end]) / 2, abs=1e-5)


@torch.no_grad()
def test_plain_logits_against_hugging_face() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": HIDDEN, "embedding_size": 8, "num_attention_heads": 2, "intermediate_size": 32}
    theirs = ElectraForQuestionAnswering(ElectraConfig(vocab_size=20, num_hidden_layers=2, **sizes)).eval()
    head, rows = PlainSpanHead(HIDDEN), batch()
    head.output.load_state_dict(theirs.qa_outputs.state_dict())
    arguments = {"attention_mask": rows.inputs.attention_mask, "token_type_ids": rows.inputs.token_type_ids}
    output = head.predict(theirs.electra(rows.inputs.input_ids, **arguments).last_hidden_state, rows)
    expected = theirs(rows.inputs.input_ids, **arguments)
    torch.testing.assert_close(output["start_logits"], expected.start_logits, atol=1e-6, rtol=0)
    torch.testing.assert_close(output["end_logits"], expected.end_logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize("head", [JointSpanHead(64, SpanConfig()), PlainSpanHead(64)])
def test_initial_values(head: torch.nn.Module) -> None:
    for name, parameter in head.named_parameters():
        limit = 0.0 if name.endswith("bias") else math.sqrt(6 / sum(parameter.shape))
        assert parameter.abs().max() <= limit
        assert parameter.abs().max() >= 0.9 * limit
