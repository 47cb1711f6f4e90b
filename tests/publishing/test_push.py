"""`electra push`: what is sent to a hub on this machine, what is refused, and what is said when the hub fails."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from hub_server import TOKEN, Hub, serve_hub
from huggingface_hub import constants
from support import toy_tasks
from support.errors import fails, raises
from support.toy import TINY_RUN

import electra
from electra import cli
from electra.errors import HubError, ModelError, RunError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
"""From huggingface_hub, whose upload calls its HTTP client in an older form."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, and a token for it."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the server here has LFS only
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serve_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        yield hub


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with a card."""
    directory = toy_tasks.save_model(tmp_path_factory.mktemp("saved") / "model")
    (directory / "README.md").write_text(
        "---\nlicense: other\nlicense_name: FILL-IN\ntags:\n- electra\n---\n\n# A model\n"
    )
    return directory


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A run with exports after 3 and 5 steps."""
    out = tmp_path_factory.mktemp("exported") / "run"
    electra.pretrain(text, out=out, **TINY_RUN | {"steps": 6, "export_at": ("3steps", "5steps")})
    return out


def read_files(directory: Path, folder: str = "") -> dict[str, bytes]:
    return {f"{folder}{path.name}": path.read_bytes() for path in directory.iterdir()}


def test_the_bytes_of_a_model_arrive(hub: Hub, model: Path) -> None:
    expected = read_files(model)
    for name in ("notes.txt", ".hidden", "events.out", "training.log"):
        (model / name).write_text("private")
    for name in ("checkpoints", "data"):
        (model / name).mkdir()
        (model / name / "config.json").write_text("{}")
    result = electra.push(model, "me/model")
    assert hub.files == {"main": expected}
    assert {each["name"]: each["bytes"] for each in result["files"]} == {n: len(b) for n, b in expected.items()}
    assert result["commits"] == {"main": f"{hub.url}/me/model/commit/main"}
    assert hub.created == [{"name": "model", "organization": "me", "visibility": "private"}]
    assert not [line for line in hub.requests if line.startswith("DELETE")]


