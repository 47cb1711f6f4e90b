"""Answers over HTTP equal those of `electra.predict`; refused requests have one line of JSON."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from support.errors import fails
from support.toy_tasks import finetune_settings, save_model, write_conll, write_glue, write_questions

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import electra
from electra.finetuning.run import finetune
from electra.inference.serving import Limits, Worker, build_app, build_server, open_socket

INPUTS: dict[str, list[Any]] = {
    "sst2": ["the cat is good", "the dog is very bad", {"sentence": "the owl", "id": 7}],
    "stsb": [["the cat sleeps", "a cat hunts mice"], ["the dog sleeps", "a cat hunts mice"]],
    "chunk": [["the", "cat", "likes", "milk"], [], "the dog"],
    "squad1": [{"question": "likes very", "context": "the owl likes milk ."}],
}
LIMITS = Limits(max_inputs=4, max_chars=100, max_body_bytes=1000, max_waiting=64)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    model, glue = save_model(root / "model"), write_glue(root / "glue", rows=16)
    for split, seed in (("train", 0), ("dev", 1)):
        write_conll(root / "conll" / f"{split}.txt", 8, seed)
    squad = {split: str(write_questions(root / f"{split}.json", 8, 0)) for split in ("train", "dev")}
    for name, data in {
        "sst2": {"data": str(glue)},
        "stsb": {"data": str(glue)},
        "chunk": {"data": str(root / "conll")},
        "squad1": squad,
    }.items():
        finetune(finetune_settings(model, name, **data, epochs=1.0), root / name)
    return root


@contextmanager
def serving(model: Path, limits: Limits = LIMITS) -> Iterator[str]:
    """Serve a model in a thread; yield its address."""
    predictor = electra.load(model)
    worker = Worker(lambda inputs: list(predictor.predict(inputs)), limits.max_waiting)
    with open_socket("127.0.0.1", 0) as listener, worker:
        server = build_server(build_app(predictor, str(model), worker, limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def ask(address: str, body: Any, path: str = "/predict") -> tuple[int, Any]:
    """Send a body, bytes or JSON; return the status and the parsed answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urlopen(Request(address + path, data), timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize("task", INPUTS)
def test_answers_equal_predict(runs: Path, task: str) -> None:
    with serving(runs / task) as address:
        status, answer = ask(address, {"inputs": INPUTS[task]})
    assert status == 200
    assert answer["predictions"] == list(electra.predict(runs / task, INPUTS[task]))


def test_concurrent_clients_get_their_own_answers(runs: Path) -> None:
    """One in four is invalid, and does not affect the others."""
    texts = [[f"the {animal} is {word}"] for animal in ("cat", "dog", "owl") for word in ("good", "bad", "fine")]
    bodies = [each for text in texts for each in ({"inputs": text}, {"inputs": text * 2}, {"inputs": [3]})]
    with serving(runs / "sst2") as address, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda body: ask(address, body), bodies))
    for body, (status, answer) in zip(bodies, answers, strict=True):
        if body["inputs"] == [3]:
            assert (status, answer["error"]["code"]) == (422, "wrong-type")
            continue
        expected = list(electra.predict(runs / "sst2", body["inputs"]))
        assert [(row["id"], row["label"]) for row in answer["predictions"]] == [
            (row["id"], row["label"]) for row in expected
        ]
        for row, other in zip(answer["predictions"], expected, strict=True):
            assert row["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "not-json"),
        (b"\xff", 400, "not-utf8"),
        (b'{"inputs": ["\\ud800"]}', 400, "half-surrogate"),
        ([1], 422, "no-inputs"),
        ({"inputs": "the cat"}, 422, "no-inputs"),
        ({"inputs": [None]}, 422, "wrong-type"),
        ({"inputs": ["a"] * 5}, 413, "too-many-inputs"),
        ({"inputs": ["a" * 101]}, 413, "too-long"),
        (b" " * 1001, 413, "body-too-large"),
    ],
)
def test_refused_requests(shared: str, body: Any, status: int, code: str) -> None:
    found, answer = ask(shared, body)
    assert (found, answer["error"]["code"]) == (status, code)
    assert "\n" not in answer["error"]["message"]


@pytest.fixture(scope="module")
def shared(runs: Path) -> Iterator[str]:
    with serving(runs / "sst2") as address:
        yield address


def test_pages(shared: str) -> None:
    health = json.load(urlopen(f"{shared}/health"))
    assert (health["status"], health["task"]) == ("ok", "sst2")
    assert "/predict" in json.load(urlopen(f"{shared}/openapi.json"))["paths"]
    for path in ("/", "/docs"):
        assert b"://" not in urlopen(shared + path).read()
    assert ask(shared, {}, "/nothing")[0] == 404
    assert ask(shared, {"inputs": []}) == (200, {"predictions": []})


def test_full_queue(runs: Path) -> None:
    """While one request is computed and one waits, a third one is refused, and the first two are answered."""
    began, release = threading.Event(), threading.Event()
    predictor = electra.load(runs / "sst2")

    def predict(inputs: list[Any]) -> list[dict[str, Any]]:
        began.set()
        release.wait(60)
        return list(predictor.predict(inputs))

    from electra.inference.serving import RefusedError

    with Worker(predict, 1) as worker:
        first = worker.submit(["the cat"])
        assert began.wait(60)
        second = worker.submit(["the dog"])
        with pytest.raises(RefusedError) as refused:
            worker.submit(["the owl"])
        release.set()
        assert len(first.result(60)) == len(second.result(60)) == 1
    assert refused.value.status == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server(runs: Path, number: int) -> None:
    command = [sys.executable, "-m", "electra", "serve", str(runs / "sst2"), "--port", "0", "--runtime.threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        address = next(line for line in process.stdout if "http://" in line).split()[-1]
        assert ask(address, {"inputs": ["the cat"]})[0] == 200
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
    assert "Traceback" not in rest
    assert process.returncode == 128 + number


def test_wrong_model_and_port_in_use(runs: Path) -> None:
    fails(["serve", runs / "model", "--port", 0], "not-finetuned")
    with open_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        fails(["serve", runs / "sst2", "--port", port], "cannot-listen", port)
    fails(["serve", runs / "sst2", "--port", 0, "--max-inputs", 0], "out-of-range", "--max-inputs")
