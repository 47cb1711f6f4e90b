"""`electra fill-mask` and `electra evaluate-mlm`: comparison with Hugging Face's networks, and errors for invalid input."""

import io
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from support.errors import fails, notices, raises
from support.toy import TINY_RUN
from transformers import (
    AutoTokenizer,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    pipeline,
)

import electra
import electra.display
from electra.config.files import flatten
from electra.data.loader import iterate_evaluation_batches
from electra.data.prepare import prepare
from electra.data.shards import PreparedData
from electra.errors import DataError
from electra.pretraining.evaluation.fill_mask import load_filler
from electra.pretraining.evaluation.mlm_accuracy import MaskedExamples, mask_one_per_row
from electra.text.corpus import Corpus
from electra.text.tokenizer import load_tokenizer

TWO = "the [MASK] sees mice . the cat [MASK] birds ."
CANDIDATES = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """An ELECTRA and a BERT on the same data."""
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = load_tokenizer(electra.tokenizer(str(text), out=str(folder / "tokenizer"), vocab_size=160))
    prepare(Corpus((str(text),)), tokenizer, folder / "data", seq_len=24, workers=1, heldout=0.2)
    for name, objective in (("electra", "electra"), ("bert", "mlm")):
        electra.pretrain(data=str(folder / "data"), out=str(folder / name), objective=objective, **TINY_RUN)
    weights = folder / "electra/discriminator/model.safetensors"  # after 12 steps its outputs are nearly constant
    tensors, draw = load_file(weights), torch.Generator().manual_seed(0)
    for name in ("dense", "dense_prediction"):
        tensor = tensors[f"discriminator_predictions.{name}.weight"]
        tensor += 2 * torch.randn(tensor.shape, generator=draw)
    save_file(tensors, weights, {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def pair(runs: Path) -> tuple:
    """Hugging Face's tokenizer, generator and discriminator of the run."""
    directory = runs / "electra"
    return (
        AutoTokenizer.from_pretrained(directory / "generator"),
        ElectraForMaskedLM.from_pretrained(directory / "generator").eval(),
        ElectraForPreTraining.from_pretrained(directory / "discriminator").eval(),
    )


@torch.no_grad()
def hf_answers(pair: tuple, ids: torch.Tensor, types: torch.Tensor, position: int, a: float) -> list[tuple]:
    """Compute (token id, probability, p_G, D) of a text's candidates with Hugging Face's networks, the best first."""
    tokenizer, generator, discriminator = pair
    p_g = generator(ids[None], token_type_ids=types[None]).logits[0, position].double().softmax(0)
    p_g[tokenizer.mask_token_id] = 0
    p_g /= p_g.sum()
    p_g[[tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id]] = (
        0  # special tokens are never answers
    )
    p_g, candidates = p_g.topk(CANDIDATES)
    rows = ids.repeat(CANDIDATES, 1)
    rows[:, position] = candidates
    d = 1 - discriminator(rows, token_type_ids=types.repeat(CANDIDATES, 1)).logits[:, position].double().sigmoid()
    p = d * p_g / (a * (1 - d) + p_g)
    return sorted(zip(candidates.tolist(), *(x.tolist() for x in (p, p_g, d)), strict=True), key=lambda row: -row[1])


@pytest.mark.slow
def test_electra_probabilities_follow_the_formula(runs: Path, pair: tuple) -> None:
    rows = electra.fill_mask([TWO, "the cat [MASK] ."], model=str(runs / "electra"), top=4, candidates=CANDIDATES)
    assert [(row["text"], row["mask"]) for row in rows] == [(TWO, 0), (TWO, 1), ("the cat [MASK] .", 0)]
    tokenizer = pair[0]
    for row in rows:
        inputs = tokenizer(row["text"], return_tensors="pt")
        ids, types = inputs["input_ids"][0], inputs["token_type_ids"][0]
        position = (ids == tokenizer.mask_token_id).nonzero()[row["mask"]].item()
        expected = hf_answers(pair, ids, types, position, a=3.0)[:4]  # the preset masks 25 %
        for answer, (token, *numbers) in zip(row["answers"], expected, strict=True):
            assert answer["token"] == tokenizer.convert_ids_to_tokens(token)
            assert [answer[name] for name in ("probability", "generator", "original")] == pytest.approx(
                numbers, rel=1e-4
            )


def copy_run(run: Path, out: Path, **changes: object) -> Path:
    """Copy a finished run and change its configuration; the names of the options are dotted."""
    shutil.copytree(run, out, ignore=shutil.ignore_patterns("checkpoints", "data"))
    config = flatten(yaml.safe_load((out / "config.yaml").read_text()))
    (out / "config.yaml").write_text(yaml.safe_dump(config | changes))
    return out


@pytest.mark.slow
def test_parameters_come_from_the_configuration_of_the_run(runs: Path, tmp_path: Path) -> None:
    network = load_filler(runs / "electra").network
    assert (network.unmasked_per_masked, network.temperature) == (3.0, 1.0)
    assert load_filler(runs / "electra", mask_fraction=0.2).network.unmasked_per_masked == 4.0
    other = copy_run(runs / "electra", tmp_path / "a", **{"masking.fraction": 0.5, "generator.temperature": 2.0})
    network = load_filler(other).network
    assert (network.unmasked_per_masked, network.temperature) == (1.0, 2.0)
    final = {"masking.final_fraction": 0.2, "generator.final_temperature": 3.0}
    network = load_filler(copy_run(runs / "electra", tmp_path / "c", **final)).network
    assert (network.unmasked_per_masked, network.temperature) == (4.0, 3.0)
    (other / "config.yaml").unlink()
    assert load_filler(other, mask_fraction=0.2).network.unmasked_per_masked == 4.0
    masked_only = copy_run(runs / "electra", tmp_path / "b", objective="electra-15")
    assert load_filler(masked_only).network.unmasked_per_masked == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"generator.exclude_original_token": True},
        {"generator.kind": "layer-mixture"},
        {"masking.strategy": "rare"},
        {"masking.with_replacement": True},
        {"contrast.weight": 1.0},
        {"generator.frequency_share": 0.5},
    ],
)
def test_a_notice_names_options_for_which_the_formula_is_an_approximation(
    runs: Path, tmp_path: Path, changes: dict, caplog: pytest.LogCaptureFixture
) -> None:
    load_filler(runs / "electra")
    load_filler(
        copy_run(
            runs / "electra",
            tmp_path / "final",
            **{"generator.frequency_share": 0.5, "generator.final_frequency_share": 0.0},
        )
    )
    assert not caplog.records
    load_filler(copy_run(runs / "electra", tmp_path / "run", **changes))
    (notice,) = notices(caplog, "inexact-formula")
    assert f"{tmp_path / 'run'}: " in notice
    assert next(iter(changes)) in notice


