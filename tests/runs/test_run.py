"""Pre-training as a user runs it: files of a run, separate commands, evaluation, budgets, precision, warm start."""

import json
import statistics
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.errors import notices, raises
from support.toy import trace, weights
from transformers import AutoModel, AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining, pipeline

import electra
from electra.config.files import to_yaml
from electra.config.resolve import resolve
from electra.errors import RunError
from electra.presets import tiny
from electra.pretraining import run as run_module
from electra.runtime.setup import RuntimeConfig, choose_dtype
from electra.train.metrics_log import read_metrics

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_files_of_a_run(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "checkpoints",
        "config.yaml",
        "data",
        "discriminator",
        "events",
        "generator",
        "metrics.jsonl",
        "pictures",
        "report.html",
        "summary.json",
        "tokenizer",
    }
    rows = list(read_metrics(finished / "metrics.jsonl"))
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert rows[-1].keys() >= {
        "loss", "generator_loss", "discriminator_loss", "generator_accuracy", "replaced", "accuracy", "majority",
        "precision", "recall", "auc", "gradient_norm", "learning_rate", "tokens_per_second", "flops", "mfu",
    }  # fmt: skip
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["generator_loss"] + 5 * rows[-1]["discriminator_loss"])
    assert rows[-1]["flops"] > rows[0]["flops"] > 0
    assert any((finished / "events").iterdir())
    assert {path.name for path in (finished / "checkpoints").iterdir()} == {f"step-{n:08d}" for n in (4, 8, 12)}
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["step"] == 12
    assert summary["heldout"].keys() >= {
        "generator_accuracy",
        "auc",
        "frequency_auc",
        "majority",
        "precision",
        "recall",
    }


def test_the_report_contains_pictures_metrics_and_sentences(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert {path.name for path in (finished / "pictures").iterdir()} == {
        "training.png",
        "detection.png",
        "sentences.png",
    }
    for part in ("area under the ROC curve", "of token frequency alone", "<h2>Health</h2>", "Three held-out sentences"):
        assert part in page
    assert page.count("<p class=s>") == 3


@torch.no_grad()
def test_hugging_face_loads_the_models_with_the_same_outputs(finished: Path, text: Path) -> None:
    from electra.data.shards import PreparedData
    from electra.pretraining.build import build_model
    from electra.pretraining.config import load_saved_config
    from electra.text.tokenizer import load_tokenizer
    from electra.train.checkpoint import Checkpoints

    unigrams = torch.from_numpy(PreparedData.open(finished / "data").unigrams)
    model = build_model(load_saved_config(finished / "config.yaml"), load_tokenizer(finished / "tokenizer"), unigrams)
    Checkpoints(finished / "checkpoints", 3).restore(model)
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "discriminator")
    for sentences in (["the cat sees mice ."], ["the cat sees mice .", "the owl hunts ."]):
        inputs = tokenizer(sentences, padding=True, return_tensors="pt")
        ids, types, mask = inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"].bool()
        ours = model.target.network(ids, types, mask)
        theirs = ElectraForPreTraining.from_pretrained(finished / "discriminator").eval()(**inputs).logits
        torch.testing.assert_close(ours[mask], theirs[mask], atol=1e-5, rtol=0)
        hidden = AutoModel.from_pretrained(finished / "discriminator").eval()(**inputs).last_hidden_state
        torch.testing.assert_close(
            model.target.network.encoder(ids, types, mask)[mask], hidden[mask], atol=1e-5, rtol=0
        )
        logits = ElectraForMaskedLM.from_pretrained(finished / "generator").eval()(**inputs).logits
        everywhere = torch.arange(ids.shape[1]).expand_as(ids)
        torch.testing.assert_close(model.generator(ids, types, mask, everywhere)[mask], logits[mask], atol=1e-5, rtol=0)


def test_the_saved_tokenizer_has_the_maximum_length_of_the_model(finished: Path) -> None:
    for name in ("discriminator", "generator"):
        assert AutoTokenizer.from_pretrained(finished / name).model_max_length == 32


