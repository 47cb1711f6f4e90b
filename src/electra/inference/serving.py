"""Predictions over HTTP: a FastAPI application around one worker thread that owns the model, and the server that runs it."""

import json
import logging
import queue
import socket
import threading
from asyncio import wrap_future
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

import electra
from electra.config.checks import check_range
from electra.errors import DataError, ElectraError, UsageError
from electra.external import decode_json, escape_unprintable
from electra.finetuning.task import Prediction
from electra.inference.predict import FILE_INPUTS, Predictor, count_chars
from electra.runtime.signals import stop_on_signal
from electra.text.lines import get_row_id

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 60
"""After a signal, running requests are answered within this time."""
PAGE = """<!doctype html><meta charset="utf-8"><title>electra serve</title>
<h1>electra serve</h1>
<p>POST /predict with <code>{"inputs": [...]}</code> returns <code>{"predictions": [...]}</code>, one for each input.</p>
<p>GET <a href="/health">/health</a>: model and versions. GET <a href="/openapi.json">/openapi.json</a>: the interface.</p>
"""
"""Page without requests to other hosts; FastAPI's own pages load scripts from one."""
OPENAPI = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {"inputs": {"type": "array", "items": {}}},
                }
            }
        },
    },
}


@dataclass(frozen=True)
class Limits:
    """Bounds on the requests; what is beyond is refused."""

    max_inputs: int
    max_chars: int
    max_body_bytes: int
    max_waiting: int

    def __post_init__(self) -> None:
        check_range(self, "", "max_inputs", "max_chars", "max_body_bytes", "max_waiting", at_least=1)


class RefusedError(Exception):
    """A request that is answered with an HTTP status, a code and a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Job:
    """The inputs of a request, and the future of their predictions."""

    inputs: list[Any]
    future: "Future[list[Prediction]]" = field(default_factory=Future)


class Worker:
    """A thread that predicts the inputs of all waiting requests at a time. It ends when the context ends."""

    def __init__(self, predict: Callable[[list[Any]], list[Prediction]], max_waiting: int) -> None:
        self._predict = predict
        self._jobs: queue.Queue[Job | None] = queue.Queue(max_waiting)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)
        self._thread.join()

    def submit(self, inputs: list[Any]) -> "Future[list[Prediction]]":
        """Add a request to the queue. Raises RefusedError if the queue is full."""
        job = Job(inputs)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise RefusedError(503, "busy", "the queue of requests is full; try again later") from None
        return job.future

    def _run(self) -> None:
        job: Job | None
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while sum(len(each.inputs) for each in jobs) < FILE_INPUTS:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    self._jobs.put(None)  # the end is handled after these requests
                    break
                jobs.append(job)
            self._answer([each for each in jobs if each.future.set_running_or_notify_cancel()])

    def _answer(self, jobs: list[Job]) -> None:
        """Predict the inputs of several requests as one list; if one is invalid, each request alone."""
        try:
            predictions = iter(self._predict([value for job in jobs for value in job.inputs]))
            results = [[next(predictions) for _ in job.inputs] for job in jobs]
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
            else:
                for job in jobs:
                    self._answer([job])
            return
        for job, result in zip(jobs, results, strict=True):
            job.future.set_result(renumber(job.inputs, result))


def renumber(inputs: list[Any], predictions: list[Prediction]) -> list[Prediction]:
    """Set the `id` of each input without one of its own to its number in the request."""
    return [
        prediction if isinstance(value, Mapping) and get_row_id(value) else prediction | {"id": str(number)}
        for number, (value, prediction) in enumerate(zip(inputs, predictions, strict=True))
    ]


def parse_body(body: bytes, limits: Limits) -> list[Any]:
    """Parse the body of a request to its inputs.

    Raises:
        DataError: the body is not JSON.
        RefusedError: it has no list of inputs, or more or longer ones than allowed.
    """
    data = decode_json(body, "body", DataError)
    if not isinstance(data, dict) or set(data) != {"inputs"} or not isinstance(data["inputs"], list):
        raise RefusedError(422, "no-inputs", 'body: expected {"inputs": [...]} and no other keys')
    inputs: list[Any] = data["inputs"]
    if len(inputs) > limits.max_inputs:
        message = f"body: {len(inputs):,} inputs, at most {limits.max_inputs:,} are allowed; send several requests"
        raise RefusedError(413, "too-many-inputs", message)
    for number, value in enumerate(inputs):
        try:
            chars = count_chars(value)
        except RecursionError:
            raise RefusedError(400, "too-deep", f"input {number}: nested too deeply") from None
        if chars > limits.max_chars:
            message = f"input {number}: {chars:,} characters, at most {limits.max_chars:,} are allowed"
            raise RefusedError(413, "too-long", message)
    return inputs


async def read_body(request: Request, limit: int) -> bytes:
    """Read the body of a request. Raises RefusedError as soon as more than `limit` bytes have arrived."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RefusedError(413, "body-too-large", f"body: more than {limit:,} bytes; send several requests")
    return bytes(body)


