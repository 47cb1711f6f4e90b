"""Running a study: its files, failing variants, and interruptions."""

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml
from support import toy_studies
from support.errors import fails, notices, raises
from support.toy_studies import TASKS, study_config, toy_scale, toy_study
from support.toy_tasks import write_glue, write_neighbors

import electra
from electra import cli
from electra.errors import DataError, RunError, UsageError
from electra.finetuning.config import build_finetune_config
from electra.finetuning.preparation import resolve_hyperparameters
from electra.finetuning.recipe import find_size_recipe
from electra.finetuning.registry import TASKS as FINETUNING_TASKS
from electra.runtime.setup import RuntimeConfig
from electra.studies import run as run_module
from electra.studies import trial as trial_module
from electra.studies.catalog import STUDIES
from electra.studies.compute import compute_step_flops
from electra.studies.inputs import fit_scale_to_data
from electra.studies.instruments import EvalConfig
from electra.studies.run import build_trial, run_study
from electra.studies.scales import Scale
from electra.studies.study import Study
from electra.studies.trial import Trial, finetune_trial
from electra.studies.trial_processes import describe_exit, select_gpu

pytestmark = pytest.mark.slow


def rows_of(out: Path) -> dict[tuple[str, int], dict[str, str]]:
    with (out / "results.csv").open() as file:
        return {(row["variant"], int(row["seed"])): row for row in csv.DictReader(file)}


def test_every_variant_and_seed_has_a_row(done) -> None:
    out, returned = done
    rows = rows_of(out)
    assert set(rows) == {(name, seed) for name in ("electra", "mlm", "broken", "untrained") for seed in (0, 1)}
    assert len(returned["rows"]) == len(rows)
    assert rows["untrained", 1]["status"] == "not run"
    for name in ("electra", "mlm"):
        row = rows[name, 1]
        assert row["status"] == "done"
        for column in ("flops", "step", "tokens", "seconds", *TASKS, "average", "heldout_loss"):
            assert float(row[column]) == float(row[column]), column
        assert float(row["average"]) == pytest.approx(statistics.fmean(float(row[task]) for task in TASKS))
        probes = [float(row[f"probe_{task}"]) for task in TASKS]
        assert float(row["probe_average"]) == pytest.approx(statistics.fmean(probes))
    assert float(rows["electra", 0]["heldout_auc"]) > 0
    seed = json.loads((out / "runs/electra/seed-1/summary.json").read_text())
    assert float(rows["electra", 1]["flops"]) == seed["flops"]
    assert rows["electra", 0]["heldout_loss"] != rows["electra", 1]["heldout_loss"], "seeds differ"


def test_runs_have_equal_compute(done) -> None:
    out, _ = done
    rows = rows_of(out)
    spent = [float(rows[name, seed]["flops"]) for name in ("electra", "mlm") for seed in (0, 1)]
    assert max(spent) / min(spent) < 1.01
    assert all(abs(flops / 1e9 - 1) < 0.01 for flops in spent)
    assert float(rows["mlm", 0]["step"]) > float(rows["electra", 0]["step"])


def test_failed_variant_is_reported_and_others_continue(done) -> None:
    out, _ = done
    row = rows_of(out)["broken", 0]
    assert row["status"].startswith("failed: ")
    assert "batch_size=4 is not a multiple of micro_batch_size=3" in row["status"]
    table = (out / "table.md").read_text()
    assert "- Failed: uneven batches, seed 0: " in table
    assert "batch_size=4 is not a multiple of micro_batch_size=3" in table.split("- Failed")[1].split("\n")[0]
    assert "| 0 (2 failed) |" in table