def test_the_command_in_a_process_of_its_own(hub: Hub, model: Path) -> None:
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": TOKEN,
    }
    words = [sys.executable, "-m", "electra", "push", str(model), "me/model", "--private", "false", "--revision", "v1"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{hub.url}/me/model/commit/v1" in done.stdout
    assert "(public)" in done.stdout
    assert hub.created[0]["visibility"] == "public"
    assert (hub.branches, hub.files) == (["v1"], {"v1": read_files(model)})


@pytest.mark.slow
@pytest.mark.parametrize("part", ["main", "generator", "both"])
def test_parts_and_exports_of_a_run(hub: Hub, exported: Path, part: str) -> None:
    electra.push(exported, "me/model", part=part, exports=True)
    names = {"main": {"discriminator": ""}, "generator": {"generator": ""}}.get(
        part, {name: f"{name}/" for name in ("discriminator", "generator")}
    )
    first, second = sorted(path for path in (exported / "exports").iterdir() if path.is_dir())
    assert hub.files == {
        revision: {k: v for name, folder in names.items() for k, v in read_files(path / name, folder).items()}
        for revision, path in (("main", exported), ("step-3", first), ("step-5", second))
    }
    assert hub.branches == ["step-3", "step-5"]


@pytest.mark.slow
def test_fine_tuned_model(hub: Hub, inputs: Path) -> None:
    electra.push(inputs / "tuned", "me/model")
    assert hub.files["main"] == read_files(inputs / "tuned/seed-0/model")
    assert "task.json" in hub.files["main"]


def test_dry_run_uses_no_network(hub: Hub, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    cli.main(["push", str(model), "me/model", "--dry-run", "--revision", "v2"])
    shown = capsys.readouterr().out
    rows = {tuple(line.split()) for line in shown.splitlines()}
    assert {("v2", path.name, f"{path.stat().st_size:,}") for path in model.iterdir()} <= rows
    total = sum(path.stat().st_size for path in model.iterdir())
    assert f"{len(list(model.iterdir()))} files, {total:,} bytes would be sent to me/model (private)" in shown
    assert not hub.requests


def test_license_and_languages_of_the_card(hub: Hub, model: Path) -> None:
    before = (model / "README.md").read_bytes()
    electra.push(model, "me/model", license="apache-2.0", language=("en", "fr"))
    front, text = hub.files["main"]["README.md"].decode().removeprefix("---\n").split("\n---\n", 1)
    assert yaml.safe_load(front) == {"license": "apache-2.0", "language": ["en", "fr"], "tags": ["electra"]}
    assert text.strip() == "# A model"
    assert (model / "README.md").read_bytes() == before
    (model / "README.md").write_text("---\n[a: b\n---\n")
    with raises(ModelError, "bad-card", model / "README.md"):
        electra.push(model, "me/model", license="mit")


def test_a_public_repository_is_not_filled_by_default(hub: Hub, model: Path) -> None:
    hub.exists, hub.private = True, False
    with raises(HubError, "public-repository", "me/model", "--private false"):
        electra.push(model, "me/model")
    assert not hub.files
    electra.push(model, "me/model", private=False)
    assert hub.files == {"main": read_files(model)}


@pytest.mark.parametrize("name", ["model", "me/model/x", "", "me/", "../model", "me/a..b", "me/a b", "https://hub/x"])
def test_repositories_are_owner_and_name(hub: Hub, model: Path, name: str) -> None:
    fails(["push", model, name], "bad-repository")
    assert not hub.requests


@pytest.mark.parametrize("revision", ["", "a..b", "-x", "a b", "/a", "a/"])
def test_revisions_are_branches(model: Path, revision: str) -> None:
    with raises(UsageError, "bad-revision"):
        electra.push(model, "me/model", revision=revision)


def test_directories_that_are_no_models_are_refused(hub: Hub, model: Path, tmp_path: Path) -> None:
    fails(["push", tmp_path / "absent", "me/model"], "missing", tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    fails(["push", tmp_path / "empty", "me/model"], "not-model")
    fails(["push", model, "me/model", "--part", "generator"], "not-run", "--part generator")
    fails(["push", model, "me/model", "--exports"], "not-run")
    weights = model / "model.safetensors"
    torch.save({}, model / "pytorch_model.bin")
    fails(["push", model, "me/model"], "pickled-weights", "pytorch_model.bin")
    content = weights.read_bytes()
    weights.unlink()
    fails(["push", model, "me/model"], "missing", "model.safetensors")
    (model / "pytorch_model.bin").unlink()
    weights.write_bytes(content[:-9])
    fails(["push", model, "me/model"], "unreadable", weights)
    weights.write_bytes(content)
    (tmp_path / "secret").write_text("secret")
    (model / "LICENSE").symlink_to(tmp_path / "secret")
    fails(["push", model, "me/model"], "leaves-directory", model / "LICENSE")
    assert not hub.requests


@pytest.mark.slow
def test_unfinished_runs_are_refused(exported: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(exported, tmp_path / "run"))
    with raises(UsageError, "reserved-revision", "step-3"):
        electra.push(run, "me/model", revision="step-3", exports=True, dry_run=True)
    (run / "summary.json").unlink()
    with raises(RunError, "unfinished", run):
        electra.push(run, "me/model", dry_run=True)


@pytest.mark.parametrize(
    ("place", "status", "code"),
    [
        ("/api/", 401, "unauthorized"),
        ("me/model", 404, "not-found"),
        ("preupload", 403, "forbidden"),
        ("/commit/", 409, "conflict"),
        ("/commit/", 500, "hub-failed"),
        ("repos/create", 0, "unreachable"),
        ("/storage/", 0, "unreachable"),
        ("/storage/", 503, "hub-failed"),
    ],
)
def test_failures_of_the_hub(hub: Hub, model: Path, monkeypatch, place: str, status: int, code: str) -> None:
    """huggingface_hub repeats some requests; its pauses are left out here."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    hub.faults[place] = status
    fails(["push", model, "me/model"], code, "me/model", hub.url, *([status] if status else []))
    assert not hub.files


def test_token_and_network_are_missing(hub: Hub, model: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    fails(["push", model, "me/model"], "unauthorized", "hf auth login")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    fails(["push", model, "me/model"], "unreachable", "127.0.0.1:9")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "absent"))
    fails(["push", model, "me/model"], "no-token", "hf auth login")
