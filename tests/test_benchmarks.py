"""Every benchmark at toy sizes: it runs, and its results are consistent. The measured values are meaningless."""

import csv
import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.places import ROOT
from support.toy_tasks import toy_tokenizer, write_glue

pytest.importorskip("transformers")

import curves
import finetune
import loader
import measuring
import peer
import pretrain_step
import run_all
import scaling
import serve
from corpora import prepare_text

from electra.data.loader import pad_batch
from electra.model.encoder import EncoderConfig
from electra.presets import small
from electra.pretraining.build import build_meta_model
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.pretraining.objectives.spec import Vocabulary
from electra.runtime.setup import Runtime

ORIGIN = {"machine", "threads", "commit", "versions", "marks"}


def result(folder: Path, name: str) -> dict:
    found = json.loads((folder / f"{name}.json").read_text())
    assert found.keys() >= ORIGIN
    return found


def toy(name: str, text: Path, out: Path) -> list[str]:
    return [*run_all.SMOKE[name][0], "--text", str(text), f"--out={out}"]


@pytest.mark.slow
def test_pretrain_step(text: Path, tmp_path: Path) -> None:
    pretrain_step.main([*toy("pretrain_step", text, tmp_path), "--threads=1"])
    found = result(tmp_path, "pretrain_step_tiny_4x16_cpu")
    assert set(found["tokens_per_second"]) == set(pretrain_step.SIDES)
    for side in set(pretrain_step.SIDES) - {"electra"}:
        rates = (found["rounds"][each][0] for each in ("electra", side))
        assert found["ratio"][side] == pytest.approx(math.prod((next(rates), 1 / next(rates))))
    assert 0 < found["utilization"] < found["utilization_by_appendix_e"] < 1
    assert found["marks"] == [], "there are marks for the real sizes only"


@pytest.mark.slow
def test_electra_side_with_compilation_and_graphs(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.nn.Module] = []
    monkeypatch.setattr(pretrain_step, "compile_parts", lambda model, device: compiled.append(model))
    given = SimpleNamespace(
        batch_size=4, micro_batch_size=2, compile=True, graphs=True, preset="tiny", seq_len=40, steps=1, backend=""
    )
    data = prepare_text(tmp_path, [str(text)], 0.05, 300, 40)
    case = pretrain_step.build_case(given, data, Runtime(torch.device("cpu"), torch.float32))
    built = case.model()
    assert compiled == [built]
    lengths: set[int] = set()
    monkeypatch.setattr(pretrain_step, "train", lambda model, batches_from, *rest: lengths.update(
        batch.input_ids.shape[1] for micro_batches in batches_from(0) for batch in micro_batches
    ))  # fmt: skip
    pretrain_step.run_our_turns(case, built, range(10), lambda turn: None)
    assert lengths
    assert lengths <= {32, 40}
    assert len(case.loader().batches(0)) == 2


@pytest.mark.slow
def test_side_runs_turns_in_a_separate_process_and_reports_its_errors(text: Path, tmp_path: Path) -> None:
    data = prepare_text(tmp_path, [str(text)], 0.05, 300, 16)
    sizes = ["--preset=tiny", "--batch-size=4", "--seq-len=16", "--steps=1", "--threads=1", "--device=cpu"]
    with measuring.start_side("pretrain_step.py", [*sizes, f"--data={data.path}", "--be=transformers"]) as side:
        turns = [side() for _ in range(2)]
    assert all(turn["seconds"] > 0 and turn["peak"] > 0 for turn in turns)
    wrong = measuring.start_side("pretrain_step.py", ["--be=nobody"])
    with wrong as side, pytest.raises(RuntimeError, match="'nobody'"):
        side()


def test_side_that_ends_between_turns_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "once.py").write_text("import sys\ninput()\nprint(1, flush=True)\nsys.exit('no more turns')")
    monkeypatch.setattr(measuring, "HERE", tmp_path)
    with measuring.start_side("once.py", []) as side:
        assert side() == 1
        time.sleep(1)
        with pytest.raises(RuntimeError, match=r"(?s)once\.py.*no more turns"):
            side()