def test_table_has_all_variants_and_scores(done) -> None:
    out, _ = done
    rows, table = rows_of(out), (out / "table.md").read_text()
    assert "| Model | ELECTRA | BERT | uneven batches | one update |" in table, "transposed as in Table 5"
    assert "| GLUE in the paper | 85.0 | 82.2 |  |  |" in table
    values = [float(rows["electra", seed]["sst2"]) for seed in (0, 1)]
    line = next(line for line in table.split("## Fine-tuned")[1].splitlines() if line.startswith("| ELECTRA |"))
    assert line.startswith(f"| ELECTRA | {statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} |")
    assert "footnote 7" in table
    assert "| SST | STS | Avg. |" in table


def test_figure_is_written(done) -> None:
    out, _ = done
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    drawing = (out / "figure.svg").read_text()
    for words in ("ELECTRA", "uneven batches", "no result", "linear probe, best layer", "the paper: Table 5"):
        assert words in drawing


def test_fine_tuning_length_is_limited_by_positions(done, data: Path) -> None:
    out, _ = done
    config = yaml.safe_load((out / "finetuned/electra/seed-1/sst2/seed-1/config.yaml").read_text())
    pretrained = yaml.safe_load((out / "runs/electra/seed-1/config.yaml").read_text())
    assert config["max_length"] == pretrained["model"]["max_positions"] == 64
    steps = round(10 / 200 * 1e9 / compute_step_flops(fit_scale_to_data(toy_scale(), str(data), out).config))
    assert (pretrained["seq_len"], pretrained["length_warmup"]) == (24, {"steps": steps, "length": 8})
    numbers = [re.findall(r"\d+%?", line) for line in (out / "table.md").read_text().splitlines()]
    assert ["24", "8", "5%", "24", "64"] in numbers, "lengths in pre-training, probe and fine-tuning"


def test_narrow_encoders_are_fine_tuned_by_their_recipe(done) -> None:
    out, _ = done
    for task in ("sst2", "stsb"):
        folder = out / "finetuned/electra/seed-1" / task
        config = build_finetune_config(task, {"model": "m"})
        encoder = replace(toy_scale().config.model, hidden_size=16)
        results = json.loads((folder / "results.json").read_text())
        examples = results["data"]["train"]["examples"]
        expected = resolve_hyperparameters(config, FINETUNING_TASKS[task], encoder, examples)
        assert results["hyperparameters"] == asdict(expected)
        size = find_size_recipe(encoder)
        assert size != find_size_recipe(replace(encoder, hidden_size=256)), "not those of Table 7"
        assert expected.learning_rate == size.learning_rate


def test_finetuned_models_are_deleted_and_scores_kept(done) -> None:
    out, _ = done
    seed = out / "finetuned/electra/seed-1/sst2/seed-1"
    assert (seed / "predictions-dev.jsonl").exists()
    assert not (seed / "model").exists()
    assert (out / "runs/electra/seed-1/discriminator/config.json").exists()


def test_second_call_runs_only_what_is_new(own: Path, data: Path, glue: Path) -> None:
    out = own
    before = {path: path.stat().st_mtime_ns for path in out.rglob("config.yaml")}
    returned = run_study(study_config(data, glue, out, seeds=2, tasks=("sst2", "stsb", "rte"), variants=("mlm",)))
    after = {path: path.stat().st_mtime_ns for path in out.rglob("config.yaml")}
    assert before.items() <= after.items()
    new = {str(path.relative_to(out)) for path in after.keys() - before.keys()}
    assert new == {f"finetuned/mlm/seed-{seed}/rte/seed-{seed}/config.yaml" for seed in (0, 1)}
    average = {row["variant"]: row.get("average") for row in returned["rows"]}
    assert average["mlm"] is not None
    assert average["electra"] is None, "RTE was not requested for it"
    run_study(study_config(data, glue, out, seeds=1, variants=("mlm",), tasks=("rte",)))
    row = rows_of(out)["mlm", 1]
    assert row["status"] == "done", "fewer seeds requested, all are kept"
    assert float(row["average"]) == pytest.approx(statistics.fmean(float(row[task]) for task in (*TASKS, "rte")))
    assert rows_of(out)["electra", 1]["sst2"], "fewer tasks requested, all are kept"
    assert rows_of(out)["electra", 1]["status"] == "scored in part"
    assert "- Scored in part: ELECTRA, seed 1; not yet on rte" in (out / "table.md").read_text()
    record = json.loads((out / "trials/mlm-seed-1.json").read_text())
    assert record["finetuned"].keys() == record["probed"].keys() == {"sst2", "stsb", "rte"}, "all tasks are kept"