def test_the_report_lists_the_settings(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    summary = json.loads((finished / "summary.json").read_text())
    for fact in (
        f"{summary['tokens']:,.0f} tokens",
        "<td>budget<td>12 steps",
        "<td>peak learning rate<td>0.002",
        "<td>batch<td>8 sequences of up to 24 tokens",
        "<td>options start from<td>preset tiny",
    ):
        assert fact in page


def test_fill_mask(finished: Path) -> None:
    guesses = pipeline("fill-mask", str(finished / "generator"))("the cat [MASK] mice .")
    assert len(guesses) == 5
    assert all(guess["sequence"].startswith("the cat") for guess in guesses)


def test_a_finished_run_is_reported_and_not_changed(finished: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = (finished / "summary.json").stat().st_mtime_ns
    summary = electra.pretrain(out=str(finished))
    (notice,) = notices(caplog, "finished")
    assert notice.startswith(f"{finished} ")
    assert " 12 " in notice
    [checkpoint], [report] = notices(caplog, "saved"), notices(caplog, "report")
    assert f" {finished / 'discriminator'}, {finished / 'generator'}" in checkpoint
    assert f" {finished / 'report.html'}" in report
    assert summary == json.loads((finished / "summary.json").read_text())
    assert (finished / "summary.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_the_saved_configuration_repeats_the_run(finished: Path, tmp_path: Path) -> None:
    electra.pretrain(out=str(tmp_path / "again"), config=str(finished / "config.yaml"))
    assert trace(tmp_path / "again") == trace(finished)
    assert weights(tmp_path / "again") == weights(finished)


@pytest.mark.slow
def test_separate_commands_give_the_same_run(finished: Path, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """tokenizer, prepare and pretrain --data give the same weights as one command."""
    tokenizer = electra.tokenizer([str(text)], out=str(tmp_path / "t"), vocab_size=160)
    data = electra.prepare([str(text)], tokenizer=str(tokenizer), out=str(tmp_path / "d"), seq_len=24)
    electra.pretrain(data=str(data), out=str(tmp_path / "run"), **tiny_run)
    assert trace(tmp_path / "run") == trace(finished)
    assert not (tmp_path / "run/data").exists()


def test_a_string_is_one_source(text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = electra.tokenizer(str(text), out=str(tmp_path / "t"), vocab_size=160)
    data = electra.prepare(
        str(text / "a.txt"), tokenizer=str(tokenizer), out=str(tmp_path / "d"), seq_len=24, workers=1
    )
    _, source = notices(caplog, "text")
    assert f" {text / 'a.txt'} (" in source
    assert source.endswith(", 1 source)")
    (notice,) = notices(caplog, "trained-tokenizer")
    assert f" --tokenizer {tokenizer} " in notice
    (notice,) = notices(caplog, "prepared")
    assert f"electra pretrain --data {data} " in notice


def test_evaluate(finished: Path, tmp_path: Path, text: Path) -> None:
    metrics = electra.evaluate(str(finished))
    assert metrics == json.loads((finished / "summary.json").read_text())["heldout"]
    other = electra.prepare(
        [str(text / "b.txt")], tokenizer=str(finished / "tokenizer"), out=str(tmp_path / "d"), seq_len=24
    )
    elsewhere = electra.evaluate(str(finished), data=str(other))
    assert elsewhere["evaluated_tokens"] != metrics["evaluated_tokens"]
    with raises(RunError, "not-run", f"{tmp_path}: ", "config.yaml"):
        electra.evaluate(str(tmp_path))


@pytest.mark.slow
def test_a_budget_in_flops(finished: Path, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    spent = json.loads((finished / "summary.json").read_text())["flops"]
    tiny_run.pop("steps")
    summary = electra.pretrain(str(text), out=str(tmp_path / "run"), flops=spent, **tiny_run)
    assert (summary["step"], summary["flops"]) == (12, spent)
    rates = [row["learning_rate"] for row in read_metrics(tmp_path / "run/metrics.jsonl")]
    assert min(rates) > 0, "no update has a learning rate of 0"


@pytest.mark.parametrize(("has_it", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_on_gpus_that_support_it_natively(
    has_it: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: has_it or including_emulation)
    assert choose_dtype(RuntimeConfig(), torch.device("cuda")) == dtype


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "steps", "close"), [("cpu", 40, 0.02), pytest.param("cuda", 200, 0.01, marks=NEEDS_GPU)]
)
def test_bfloat16_is_close_to_float32(
    device: str, steps: int, close: float, text: Path, tmp_path: Path, tiny_run: dict
) -> None:
    """With the same seed the final losses are close; the weights stay in float32."""
    tiny_run |= {"steps": steps}
    losses = []
    for name in ("float32", "bfloat16"):
        out = tmp_path / name
        electra.pretrain(str(text), out=str(out), **tiny_run, runtime={"device": device, "precision": name})
        losses.append([row["loss"] for row in read_metrics(out / "metrics.jsonl")])
    exact, rounded = losses
    assert statistics.fmean(rounded[-20:]) == pytest.approx(statistics.fmean(exact[-20:]), rel=close)
    assert rounded != exact
    (*_, checkpoint) = sorted((tmp_path / "bfloat16/checkpoints").iterdir())
    assert {tensor.dtype for tensor in load_file(checkpoint / "model.safetensors").values()} == {torch.float32}


@pytest.mark.slow
def test_domain_adaptation_continues_from_a_run(finished: Path, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """--init loads both networks and the tokenizer, so the first loss is close to the last one of the other run."""
    electra.pretrain(str(text / "b.txt"), out=str(tmp_path / "run"), init=str(finished), **tiny_run)
    first = next(read_metrics(tmp_path / "run/metrics.jsonl"))
    untrained, trained = (row["loss"] for row in (trace(finished)[0], trace(finished)[-1]))
    assert abs(first["loss"] - trained) < abs(first["loss"] - untrained)
    assert (tmp_path / "run/tokenizer/vocab.txt").read_text() == (finished / "tokenizer/vocab.txt").read_text()


@pytest.mark.slow
def test_domain_adaptation_from_a_discriminator_alone(
    finished: Path, text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(finished / "discriminator"), **tiny_run)
    (notice,) = notices(caplog, "no-generator")
    assert str(finished / "discriminator") in notice


@pytest.mark.slow
def test_reference_runs(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """A run with all settings of the original code."""
    from electra.presets import reference

    config = reference(resolve(tiny(), {}, tiny_run | {"text": [str(text)], "hours": None}))
    assert "with_replacement: true" in to_yaml(config)
    run_module.pretrain(config, tmp_path / "run")
    first, *_ = read_metrics(tmp_path / "run/metrics.jsonl")
    assert first["learning_rate"] == 0.0, "the first update of the original code has a learning rate of 0"