def test_every_side_has_the_same_sizes(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    @contextmanager
    def start_side(script: str, arguments: list[str]) -> Iterator[Callable[[], dict[str, float]]]:
        started.append(arguments)
        turn = {"seconds": 1.0, "tokens": 9, "places": 10, "flops": 1.0, "matmul": 2.0, "peak": 3}
        yield lambda: turn

    monkeypatch.setattr(pretrain_step, "start_side", start_side)
    monkeypatch.setattr(pretrain_step, "compile_parts", lambda model, device: None)
    monkeypatch.setattr(pretrain_step, "check_graphs", lambda config, runtime: None)
    options = ["--threads=1", "--compile", "--graphs", "--micro-batch-size=2", "--peers", "transformers"]
    pretrain_step.main([*toy("pretrain_step", text, tmp_path), *options])
    assert [arguments[-1] for arguments in started] == ["--be=electra", "--be=transformers"]
    assert all(
        {"--compile", "--graphs", "--micro-batch-size=2", "--seq-len=16", "--steps=1"} <= {*each} for each in started
    )
    found = result(tmp_path, "pretrain_step_tiny_4x16_compiled_graphs_cpu")
    assert found["tokens_per_second"] == {"electra": 9, "transformers": 9}
    assert found["places_filled"] == 0.9
    assert found["utilization_by_appendix_e"] == 0.5


def build_peer_config(sizes: EncoderConfig, masked_only: bool = False) -> peer.PeerConfig:
    generator = compute_generator_sizes(sizes, small().generator)
    return peer.PeerConfig(sizes, generator, 0.15, Vocabulary(sizes.vocab_size, 4, (0, 2, 3, 4)), 24, masked_only)


def test_peer_has_as_many_parameters_as_electra() -> None:
    config = small()
    with torch.device("meta"):
        theirs = peer.HuggingFaceElectra(build_peer_config(config.model))
    count = [sum(p.numel() for p in model.parameters()) for model in (theirs, build_meta_model(config))]
    assert count[0] == count[1]


def test_peer_computes_the_loss_of_an_untrained_electra() -> None:
    sizes = EncoderConfig(500, 32, 64, 2, 4, 128, dropout=0.0, attention_dropout=0.0)
    rows = [[2, *range(10, 20 + row), 3] for row in range(4)]
    batch = pad_batch(rows, [len(row) for row in rows], 0)
    losses = []
    for masked_only in (False, True):
        torch.manual_seed(0)
        model = peer.HuggingFaceElectra(build_peer_config(sizes, masked_only))
        torch.manual_seed(1)
        losses.append(model(batch.input_ids, batch.token_type_ids, batch.attention_mask).item())
    assert losses[0] == pytest.approx(math.log(500) + 50 * math.log(2), rel=0.02)
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


def test_logits_do_not_depend_on_padding() -> None:
    sizes = EncoderConfig(500, 32, 64, 2, 4, 128, dropout=0.0, attention_dropout=0.0)
    batch = pad_batch([[2, *range(10, 20), 3]], [12], 0)
    longer = peer.pad_to_length(batch, 24, 0)
    assert longer.input_ids.shape == (1, 24)
    model = peer.HuggingFaceElectra(build_peer_config(sizes)).discriminator
    plain = model(batch.input_ids, token_type_ids=batch.token_type_ids).logits
    padded = model(longer.input_ids, attention_mask=longer.attention_mask, token_type_ids=longer.token_type_ids).logits
    assert torch.allclose(plain, padded[:, :12], atol=1e-5)


@pytest.mark.slow
def test_prepare_by_run_all(text: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("datasets")
    assert run_all.main(["--smoke", "--only", "prepare", "finetune", "--text", str(text), f"--out={tmp_path}"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("== finetune"))
    assert "--glue and --tokenizer" in line, "skipped without these options"
    found = result(tmp_path, "prepare")
    assert found["passes"] > 1
    assert [mark["what"] for mark in found["marks"]] == [
        "times the bare tokenizers library",
        "times the datasets recipe",
    ]
    assert found["text"] == [text.name]
    assert set(found["peak_bytes"]) == {"electra 0.02", "tokenizers 0.02", "datasets 0.02", "electra 0.2"}
    bare, ours = (0.02 / found["rounds"][f"{side} 0.02"][0] for side in ("tokenizers", "electra"))
    assert found["marks"][0]["value"] == pytest.approx(ours / bare)


@pytest.mark.slow
def test_loader(text: Path, tmp_path: Path) -> None:
    loader.main([*toy("loader", text, tmp_path), "--threads=1"])
    found = result(tmp_path, "loader_cpu")
    assert found["step"]["share"] == pytest.approx(found["step"]["rounds"][0])
    assert [mark["value"] for mark in found["marks"]] == [found["step"]["share"], found["start_seconds"][0]]


@pytest.mark.slow
def test_serve(text: Path, tmp_path: Path) -> None:
    serve.main([*toy("serve", text, tmp_path), "--threads=1"])
    found = result(tmp_path, "serve_cpu")
    others = {*serve.ONNX.values(), serve.ONE, serve.BATCHES}
    assert set(found["sentences_per_second"]) == {serve.OURS, *others}
    assert set(found["same_label"]) == others
    assert {share for name, share in found["same_label"].items() if name != serve.ONNX["int8"]} == {1}
    assert found["marks"][0]["value"] == min(found["ratio"][name] for name in (serve.ONE, serve.BATCHES))


@pytest.mark.slow
def test_scaling(tmp_path: Path, capsys) -> None:
    step = {"threads": 2, "matmul_flops_per_second": 2e11, "utilization": 0.5}
    (tmp_path / f"{scaling.STEP}.json").write_text(json.dumps(step))
    loader = {"step": {"batches_per_second": 100}, "batch_size": 16, "seq_len": 128}
    (tmp_path / "loader_cpu.json").write_text(json.dumps(loader))
    alone, _, few, many = scaling.list_machines(tmp_path)
    model, config = build_meta_model(small()), small()
    operations = 128 * model.row_flops(128) * model.utilized_share(128)
    on_one, on_eight, on_all = (scaling.compute_cost("small", config, machine) for machine in (alone, few, many))
    assert on_one.compute == pytest.approx(operations / 1e11)
    assert on_one.shortest == on_one.longest == pytest.approx(1_000_000 * operations / 1e11)
    assert on_one.loader == pytest.approx(128 / 16 / 100)
    assert on_eight.compute == pytest.approx(operations / 8 / (989e12 * 0.45))
    parameters = sum(p.numel() for p in model.parameters())
    assert on_eight.traffic == pytest.approx(2 * 7 / 8 * 4 * parameters / 450e9)
    assert on_all.traffic / on_eight.traffic == pytest.approx(450 / 400 * (63 / 64) / (7 / 8))
    scaling.main([f"--results={tmp_path}"])
    assert capsys.readouterr().out.count("\n| ") == 13


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(8e7, "2.54 years"), (90_000, "1.04 days"), (600, "10 minutes"), (0.0026, "2.6 ms"), (0, "0 µs")],
)
def test_durations(seconds: float, expected: str) -> None:
    assert scaling.format_duration(seconds) == expected


def test_finetune(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    toy_tokenizer().save(tmp_path / "tokenizer")
    data = [f"--data={write_glue(tmp_path / 'glue')}", f"--tokenizer={tmp_path / 'tokenizer'}", "--tasks=rte"]
    finetune.main([*run_all.SMOKE["finetune"][0], *data, f"--out={tmp_path}", "--threads=1"])
    (row,) = result(tmp_path, "finetune")["rows"]
    assert row["ratio"] == pytest.approx(row["rounds"]["electra"][0] / row["rounds"]["Trainer"][0])


@pytest.mark.slow
def test_failed_benchmark_is_reported(tmp_path: Path, capsys) -> None:
    options = ["--smoke", "--only", "prepare", "--text", str(tmp_path / "none"), f"--out={tmp_path}"]
    assert run_all.main(options) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "failed: prepare"


def test_toy_sizes_need_a_separate_folder(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        run_all.main(["--smoke", "--only", "prepare"])
    assert stop.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--smoke" in error
    assert "--out" in error


def test_benchmark_without_runs_for_a_device_is_skipped(tmp_path: Path, capsys) -> None:
    assert run_all.main(["--device", "cuda", "--only", "prepare", f"--out={tmp_path}"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("== "))
    assert line.startswith("== prepare")
    assert line.endswith("cuda"), "skipped, not run with --device cuda"


def test_missed_marks_are_reported(tmp_path: Path, capsys) -> None:
    marks = [measuring.Mark("speed", 1.0, 2.0), measuring.Mark("memory", 1.0, 2.0, at_most=True)]
    measuring.report("this", tmp_path, marks, {}, threads=1)
    assert capsys.readouterr().out.splitlines() == [
        "speed: 1 (at least 2)   MARK MISSED",
        "memory: 1 (at most 2)",
    ]
    assert run_all.list_missed(tmp_path, 0.0) == ["this: speed: 1, at least 2"]


@pytest.mark.parametrize(("flags", "has"), [("avx512f amx_bf16 amx_tile", True), ("avx2 fma", False)])
def test_bfloat16_is_measured_on_cpus_with_amx(
    flags: str, has: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    assert run_all.has_amx(tmp_path / "cpuinfo") == has
    assert not run_all.has_amx(tmp_path / "nowhere")
    monkeypatch.setattr(run_all, "has_amx", lambda: has)
    assert any("--precision=bfloat16" in each for each in run_all.select_runs("cpu")["pretrain_step"]) == has
    assert run_all.select_runs("cuda") == run_all.GPU


def test_result_has_its_commit_and_marks_changed_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*command: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *settings, *command], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    monkeypatch.setattr(measuring, "HERE", tmp_path / "benchmarks")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    assert measuring.commit() is None
    files = [tmp_path / name for name in ("benchmarks/results/a.json", "README.md", "benchmarks/a.py")]
    for file in files:
        file.write_text("a")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    head = git("rev-parse", "HEAD").strip()
    for file, mark in zip(files, ("", "", "+"), strict=True):
        file.write_text("b")
        assert measuring.commit() == head + mark


def test_sides_take_turns_and_ratios_are_of_rounds() -> None:
    order: list[str] = []
    clock = {"a": iter([9.0, 1.0, 2.0, 30.0]), "b": iter([9.0, 2.0, 4.0, 10.0])}
    measured = measuring.run_interleaved(
        {name: lambda name=name: order.append(name) or next(clock[name]) for name in "ab"}, 3
    )
    assert order == list("abababab")
    assert measured == {"a": [1.0, 2.0, 30.0], "b": [2.0, 4.0, 10.0]}
    assert measuring.compute_median_ratio(measured["a"], measured["b"]) == 0.5


def test_curves_of_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are those at multiples of a step, and the last one; BERT has no AUC."""
    known = {"gradient_norm": 1.0, "learning_rate": 1e-3, "seconds": 1.0, "tokens": 1.0, "flops": 1.0}
    for variant, seed, more in (("mlm", 1, {}), ("electra", 0, {"auc": 0.51239, "generator_loss": 6.5})):
        run = tmp_path / f"runs/{variant}/seed-{seed}"
        run.mkdir(parents=True)
        rows = [{"step": step, "loss": 1 / step, **known, **more} for step in (10, 20, 30, 40, 45)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curves.main([str(tmp_path), "--every", "20"])
    found = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert found[0] == ["variant", "seed", "step", "loss", "generator_loss", "sampled_accuracy", "auc"]
    assert found[1] == ["electra", "0", "20", "0.05", "6.5", "", "0.5124"]
    assert [row[:3] for row in found[1:]] == [
        [*run, step] for run in (["electra", "0"], ["mlm", "1"]) for step in ("20", "40", "45")
    ]
    assert found[-1][3:] == ["0.02222", "", "", ""]
    with pytest.raises(SystemExit):
        curves.main([str(tmp_path / "nothing")])


def test_published_curves_have_the_columns_of_the_script() -> None:
    for path in (ROOT / "docs/research/results").glob("*-curves.csv"):
        with path.open() as file:
            assert next(csv.reader(file)) == ["variant", "seed", "step", *curves.METRICS], path