def test_instruments_run_where_they_are_requested(own: Path, data: Path, glue: Path, tmp_path: Path) -> None:
    out = own
    pairs = tmp_path / "pairs.jsonl"
    lines = [
        {"sentence_good": f"the cat sees {thing} .", "sentence_bad": f"cat the {thing} sees ."}
        for thing in ("mice", "milk")
    ]
    pairs.write_text("\n".join(json.dumps(line | {"linguistics_term": "order"}) for line in lines))
    instruments = {"tags": str(tmp_path / "tags"), "minimal_pairs": (str(pairs),)}
    for split in ("train", "dev"):
        write_neighbors(tmp_path / "tags" / f"{split}.txt", 60, seed=len(split))
    run_study(study_config(data, glue, out, variants=("mlm",), **instruments))
    run_study(study_config(data, glue, out, variants=("mlm",)))  # existing scores are kept
    row, table = rows_of(out)["mlm", 0], (out / "table.md").read_text()
    assert row["status"] == "done"
    record = json.loads((out / "trials/mlm-seed-0.json").read_text())
    found = record["tags"]
    assert len(set(found["layers"])) > 1
    given = [float(row[name]) for name in ("tags_embeddings", "tags", "tags_last", "tags_layer")]
    assert given == [found["layers"][i] for i in (0, found["layer"], -1)] + [found["layer"]]
    assert rows_of(out)["electra", 0]["status"] == "scored in part"
    assert "- Scored in part: ELECTRA, seed 0; not yet on tags, pairs" in table
    checksum = hashlib.sha256(hashlib.sha256(pairs.read_bytes()).digest()).hexdigest()[:16]
    assert record["pairs"]["source"] == f"pairs.jsonl (SHA-256 {checksum})"
    expected = electra.minimal_pairs(out / "runs/mlm/seed-0", pairs)["methods"]
    # The bad sentences have the tokens of the good ones in another order.
    assert record["pairs"]["frequencies"] == float(row["pairs_frequencies"]) == 50.0
    assert record["pairs"]["methods"] == {
        "masked-lm": {"overall": expected["masked-lm"]["overall"], **expected["masked-lm"]["phenomenon"]}
    }
    assert float(row["pairs_masked_lm"]) == expected["masked-lm"]["overall"]
    assert row["pairs_discriminator"] == ""
    assert "## Minimal pairs" in table
    assert [float(row[name]) for name in ("similarity_embeddings", "similarity_last")] == [
        record["similarity"]["layers"][layer] for layer in (0, -1)
    ]
    assert "| Tags |  | " in table
    assert "words (dev of dev.txt, train.txt (SHA-256 " in table
    drawing = (out / "figure.svg").read_text()
    assert "accuracy of word tags" in drawing
    assert "minimal pairs" in drawing
    other = tmp_path / "other.jsonl"
    other.write_text(pairs.read_text().replace("mice", "mouse"))
    with raises(RunError, "other-data", "pairs", pairs.name, other.name, "--out"):
        run_study(study_config(data, glue, out, minimal_pairs=(str(other),)))
    write_neighbors(tmp_path / "others" / "dev.txt", 60, seed=1)
    shutil.copy(tmp_path / "tags" / "train.txt", tmp_path / "others")
    with raises(RunError, "other-data", "tags", "--out"):
        run_study(study_config(data, glue, out, tags=str(tmp_path / "others")))
    shutil.move(tmp_path / "tags", tmp_path / "moved")
    run_study(study_config(data, glue, out, variants=("mlm",), tags=str(tmp_path / "moved")))