def respond(content: Mapping[str, Any], status: int = 200) -> Response:
    """Build a response of the JSON that the command line writes."""
    headers = {"Retry-After": "1"} if status == 503 else None
    return Response(json.dumps(content, ensure_ascii=False), status, headers, "application/json")


def respond_error(status: int, code: str, message: str) -> Response:
    """Build the response to a request that is refused."""
    return respond({"error": {"code": code, "message": escape_unprintable(message)}}, status)


def build_app(predictor: Predictor, model: str, worker: Worker, limits: Limits) -> FastAPI:
    """Build the application; `model` is the name that /health shows."""
    app = FastAPI(title="electra serve", version=electra.__version__, docs_url=None, redoc_url=None)

    @app.post("/predict", openapi_extra=OPENAPI)
    async def predict(request: Request) -> Response:
        try:
            body = await read_body(request, limits.max_body_bytes)
            try:
                inputs = parse_body(body, limits)
            except DataError as error:
                return respond_error(400, error.code, str(error))
            predictions = await wrap_future(worker.submit(inputs)) if inputs else []
        except RefusedError as error:
            return respond_error(error.status, error.code, error.message)
        except ElectraError as error:
            return respond_error(422, error.code, str(error))
        except Exception as error:
            log.error(f"a request failed: {type(error).__name__}", exc_info=error, extra={"code": "request-failed"})
            return respond_error(500, "internal", "the request failed; the log of the server has the reason")
        return respond({"predictions": predictions})

    @app.get("/health")
    async def health() -> Response:
        versions = {"electra": electra.__version__, "torch": str(torch.__version__)}
        return respond({"status": "ok", "model": model, "task": predictor.loaded.name, "versions": versions})

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def page() -> Response:
        return Response(PAGE, media_type="text/html")

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return respond_error(error.status_code, "http", f"{request.method} {request.url.path}: {error.detail}")

    return app


class Server(uvicorn.Server):
    """A server that ends after a signal when the running requests are answered, or when `should_exit` is set."""

    received: Callable[[], int] = staticmethod(lambda: 0)
    """Number of the received signal, or 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Record signals as the other commands do."""
        with stop_on_signal() as self.received:
            yield

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; called ten times a second."""
        return bool(self.received()) or await super().on_tick(counter)


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on a port; 0 is a free one.

    Raises:
        UsageError: the port is in use or out of range, or the host is not an address of this machine.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        message = (
            f"--host {host} --port {port}: {reason}; choose another port (0: a free one), or an address of this machine"
        )
        raise UsageError("cannot-listen", message) from None


def build_server(app: FastAPI) -> Server:
    """Build the server of an application; it logs only warnings."""
    return Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )


def serve(load: Callable[[], Predictor], model: str, host: str, port: int, limits: Limits) -> None:
    """Serve until a signal. The port is opened before the model is loaded.

    Raises:
        UsageError: the port cannot be opened.
        SystemExit: a signal ended the server; the status is 128 plus its number.
    """
    with open_socket(host, port) as listener:
        predictor = load()
        with Worker(lambda inputs: list(predictor.predict(inputs)), limits.max_waiting) as worker:
            server = build_server(build_app(predictor, model, worker, limits))
            shown = f"[{host}]" if ":" in host else host
            log.info(f"serving at http://{shown}:{listener.getsockname()[1]}", extra={"code": "serving"})
            server.run(sockets=[listener])
    if number := server.received():
        raise SystemExit(128 + number)
