"""`electra score` and `electra minimal-pairs`, compared with a scorer on transformers' classes."""

import csv
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.errors import fails, raises
from support.toy import TINY_RUN
from transformers import AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

import electra
from electra import cli, console
from electra.errors import DataError, ModelError, UsageError
from electra.pretraining.evaluation import network_scorer, sentence_batches
from electra.pretraining.evaluation.minimal_pairs import (
    build_rows,
    evaluate_by_frequencies,
    read_minimal_pairs,
    summarize,
)
from electra.pretraining.evaluation.sentence_scores import SentenceScore, load_scorer
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

SENTENCES = ["the cat sees mice .", "the dog likes milk . the fox hunts birds .", "mice", "the owl likes the cat ."]
UNMASKED_PER_MASKED = 3.0  # the preset masks 25 %


@cache
def load_by_transformers(run: Path) -> tuple[Any, Any, Any]:
    """The tokenizer, generator and discriminator of a run."""
    return (
        AutoTokenizer.from_pretrained(run / "generator"),
        ElectraForMaskedLM.from_pretrained(run / "generator").eval(),
        ElectraForPreTraining.from_pretrained(run / "discriminator").eval(),
    )


@torch.no_grad()
def score_by_transformers(run: Path, sentence: str) -> dict[str, float]:
    """Compute the three scores one token at a time, in float64 after the networks."""
    tokenizer, generator, discriminator = load_by_transformers(run)
    ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
    original = (-discriminator(ids).logits[0]).double().sigmoid()
    totals = dict.fromkeys(("discriminator", "masked-lm", "both"), 0.0)
    for position in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, position] = tokenizer.mask_token_id
        logits = generator(masked).logits[0, position].double()
        token = ids[0, position]
        without_mask = logits.clone()
        without_mask[tokenizer.mask_token_id] = -torch.inf
        p, d = without_mask.softmax(0)[token], original[position]
        totals["discriminator"] += float(d.log())
        totals["masked-lm"] += float(logits.log_softmax(0)[token])
        totals["both"] += float((d * p / (UNMASKED_PER_MASKED * (1 - d) + p)).log())
    return totals


@pytest.fixture(scope="module")
def expected_scores(finished: Path) -> dict[str, dict[str, float]]:
    return {sentence: score_by_transformers(finished, sentence) for sentence in SENTENCES}


def test_scores_equal_those_of_transformers(finished: Path, expected_scores: dict) -> None:
    tokenizer = AutoTokenizer.from_pretrained(finished / "generator")
    rows = electra.score(SENTENCES, model=finished)
    assert [row["text"] for row in rows] == SENTENCES
    for row in rows:
        assert row["tokens"] == len(tokenizer(row["text"], add_special_tokens=False)["input_ids"])
        for method, total in expected_scores[row["text"]].items():
            assert row[method]["total"] == pytest.approx(total, rel=1e-5), method
            assert row[method]["mean"] == pytest.approx(total / row["tokens"], rel=1e-5)


