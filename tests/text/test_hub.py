"""Models and tokenizers by their name on the Hugging Face hub: from the cache, from a server, and where there is none."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub.constants
import pytest
from support.errors import fails, raises
from support.toy import TINY_RUN
from support.toy_tasks import save_model, toy_tokenizer, write_glue

import electra
from electra.errors import ModelError, TokenizerError, UsageError
from electra.finetuning.hub import find_model_directory
from electra.text.hub import download_model, is_hub_name, locate_model
from electra.text.tokenizer import load_named_tokenizer

COMMITS = {"main": "1" * 40, "v2": "2" * 40}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the hub with a model in two revisions, and no network."""
    folder = tmp_path / "cache" / "models--owner--name"
    for revision, commit in COMMITS.items():
        save_model(folder / "snapshots" / commit)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / revision).write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    download_model.cache_clear()
    yield folder / "snapshots"
    download_model.cache_clear()


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/b", "google/electra-small-discriminator", "a/b@v1.0", "a/b@refs/pr/3", "a.b/c_d@" + "0" * 40):
        assert is_hub_name(name)
        Path(name).mkdir(parents=True)
        assert not is_hub_name(name), "a local path comes first"
    others = (
        "a",
        "/a/b",
        "./a/b",
        "../b",
        "a/b/c",
        "a/b.txt",
        "a/tokenizer.json",
        "a/model.ckpt-7",
        "a/b@",
        "a/b@../c",
        "~/b",
    )
    assert not any(map(is_hub_name, others))
    assert locate_model("x/y/z") == Path("x/y/z")
    Path("c").mkdir()
    Path("c/checkpoint.index").touch()
    assert not is_hub_name("c/checkpoint"), "a TensorFlow checkpoint"


def test_models_in_the_cache(cache: Path) -> None:
    assert locate_model("owner/name") == find_model_directory("owner/name") == cache / COMMITS["main"]
    assert locate_model("owner/name@v2") == locate_model("owner/name@" + COMMITS["v2"]) == cache / COMMITS["v2"]
    assert load_named_tokenizer("owner/name@v2").fingerprint == toy_tokenizer().fingerprint


def test_no_network(cache: Path) -> None:
    for name in ("owner/other", "owner/name@v3"):
        with raises(ModelError, "hub-unreachable", name, "HF_HUB_OFFLINE", f"hf download {name.partition('@')[0]} "):
            locate_model(name)
        with raises(TokenizerError, "hub-unreachable", name):
            load_named_tokenizer(name)
    pretrain = ["pretrain", "text", "--out", "run"]
    for words in (
        [*pretrain, "--init", "owner/other"],
        [*pretrain, "--init", "owner/name", "--init-generator", "owner/other", "--seq-len", "16"],
        ["prepare", "builtin", "--tokenizer", "owner/other", "--out", "run"],
        ["convert", "nowhere", "--tokenizer", "owner/other", "--out", "run"],
        ["finetune", "sst2", "--model", "owner/other", "--data", "glue", "--out", "run"],
        ["score", "a", "--model", "owner/other"],
        ["fill-mask", "a [MASK]", "--model", "owner/other"],
    ):
        fails(words, "not-checkpoint" if words[0] == "convert" else "hub-unreachable")
    assert not Path("run").exists()


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises(UsageError, "missing-extra", "owner/name", "pip install 'electra[hub]'"):
        locate_model("owner/name")


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's interface that a download uses, for one model."""

    folder: Path

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def answer(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/").split("/")
        if "owner" not in path:
            self.answer(b"", 404, X_Error_Code="RepoNotFound", X_Error_Message="not found")
            return
        (kind,) = {"revision", "tree", "resolve"} & set(path)
        revision = path[path.index(kind) + 1]
        commit = COMMITS.get(revision, revision)
        if commit not in COMMITS.values():
            self.answer(b"", 404, X_Error_Code="RevisionNotFound", X_Error_Message="no revision")
        elif kind == "tree":
            sizes = {file.name: file.stat().st_size for file in (self.folder / commit).iterdir()}
            files = [{"type": "file", "path": name, "oid": "0", "size": size} for name, size in sizes.items()]
            self.answer(json.dumps(files).encode(), Content_Type="application/json")
        elif kind == "revision":
            names = [{"rfilename": file.name} for file in (self.folder / commit).iterdir()]
            content = json.dumps({"id": "owner/name", "sha": commit, "siblings": names}).encode()
            self.answer(content, Content_Type="application/json")
        else:
            content = (self.folder / commit / path[-1]).read_bytes()
            self.answer(content, ETag=f'"{commit[:8]}{path[-1]}"', X_Repo_Commit=commit)

    do_HEAD = do_GET


def run_elsewhere(name: str, tmp_path: Path, endpoint: str) -> list[str]:
    """Locate a model in another process; return the directory, or the code and the message of the error."""
    code = """
import sys
from electra.errors import ElectraError
from electra.text.hub import locate_model
try:
    print(locate_model(sys.argv[1]))
except ElectraError as error:
    print(error.code)
    print(error)
"""
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-W", "ignore", "-c", code, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_server(tmp_path: Path) -> None:
    for commit in COMMITS.values():
        save_model(tmp_path / commit)
        (tmp_path / commit / "training_args.bin").touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Hub,), {"folder": tmp_path})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        (folder,) = run_elsewhere("owner/name@v2", tmp_path, address)
        assert Path(folder).name == COMMITS["v2"]
        names = {file.name for file in Path(folder).iterdir()}
        assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
        weights = Path(folder, "model.safetensors").read_bytes()
        assert weights == (tmp_path / COMMITS["v2"] / "model.safetensors").read_bytes()
        code, message = run_elsewhere("owner/name@v9", tmp_path, address)
        assert code == "no-revision", message
        code, message = run_elsewhere("nobody/name", tmp_path, address)
        assert code == "missing", message
        server.shutdown()
    # What was downloaded is used again without the server.
    assert run_elsewhere("owner/name@v2", tmp_path, "http://127.0.0.1:9") == [folder]
    code, message = run_elsewhere("owner/name", tmp_path, "http://127.0.0.1:9")
    assert (code, "http://127.0.0.1:9 does not answer" in message) == ("hub-unreachable", True)


@pytest.mark.slow
def test_training_from_names(cache: Path, text: Path, tmp_path: Path) -> None:
    options = {name: value for name, value in TINY_RUN.items() if name != "model"} | {"steps": 2}
    for out in ("one", "one"):  # the second call returns the summary of the first
        summary = electra.pretrain(str(text), out=out, init="owner/name@v2", tokenizer="owner/name", **options)
    assert summary["step"] == 2
    saved = Path("one/config.yaml").read_text()
    assert "init: owner/name@v2" in saved
    assert "tokenizer: owner/name" in saved
    assert "owner/name@v2" in Path("one/discriminator/README.md").read_text()
    data = write_glue(tmp_path / "glue", rows=16)
    electra.finetune("sst2", model="owner/name@v2", out="tuned", data=str(data), epochs=1.0, max_length=16)
    assert Path("tuned/results.json").exists()