def test_records_are_continued_on_another_machine(own: Path, data: Path, glue: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(own / "trials", elsewhere / "trials")
    run_study(study_config(data, glue, elsewhere, seeds=2, variants=("mlm",)))
    assert not (elsewhere / "runs").exists(), "finished trials are not run again"
    assert rows_of(elsewhere)["mlm", 1] == rows_of(own)["mlm", 1]
    with raises(DataError, "missing", tmp_path / "nowhere"):
        run_study(study_config(data, glue, own, tags=str(tmp_path / "nowhere")))


def test_failed_task_does_not_stop_other_tasks(
    text: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "study"
    run_study(study_config(text, glue, out, variants=("untrained",), tasks=("sst2",)))
    study, eval_config = toy_study(toy_scale()), EvalConfig(str(glue), ("sst2", "stsb", "rte"))
    trial = build_trial(study, study.variants[-1], 0, study_config(text, glue, out), str(out / "data"), eval_config)

    def finetune_or_fail(trial: Trial, task: str) -> dict:
        if task == "rte":
            raise UsageError("test", "rte")
        return finetune_trial(trial, task)

    monkeypatch.setattr(trial_module, "finetune_trial", finetune_or_fail)
    with raises(UsageError, "test", "rte"):
        trial_module.run_trial(trial)
    record = trial.record()
    assert record["finetuned"].keys() == record["probed"].keys() == {"sst2", "stsb"}
    assert not trial.is_finished()


def test_probes_first_and_fine_tuning_later(text: Path, glue: Path, tmp_path: Path) -> None:
    words = {"variants": ("untrained",), "tasks": ("sst2",)}
    run_study(study_config(text, glue, tmp_path / "study", finetune_seeds=0, **words))
    row = rows_of(tmp_path / "study")["untrained", 0]
    assert row["status"] == "done"
    assert float(row["probe_sst2"]) == float(row["probe_average"])
    assert not row.get("sst2")
    assert not (tmp_path / "study/finetuned").exists()
    assert "Fine-tuned" not in (tmp_path / "study/table.md").read_text()
    assert "fine-tuned" not in (tmp_path / "study/figure.svg").read_text()
    path = tmp_path / "study/trials/untrained-seed-0.json"
    record = json.loads(path.read_text())
    record["probed"]["sst2"]["best"] = 12.5  # a probe that ran again would find another number
    path.write_text(json.dumps(record))
    run_study(study_config(text, glue, tmp_path / "study", **words))
    assert float(rows_of(tmp_path / "study")["untrained", 0]["sst2"])
    assert float(rows_of(tmp_path / "study")["untrained", 0]["probe_sst2"]) == 12.5
    assert "## Fine-tuned" in (tmp_path / "study/table.md").read_text()
    assert "fine-tuned" in (tmp_path / "study/figure.svg").read_text()


def test_dry_run_counts_unfinished_runs(done, data: Path, glue: Path, caplog: pytest.LogCaptureFixture) -> None:
    out, _ = done
    words = {"variants": ("electra", "mlm"), "tasks": TASKS}
    plan = run_study(study_config(data, glue, out, seeds=3, **words), dry_run=True)
    assert {row["variant"]: row["runs"] for row in plan["rows"]} == {"electra": 1, "mlm": 1}
    assert notices(caplog, "study")
    caplog.clear()
    assert run_study(study_config(data, glue, out, seeds=2, **words), dry_run=True)["hours"] == 0
    assert not notices(caplog, "study")
    (message,) = notices(caplog, "study-done")
    assert "A toy study" in message


def test_stopped_run_is_not_finished(
    own: Path, data: Path, glue: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After SIGTERM to one trial process, neither scores nor a failure are recorded."""
    monkeypatch.setattr(
        run_module, "run_trials", lambda trials, workers, started, ended: [ended(trial) for trial in trials]
    )
    returned = run_study(study_config(data, glue, own, seeds=3, variants=("mlm",)))
    assert returned["failed"] == ["mlm-seed-2"]
    (message,) = notices(caplog, "trial-stopped")
    assert "mlm-seed-2" in message


def test_directory_of_another_study_raises(done, data: Path, glue: Path, tmp_path: Path) -> None:
    out, _ = done
    (tmp_path / "other.txt").write_text("the cat sees mice .\n")
    with raises(RunError, "other-configuration", "its data is", data, tmp_path / "other.txt", "--out"):
        run_study(study_config(tmp_path / "other.txt", glue, out))
    other_tasks = write_glue(tmp_path / "glue")
    with raises(RunError, "other-configuration", "its glue is", glue, other_tasks, "--out"):
        run_study(study_config(data, other_tasks, out))
    with raises(RunError, "other-configuration", "its rates is", "{}", "{'mlm': 0.001}", "--out"):
        run_study(study_config(data, glue, out, rates={"mlm": 1e-3}))
    with raises(RunError, "other-configuration", "its hours is", "None", "2.0"):
        run_study(study_config(data, glue, out, hours=2.0))
    with raises(RunError, "not-study", tmp_path, "--out"):
        run_study(study_config(data, glue, tmp_path))


def test_runs_of_another_configuration_raise(done, data: Path, glue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = done

    def changed(scale: Scale) -> Study:
        return toy_study(replace(scale, config=replace(scale.config, loss_weight=7.0)))

    monkeypatch.setitem(STUDIES, "toy", changed)
    with raises(RunError, "other-configuration", "electra/seed-0", "--loss-weight", "5.0", "7.0"):
        run_study(study_config(data, glue, out))


def test_short_data_has_no_length_warmup(text: Path, tmp_path: Path) -> None:
    tokenizer = electra.tokenizer(str(text), out=str(tmp_path / "tokenizer"), vocab_size=160)
    for length, steps in {8: 0, 12: 10}.items():
        data = electra.prepare(str(text), tokenizer=str(tokenizer), out=str(tmp_path / f"{length}"), seq_len=length)
        config = fit_scale_to_data(toy_scale(), str(data), tmp_path).config
        assert (config.seq_len, config.length_warmup.steps) == (length, steps)


def test_rates_apply_by_objective(text: Path, glue: Path, tmp_path: Path) -> None:
    words = {"rates": {"mlm": 1e-3}, "variants": ("untrained", "mlm"), "tasks": ("sst2",)}
    returned = run_study(study_config(text, glue, tmp_path / "study", **words))
    rates = {
        name: yaml.safe_load((tmp_path / f"study/runs/{name}/seed-0/config.yaml").read_text())["optimizer"][
            "learning_rate"
        ]
        for name in ("untrained", "mlm")
    }
    assert rates == {"untrained": toy_scale().config.optimizer.learning_rate, "mlm": 1e-3}
    assert json.loads((tmp_path / "study/study.json").read_text())["rates"] == {"mlm": 1e-3}
    assert "- Peak learning rates: electra 0.002; mlm 0.001." in (tmp_path / "study/table.md").read_text()
    assert returned["failed"] == []


def test_command_with_a_failed_run_reports_it(
    text: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"study toy --scale toy --data {text} --glue {glue} --out {tmp_path / 'study'} --seeds 1 --variants broken".split()
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 1
    assert [message.split()[:3] for message in notices(caplog, "trials-done")] == [["0", "of", "1"]]
    (message,) = notices(caplog, "table")
    assert str(tmp_path / "study/table.md") in message
    assert "0 (1 failed)" in capsys.readouterr().out, "the first table"


def test_exit_codes_of_trial_processes_are_described(done, data: Path, glue: Path) -> None:
    study = toy_study(toy_scale())
    config = study_config(data, glue, done[0])
    trial = build_trial(study, study.variants[0], 0, config, "data", EvalConfig("glue", TASKS))
    killed, crashed = describe_exit(-9, trial), describe_exit(1, trial)
    assert killed is not None
    assert "signal 9 " in killed
    assert crashed is not None
    assert "code 1 " in crashed
    assert str(trial.log) in crashed
    assert [describe_exit(code, trial) for code in (0, 130, 143)] == [None] * 3, "recorded, or stopped by a signal"


def test_trials_have_the_configured_runtime(
    data: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    config = study_config(data, glue, tmp_path / "study", workers=2, device="cpu", precision="bfloat16")
    assert config.runtime == RuntimeConfig("cpu", "bfloat16", 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)  # timing a step changes the number of threads
    study = toy_study(toy_scale())
    trial = build_trial(study, study.variants[0], 0, config, str(data), EvalConfig("glue", TASKS))
    assert trial.config.runtime == RuntimeConfig("cpu", "bfloat16", 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = f"study objectives --data {data} --glue {glue} --out {tmp_path / 'study'} --device cuda".split()
    fails(words, "no-gpu", "--device", "cuda", "auto", "cpu")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(("gpus", "taken"), [(0, "0000"), (1, "0000"), (3, "0120")])
def test_workers_share_the_gpus(gpus: int, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    for worker, gpu in enumerate(taken):
        select_gpu(worker)
        assert os.environ["LOCAL_RANK"] == gpu


def start_study(words: list[str], **more) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, toy_studies.__file__, *words], start_new_session=True, **more)


def wait_until(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def list_alive(group: int) -> list[str]:
    """List the processes of a group except zombies, which may not have been reaped."""
    stats = [read_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
    fields = [stat.rpartition(") ")[2].split() for stat in stats if stat]
    return [state for state, _, of, *_ in fields if int(of) == group and state != "Z"]


def read_stat(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""


@pytest.mark.parametrize("private", [False, True])
def test_file_permissions_follow_the_umask(private: bool, text: Path, glue: Path, tmp_path: Path) -> None:
    """Trials are separate processes, which inherit the umask."""
    words = f"study toy --scale toy --data {text} --glue {glue} --out {tmp_path / 'study'} --seeds 1 --tasks sst2"
    before = os.umask(0o027)
    try:
        cli.main([*words.split(), "--variants", "mlm", *(["--private"] if private else [])])
    finally:
        os.umask(before)
    modes = {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in tmp_path.rglob("*")}
    assert modes == ({(True, "0o700"), (False, "0o600")} if private else {(True, "0o750"), (False, "0o640")})


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_study_continues(how: int, text: Path, glue: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    options = "--seeds 1 --variants electra mlm --tasks sst2 --finetune-seeds 0"
    words = f"study toy --scale toy --data {text} --glue {glue} --out {out} {options}".split()
    process = start_study(words, stdout=subprocess.DEVNULL)
    wait_until((out / "runs/mlm/seed-0/metrics.jsonl").exists)
    assert "Not run yet: BERT, seed 0" in (out / "table.md").read_text(), "results so far"
    process.send_signal(how)
    process.wait()
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)
    first = (out / "trials/electra-seed-0.json").stat().st_mtime_ns
    # After SIGKILL an orphaned trial process is still saving; the new one waits for it.
    run_study(study_config(text, glue, out, variants=("electra", "mlm"), tasks=("sst2",), finetune_seeds=0))
    wait_until(lambda: not list_alive(process.pid))
    assert (out / "trials/electra-seed-0.json").stat().st_mtime_ns == first
    assert rows_of(out)["mlm", 0]["status"] == "done"
    log = (out / "logs/mlm-seed-0.log").read_text()
    assert 0 <= log.find("Stopped at step") < log.find("resuming from step"), (
        "the second process continued after the first"
    )