def test_scores_do_not_depend_on_batches(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = electra.score(SENTENCES, model=finished)
    monkeypatch.setattr(sentence_batches, "BATCH_TOKENS", 1)
    for row, alone in zip(together, electra.score(SENTENCES, model=finished), strict=True):
        for method in ("discriminator", "masked-lm", "both"):
            assert row[method]["total"] == pytest.approx(alone[method]["total"], rel=1e-5)


def test_each_network_has_its_methods(finished: Path) -> None:
    assert load_scorer(finished).methods == ("discriminator", "masked-lm", "both")
    assert load_scorer(finished / "generator").methods == ("masked-lm",)
    assert load_scorer(finished / "discriminator").methods == ("discriminator",)
    (row,) = electra.score("mice", model=finished, methods="masked-lm")
    assert set(row) == {"text", "tokens", "masked-lm"}
    (alone,) = electra.score("mice", model=finished / "generator")
    assert alone["masked-lm"] == row["masked-lm"]


def test_a_mask_fraction_changes_the_formula(finished: Path) -> None:
    (default,) = electra.score("mice", model=finished, methods=["both"])
    (equal,) = electra.score("mice", model=finished, methods=["both"], mask_fraction=0.25)
    (other,) = electra.score("mice", model=finished, methods=["both"], mask_fraction=0.15)
    assert default == equal != other


@pytest.mark.parametrize("fraction", [0.0, 0.51, -1.0])
def test_a_mask_fraction_out_of_range_is_refused(finished: Path, fraction: float) -> None:
    for call in (electra.score, electra.fill_mask):
        with raises(UsageError, "out-of-range", "--mask-fraction"):
            call("[MASK]", model=finished, mask_fraction=fraction)


def test_a_mask_fraction_that_no_method_uses_is_refused(finished: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl")
    for methods in ("masked-lm", ["discriminator", "masked-lm"]):
        with raises(UsageError, "meaningless-option", "--mask-fraction", "both", "masked-lm"):
            electra.score("mice", model=finished, methods=methods, mask_fraction=0.25)
        with raises(UsageError, "meaningless-option", "--mask-fraction", "both", "masked-lm"):
            electra.minimal_pairs(finished, tmp_path / "pairs.jsonl", methods=methods, mask_fraction=0.25)


def test_methods_share_the_forward_passes_of_their_networks(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """masked-lm and both mask each token once, not twice; a method alone runs only its own networks."""
    calls: list[str] = []
    for name in ("compute_masked_logits", "compute_replaced_logits"):
        compute = getattr(network_scorer, name)

        def record(*arguments: Any, name: str = name, compute: Callable[..., Any] = compute) -> Any:
            calls.append(name)
            return compute(*arguments)

        monkeypatch.setattr(network_scorer, name, record)
    electra.score(SENTENCES[0], model=finished)
    assert calls == ["compute_replaced_logits", "compute_masked_logits"]
    calls.clear()
    electra.score(SENTENCES[0], model=finished, methods="masked-lm")
    electra.score(SENTENCES[0], model=finished, methods="discriminator")
    assert calls == ["compute_masked_logits", "compute_replaced_logits"]


def test_inputs_are_arguments_lines_records_and_pairs(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    first, second = SENTENCES[0], SENTENCES[3]
    (tmp_path / "a.txt").write_text(f"{first}\t{second}\n\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"good": first, "bad": second}) + "\n")
    pair = electra.score([(first, second)], model=finished, methods="discriminator")
    assert pair == electra.score(f"{first}\t{second}", model=finished, methods="discriminator")
    assert pair == electra.score(model=finished, input=tmp_path / "a.txt", methods="discriminator")
    fields = {"text_field": "good", "pair_field": "bad"}
    assert pair == electra.score(model=finished, input=tmp_path / "a.jsonl", methods="discriminator", **fields)
    totals = pair[0]["discriminator"]["total"]
    assert pair[0]["discriminator"]["preferred"] == int(totals[1] > totals[0])
    (tie,) = electra.score([(first, first)], model=finished)
    assert [tie[method]["preferred"] for method in ("discriminator", "masked-lm", "both")] == [None] * 3
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{first}\n\n{second}\n"))
    cli.main(["score", "-", "--model", str(finished)])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == electra.score([first, second], model=finished)


@pytest.mark.parametrize(
    ("given", "code", "values"),
    [
        ({}, "no-text", ["--input"]),
        ({"text": "a", "input": "b.txt"}, "conflicting-options", ["--input"]),
        ({"text": " "}, "no-tokens", []),
        ({"text": [5]}, "wrong-type", ["5"]),
        ({"text": "a", "pair_field": "b"}, "meaningless-option", ["--pair-field"]),
        ({"text": "the " * 40}, "longer-than-model", [42, 32]),
        ({"text": "a\tb\tc"}, "wrong-type", []),
        ({"text": "a", "methods": "plain"}, "unknown-choice", ["--methods", "masked-lm"]),
    ],
)
def test_impossible_inputs_are_refused(finished: Path, given: dict[str, Any], code: str, values: list) -> None:
    with raises(UsageError, code, *values):
        electra.score(model=finished, **given)


def test_impossible_files_and_models_are_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "columns.txt").write_text("a\tb\n a\tb\tc\n")
    (tmp_path / "field.jsonl").write_text('{"text": "a"}\n{"text": 1}\n')
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "blank.jsonl").write_text('{"text": "a"}\n{"text": " "}\n')
    (tmp_path / "a.csv").write_text("id,text\n")
    for name, code, place in (
        ("blank.jsonl", "no-tokens", "blank.jsonl:2"),
        ("a.csv", "unknown-format", ".jsonl"),
        ("columns.txt", "wrong-columns", "columns.txt:2"),
        ("field.jsonl", "missing-field", "field.jsonl:2"),
        ("empty.txt", "no-rows", "empty.txt"),
    ):
        with raises(DataError, code, place):
            electra.score(model=finished, input=tmp_path / name)
    (tmp_path / "long.txt").write_text("the cat\n" + "the " * 40)
    with raises(UsageError, "longer-than-model", "long.txt:2", 42, 32):
        electra.score(model=finished, input=tmp_path / "long.txt")
    with raises(ModelError, "missing", "nosuch"):
        electra.score("a", model=tmp_path / "nosuch")
    with raises(UsageError, "meaningless-option", "--mask-fraction"):
        electra.score("a", model=finished / "discriminator", mask_fraction=0.15)
    with raises(UsageError, "no-method", "generator", "masked-lm"):
        electra.score("a", model=finished / "generator", methods="both")
    with raises(UsageError, "meaningless-option", "--mask-fraction"):
        electra.score("a", model=finished / "generator", mask_fraction=0.15)


def test_log_records_are_not_in_the_results(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The percentages of progress go up to 100 and are logged; standard output has JSON lines only."""
    seen = []

    @contextmanager
    def record_progress(description: str, total: int) -> Iterator[Callable[[int, str], None]]:
        def record(done: int, detail: str) -> None:
            seen.append(done)
            logging.getLogger("electra.test").warning(f"{description}: {done} of {total}")

        yield record

    monkeypatch.setattr(console, "reading_progress", record_progress)
    cli.main(["score", *SENTENCES, "--model", str(finished)])
    assert seen == sorted(seen)
    assert seen[-1] == 100
    captured = capsys.readouterr()
    assert [json.loads(line)["text"] for line in captured.out.splitlines()] == SENTENCES
    assert "100 of 100" in captured.err


def write_pairs(path: Path) -> list[tuple[str, str]]:
    """Write minimal pairs of three paradigms in BLiMP's format."""
    animals, things = ("cat", "dog", "fox"), ("mice", "milk", "birds")
    pairs, lines = [], []
    for number, (animal, thing) in enumerate(product(animals, things)):
        good, bad = f"the {animal} sees {thing} .", f"the {thing} sees {animal} ."
        pairs.append((good, bad))
        field = ("syntax", "syntax_semantics", "syntax/semantics")[number % 3]
        names = {"UID": f"paradigm_{number % 3}", "linguistics_term": f"term_{number % 2}", "field": field}
        lines.append(json.dumps({"sentence_good": good, "sentence_bad": bad, **names}))
    path.write_text("\n".join(lines) + "\n")
    return pairs


def test_accuracies_equal_those_of_transformers(finished: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.jsonl")
    results = electra.minimal_pairs(finished, tmp_path / "pairs.jsonl", out=tmp_path / "out")
    assert (results["pairs"], results["paradigms"]) == (9, 3)
    scores = {sentence: score_by_transformers(finished, sentence) for pair in pairs for sentence in pair}
    for method, found in results["methods"].items():
        right = [scores[good][method] > scores[bad][method] for good, bad in pairs]
        assert found["overall"] == pytest.approx(100 * sum(right) / len(right))  # paradigms of equal size
        assert found["paradigm"]["paradigm_1"] == pytest.approx(100 * sum(right[1::3]) / 3)
        assert set(found["field"]) == {"syntax", "syntax/semantics"}
    rows = list(csv.DictReader((tmp_path / "out/minimal_pairs.csv").read_text().splitlines()))
    assert len(rows) == len(build_rows(results)) == 1 + 2 + 2 + 3
    assert [int(row["pairs"]) for row in rows if row["level"] == "paradigm"] == [3, 3, 3]
    assert float(rows[0]["both"]) == pytest.approx(results["methods"]["both"]["overall"], abs=0.01)
    assert (tmp_path / "out/minimal_pairs.png").read_bytes().startswith(b"\x89PNG")


def test_private_results_are_for_the_owner_only(finished: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl")
    words = ["minimal-pairs", finished, tmp_path / "pairs.jsonl", "--methods", "discriminator"]
    for name, options, modes in (("own", ["--private"], {0o700, 0o600}), ("open", [], {0o755, 0o644})):
        before = os.umask(0o022)
        cli.main([*map(str, words), "--out", str(tmp_path / name), *options])
        assert os.umask(before) == 0o022, "the umask is restored"
        written = [tmp_path / name, *(tmp_path / name).iterdir()]
        assert {path.stat().st_mode & 0o777 for path in written} == modes


def test_token_frequencies_prefer_the_sentence_of_frequent_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer((*SPECIAL_TOKENS, "cat", "owl", "sees"), Normalization())
    unigrams = np.array([0] * len(SPECIAL_TOKENS) + [8, 1, 5])
    pairs = [("cat sees", "owl sees"), ("owl", "cat"), ("cat sees", "sees cat"), ("cat", "owl owl")]
    file = tmp_path / "pairs.jsonl"
    lines = [{"sentence_good": good, "sentence_bad": bad, "UID": str(n)} for n, (good, bad) in enumerate(pairs)]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    accuracy = evaluate_by_frequencies(read_minimal_pairs([file]), tokenizer, unigrams)
    assert accuracy == 100 * (1 + 0 + 0.5 + 1) / 4, "better, worse, a tie, better"


def test_methods_of_minimal_pairs_are_selected(finished: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    write_pairs(pairs)
    whole = electra.minimal_pairs(finished, pairs)
    part = electra.minimal_pairs(finished, pairs, methods="both", mask_fraction=0.25)
    assert part["methods"] == {"both": whole["methods"]["both"]}
    assert electra.minimal_pairs(finished, [pairs, pairs])["pairs"] == whole["pairs"], "named twice, read once"
    fails(["minimal-pairs", finished, pairs, "--methods", "plain"], "unknown-choice", "--methods", "masked-lm")
    with raises(UsageError, "unknown-choice", "--methods", "masked-lm"):
        electra.minimal_pairs(finished, pairs, methods="plain")


def test_ties_count_one_half_and_paradigms_count_alike(tmp_path: Path) -> None:
    lines = [{"sentence_good": "a", "sentence_bad": "b", "UID": "long"}] * 3
    lines += [{"sentence_good": "a", "sentence_bad": "b"}]  # its paradigm is the file's name
    (tmp_path / "short.jsonl").write_text("\n".join(map(json.dumps, lines)))
    pairs = read_minimal_pairs([tmp_path / "short.jsonl"])
    totals = [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]
    found = summarize(pairs, [SentenceScore(total, 1) for pair in totals for total in pair])
    assert found["paradigm"] == {"long": 50.0, "short": 100.0}
    assert (found["overall"], found["ties"]) == (75.0, 1)


def test_impossible_minimal_pairs_are_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "field.jsonl").write_text('{"sentence_good": "a", "sentence_bad": " "}\n')
    (tmp_path / "empty.jsonl").write_text("\n")
    with raises(DataError, "missing-field", "field.jsonl:1", "sentence_bad"):
        electra.minimal_pairs(finished, tmp_path / "field.jsonl")
    with raises(DataError, "no-rows", "empty.jsonl"):
        electra.minimal_pairs(finished, tmp_path / "empty.jsonl")
    (tmp_path / "long.jsonl").write_text(json.dumps({"sentence_good": "a", "sentence_bad": "the " * 40}))
    with raises(UsageError, "longer-than-model", f"{tmp_path / 'long.jsonl'}:1: "):
        electra.minimal_pairs(finished, tmp_path / "long.jsonl")
    (tmp_path / "blank.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "\\u200b"}')  # no token is left of it
    with raises(UsageError, "no-tokens", f"{tmp_path / 'blank.jsonl'}:1: "):
        electra.minimal_pairs(finished, tmp_path / "blank.jsonl")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}')
    with raises(DataError, "same-name", tmp_path / "one/a.jsonl", tmp_path / "two/a.jsonl", "UID"):
        electra.minimal_pairs(finished, [tmp_path / "one/a.jsonl", tmp_path / "two/a.jsonl"])
    for nothing in ([], "", [""]):
        with raises(UsageError, "no-files"):
            electra.minimal_pairs(finished, nothing)
    fails(["minimal-pairs", finished, "hf://owner/pairs"], "hub-not-allowed", "FILES", "owner/pairs")
    fails(["minimal-pairs", finished], "missing-option", "FILES", "minimal-pairs --help")
    fails(["minimal-pairs", finished, tmp_path / "empty.jsonl", "--data", "d"], "unknown-option", "--data")
    fails(["minimal-pairs", finished, tmp_path / "empty.jsonl", "--out", ""], "empty-option", "--out")
    fails(["evaluate", finished, "--methods", "both"], "unknown-option", "--methods")


@pytest.mark.slow
def test_a_discriminator_that_predicts_tokens_scores_by_its_own_head(text: Path, tmp_path: Path) -> None:
    """With `--token-prediction.masked`; transformers' masked LM loads the discriminator's directory."""
    electra.pretrain(str(text), out=str(tmp_path / "run"), **TINY_RUN, token_prediction={"masked": 1.0})
    directory = tmp_path / "run/discriminator"
    tokenizer, masked_lm = (
        AutoTokenizer.from_pretrained(directory),
        ElectraForMaskedLM.from_pretrained(directory).eval(),
    )
    sentence = SENTENCES[0]
    ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
    expected = 0.0
    for position in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, position] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = masked_lm(masked).logits[0, position].double()
        expected += float(logits.log_softmax(0)[ids[0, position]])
    (row,) = electra.score(sentence, model=tmp_path / "run")
    assert row["masked-lm"]["total"] == pytest.approx(expected, rel=1e-5)
    (alone,) = electra.score(sentence, model=directory)
    assert {name: alone[name] for name in ("masked-lm", "discriminator")} == {
        name: row[name] for name in ("masked-lm", "discriminator")
    }
    assert row["both"] == score_by_generator(tmp_path / "run", sentence)


def score_by_generator(run: Path, sentence: str) -> dict[str, float]:
    """Appendix G's score from the two networks of a run by transformers."""
    total = score_by_transformers(run, sentence)["both"]
    return {"total": pytest.approx(total, rel=1e-5), "mean": pytest.approx(total / 5, rel=1e-5)}