@pytest.mark.parametrize("name", ["electra", "bert"])
def test_a_text_longer_than_those_of_pretraining_is_answered_with_a_warning(
    runs: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for words, tokens in ((20, 24), (21, 25)):  # [CLS], [MASK], "." and [SEP] besides the words
        assert electra.fill_mask(f"[MASK] {'cat ' * words}.", model=str(runs / name))
        found = notices(caplog, "longer-than-pretraining")
        assert len(found) == (tokens > 24)
    assert f" {tokens} " in found[0]
    assert " 24;" in found[0]


@pytest.mark.parametrize("name", ["bert", "bert/masked_lm", "electra/generator"])
def test_a_masked_language_model_answers_as_hugging_faces_pipeline(runs: Path, name: str) -> None:
    directory = runs / name if "/" in name else runs / name / "masked_lm"
    (row,) = electra.fill_mask("the cat [MASK] mice .", model=str(runs / name), top=5)
    model, tokenizer = ElectraForMaskedLM.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
    guesses = pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=len(tokenizer))("the cat [MASK] mice .")
    never = next(guess["score"] for guess in guesses if guess["token_str"] == "[MASK]")
    special = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}
    expected = [guess for guess in guesses if guess["token_str"] not in special][:5]
    assert [answer["token"] for answer in row["answers"]] == [
        tokenizer.convert_ids_to_tokens(guess["token"]) for guess in expected
    ]
    scores = [guess["score"] / (1 - never) for guess in expected]
    assert [answer["probability"] for answer in row["answers"]] == pytest.approx(scores, rel=1e-4)
    assert all(answer.keys() == {"token", "probability"} for answer in row["answers"])


def test_the_command_prints_what_the_function_returns(runs: Path, capsys: pytest.CaptureFixture) -> None:
    electra.cli.main(["fill-mask", "--model", str(runs / "electra"), TWO, "the cat [MASK] mice .", "--top", "3"])
    lines = capsys.readouterr().out.splitlines()
    rows = electra.fill_mask([TWO, "the cat [MASK] mice ."], model=str(runs / "electra"), top=3)
    first, second, third = (line for line in lines if "[MASK]" in line)
    assert first.startswith(f"{TWO}  ([MASK] 1 of 2")
    assert second.startswith(f"{TWO}  ([MASK] 2 of 2")
    assert third == "the cat [MASK] mice ."
    assert lines[1].split() == ["token", "probability", "generator", "original", "(D)"]
    for row, start in zip(rows, (2, 7, 12), strict=True):
        for answer, line in zip(row["answers"], lines[start : start + 3], strict=True):
            token, *numbers = answer.values()
            assert line.split() == [token, *(f"{number:.4f}" for number in numbers)]


def test_texts_from_standard_input(runs: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat [MASK] mice .\n\nthe [MASK] sleeps .\n"))
    electra.cli.main(["fill-mask", "--model", str(runs / "bert"), "-", "the owl [MASK] .", "--top", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[::3] == ["the cat [MASK] mice .", "the [MASK] sleeps .", "the owl [MASK] ."]


def test_many_contexts_are_answered_as_each_alone(runs: Path) -> None:
    """The texts differ in length and are more than one batch."""
    texts = [f"the cat [MASK] {'mice ' * (i % 9)}." for i in range(40)]
    together = electra.fill_mask(texts, model=str(runs / "electra"), top=3, candidates=10)
    for i in (0, 8, 39):
        (alone,) = electra.fill_mask(texts[i], model=str(runs / "electra"), top=3, candidates=10)
        assert [a["token"] for a in together[i]["answers"]] == [a["token"] for a in alone["answers"]]
        for one, other in zip(together[i]["answers"], alone["answers"], strict=True):
            assert one["probability"] == pytest.approx(other["probability"], rel=1e-4)


def masked_examples(runs: Path, number: int) -> list[MaskedExamples]:
    tokenizer = load_tokenizer(runs / "tokenizer")
    heldout = PreparedData.open(runs / "data").heldout
    batches = iterate_evaluation_batches(heldout, batch_size=32, pad_id=tokenizer.pad_id, max_examples=number)
    return list(mask_one_per_row(batches, tokenizer))


def test_one_token_of_each_example_is_masked(runs: Path) -> None:
    tokenizer = load_tokenizer(runs / "tokenizer")
    heldout = PreparedData.open(runs / "data").heldout
    batches = list(iterate_evaluation_batches(heldout, batch_size=32, pad_id=tokenizer.pad_id))
    masked = list(mask_one_per_row(iter(batches), tokenizer))
    places = []
    for batch, (examples, positions, original) in zip(batches, masked, strict=True):
        rows = torch.arange(len(positions))
        assert torch.equal(batch.input_ids[rows, positions], original)
        assert (examples.input_ids != batch.input_ids).sum(1).eq(1).all()
        assert examples.input_ids[rows, positions].eq(tokenizer.mask_id).all()
        assert not set(original.tolist()) & {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id}
        places += (positions / (batch.lengths - 1)).tolist()
    assert 0.4 < sum(places) / len(places) < 0.6, "anywhere in the text"
    again = mask_one_per_row(iter(batches), tokenizer)
    assert all(torch.equal(a.positions, b.positions) for a, b in zip(again, masked, strict=True))


@torch.no_grad()
def test_accuracies_agree_with_hugging_face(
    runs: Path, pair: tuple, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    """Accuracies, and the recall of the generator's candidates, computed example by example with Hugging Face's networks."""
    metrics = electra.evaluate_mlm(str(runs / "electra"), bert=str(runs / "bert"), examples=50, candidates=CANDIDATES)
    bert = ElectraForMaskedLM.from_pretrained(runs / "bert/masked_lm").eval()
    right = dict.fromkeys(("electra", "generator", "bert", "candidates"), 0)
    for batch, positions, original in masked_examples(runs, 50):
        for row, (position, token) in enumerate(zip(positions.tolist(), original.tolist(), strict=True)):
            length = int(batch.lengths[row])
            ids, types = batch.input_ids[row, :length], batch.token_type_ids[row, :length]
            answers = hf_answers(pair, ids, types, position, a=3.0)
            right["electra"] += answers[0][0] == token
            right["generator"] += max(answers, key=lambda answer: answer[2])[0] == token
            right["candidates"] += token in [answer[0] for answer in answers]
            logits = bert(ids[None], token_type_ids=types[None]).logits[0, position]
            logits[pair[0].mask_token_id] = -torch.inf
            right["bert"] += int(logits.argmax()) == token
    assert metrics == {
        "electra_accuracy": right["electra"] / 50,
        "generator_accuracy": right["generator"] / 50,
        "bert_accuracy": right["bert"] / 50,
        "upper_bound": right["candidates"] / 50,
        "examples": 50,
        "candidates": CANDIDATES,
    }
    assert 1 > metrics["upper_bound"] >= max(metrics["electra_accuracy"], metrics["generator_accuracy"]) > 0
    (notice,) = notices(caplog, "heldout-examples")
    assert notice.startswith("50 ")
    assert str(runs / "data") in notice
    capsys.readouterr()
    electra.display.show_evaluate_mlm(metrics, {})
    assert f"BERT {metrics['bert_accuracy']:.1%} ±" in " ".join(capsys.readouterr().out.split())


def test_upper_bound_with_all_candidates_is_1(runs: Path, tmp_path: Path, text: Path) -> None:
    """The data is not that of the run, and has fewer examples than requested."""
    data = electra.prepare(
        str(text / "b.txt"), tokenizer=str(runs / "tokenizer"), out=str(tmp_path / "d"), seq_len=16, workers=1
    )
    metrics = electra.evaluate_mlm(str(runs / "electra"), data=str(data), candidates=1_000)
    assert metrics["upper_bound"] == 1
    assert metrics["examples"] == len(PreparedData.open(data).heldout) < 1_000
    assert "bert_accuracy" not in metrics


@pytest.fixture(scope="module")
def wrong(runs: Path, tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """Directories that may be mistaken for a model."""
    folder = tmp_path_factory.mktemp("wrong")
    shutil.copytree(runs / "electra/discriminator", folder / "alone")
    shutil.copytree(runs / "electra/discriminator", folder / "pair/discriminator")
    shutil.copytree(runs / "electra/generator", folder / "pair/generator")
    (folder / "unfinished").mkdir()
    shutil.copy(runs / "electra/config.yaml", folder / "unfinished")
    sizes = {
        "vocab_size": 160,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    ElectraForSequenceClassification(ElectraConfig(**sizes)).save_pretrained(folder / "finetuned")
    electra.tokenizer(str(text), out=str(folder / "cased"), vocab_size=160, cased=True)
    shutil.rmtree(copy_run(runs / "electra", folder / "drawn", **{"generator.kind": "unigram"}) / "generator")
    shutil.copytree(runs / "electra/discriminator", folder / "mixed/discriminator")
    for source, name in (("electra/generator", "mixed/generator"), ("bert/masked_lm", "cased_bert")):
        shutil.copytree(runs / source, folder / name)
        shutil.copytree(folder / "cased", folder / name, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("model", "code", "values"),
    [
        ("{wrong}/nowhere", "missing", ["{wrong}/nowhere: ", "owner/name"]),
        ("{wrong}", "not-model", ["{wrong}: ", "config.json"]),
        ("{wrong}/unfinished", "unfinished", ["{wrong}/unfinished: "]),
        ("{wrong}/finetuned", "no-head", ["{wrong}/finetuned: "]),
        ("{wrong}/alone", "not-masked-lm", ["{wrong}/alone: ", "discriminator/", "generator/"]),
        ("{runs}/electra/discriminator", "not-masked-lm", ["{runs}/electra/discriminator: ", " {runs}/electra,"]),
        ("{wrong}/drawn", "not-masked-lm", ["{wrong}/drawn: ", "unigram", "--generator.kind masked-lm"]),
        ("{wrong}/pair", "missing-option", ["{wrong}/pair: ", "config.yaml", "--mask-fraction"]),
        ("{wrong}/mixed", "other-tokenizer", ["{wrong}/mixed/generator: ", "{wrong}/mixed/discriminator"]),
    ],
)
def test_models_that_cannot_fill_masks_are_rejected(
    runs: Path, wrong: Path, model: str, code: str, values: list[str]
) -> None:
    words = ["fill-mask", "the [MASK] .", "--model", model.format(runs=runs, wrong=wrong)]
    fails(words, code, *(value.format(runs=runs, wrong=wrong) for value in values))


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        (["the cat ."], "no-mask", ["'the cat .'", "[MASK]"]),
        (["the [MASK] .", "the [mask]\n."], "no-mask", ["'the [mask] .'", "[MASK]"]),
        (["the " * 40 + "[MASK]"], "longer-than-model", [" 43 ", " 32 "]),
        (["the [MASK] .", "--candidates", "0"], "out-of-range", ["--candidates is 0", "1"]),
        (["the [MASK] .", "--top", "0"], "out-of-range", ["--top is 0", "1"]),
        (["the [MASK] .", "--top", "6", "--candidates", "5"], "out-of-range", ["--top 6", "--candidates 5"]),
        (["the [MASK] .", "--mask-fraction", "0.7"], "out-of-range", ["--mask-fraction", "0.7", "0.5"]),
        (["-"], "no-text", ["[MASK]"]),
        ([], "missing-option", ["TEXT", "electra fill-mask --help"]),
    ],
)  # fmt: skip
def test_invalid_texts_and_numbers_are_rejected(
    runs: Path, words: list[str], code: str, values: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    fails(["fill-mask", "--model", runs / "electra", *words], code, *values)


def test_mask_fraction_of_a_masked_language_model_is_rejected(runs: Path) -> None:
    words = ["fill-mask", "[MASK]", "--model", runs / "bert", "--mask-fraction", "0.15"]
    fails(words, "meaningless-option", "--mask-fraction", runs / "bert")


def test_standard_input_that_is_not_utf8_is_rejected(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9 [MASK]\n"), encoding="utf-8"))
    fails(["fill-mask", "-", "--model", runs / "bert"], "not-utf8", "standard input")


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        ("{runs}/electra --examples 0", "out-of-range", ["--examples is 0", "1"]),
        ("{runs}/electra --candidates 0", "out-of-range", ["--candidates is 0", "1"]),
        ("{runs}/bert", "not-electra", ["{runs}/bert: ", "--bert"]),
        ("{runs}/electra --bert {runs}/electra", "not-masked-lm", ["--bert {runs}/electra: ", "--objective mlm"]),
        ("{runs}/electra --bert {wrong}/cased_bert", "other-tokenizer", ["{wrong}/cased_bert: "]),
        ("{wrong}/pair", "not-run", ["{wrong}/pair: ", "config.yaml"]),
        ("{wrong}/unfinished", "unfinished", ["{wrong}/unfinished: "]),
    ],
)
def test_invalid_arguments_of_evaluate_mlm_are_rejected(
    runs: Path, wrong: Path, words: str, code: str, values: list[str]
) -> None:
    expected = (value.format(runs=runs, wrong=wrong) for value in values)
    fails(["evaluate-mlm", *words.format(runs=runs, wrong=wrong).split()], code, *expected)


def test_run_without_a_discriminator_is_rejected(runs: Path, tmp_path: Path) -> None:
    run = copy_run(runs / "electra", tmp_path / "run", objective="replace-mlm")
    fails(["evaluate-mlm", run], "not-electra", f"{run}: ", "--objective replace-mlm")


def test_examples_longer_than_the_positions_are_rejected(runs: Path, text: Path, tmp_path: Path) -> None:
    data = electra.prepare(str(text), tokenizer=str(runs / "tokenizer"), out=str(tmp_path / "d"), seq_len=40, workers=1)
    with raises(DataError, "longer-than-model", data, " 40 ", " 32 ", "--seq-len"):
        electra.evaluate_mlm(str(runs / "electra"), data=str(data))
