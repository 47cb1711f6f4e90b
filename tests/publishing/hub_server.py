"""A server on 127.0.0.1 that answers the calls of `huggingface_hub` that create a repository and commit files to it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TOKEN = "hf_of_the_test"


class Hub(ThreadingHTTPServer):
    """The state of the hub, and the faults that it has."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.created: list[dict] = []
        self.private = True
        self.exists = False
        self.branches: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        """Revision -> path -> content."""
        self.requests: list[str] = []
        self.faults: dict[str, int] = {}
        """Part of an address -> status of the answer; 0 closes the connection."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Hub

    def log_message(self, *arguments: object) -> None:
        """Be silent."""

    def answer(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_request(self) -> None:
        hub, body = self.server, self.read_body()
        hub.requests.append(f"{self.command} {self.path}")
        for part, status in hub.faults.items():
            if part in self.path:
                if status == 0:
                    self.close_connection = True
                else:
                    self.answer({"error": "as the test asked"}, status)
                return
        if not self.path.startswith("/storage/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer({"error": "wrong token"}, 401)
        elif self.path == "/api/repos/create":
            hub.created.append(json.loads(body))
            self.answer({"url": f"{hub.url}/me/model"}, 409 if hub.exists else 200)
        elif self.path == "/api/models/me/model":
            self.answer({"id": "me/model", "private": hub.private, "sha": "0" * 40})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/me/model/branch/(.+)", self.path):
            hub.branches.append(match[1])
            self.answer({})
        elif self.path.startswith("/api/models/me/model/preupload/"):
            files = [
                {
                    "path": each["path"],
                    "shouldIgnore": False,
                    "uploadMode": "lfs" if each["path"].endswith(".safetensors") else "regular",
                }
                for each in json.loads(body)["files"]
            ]
            self.answer({"files": files})
        elif self.path == "/me/model.git/info/lfs/objects/batch":
            objects = [
                each | {"actions": {"upload": {"href": f"{hub.url}/storage/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif match := re.fullmatch(r"/storage/(\w+)", self.path):
            assert hashlib.sha256(body).hexdigest() == match[1]
            hub.objects[match[1]] = body
            self.answer({})
        elif match := re.fullmatch(r"/api/models/me/model/commit/(.+)", self.path):
            self.commit(match[1], [json.loads(line) for line in body.splitlines()])
            self.answer({"commitUrl": f"{hub.url}/me/model/commit/{match[1]}", "commitOid": "1" * 40})
        else:
            self.answer({"error": "unknown call"}, 404)

    do_GET = do_POST = do_PUT = do_DELETE = handle_request

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def commit(self, revision: str, lines: list[dict]) -> None:
        files = self.server.files.setdefault(revision, {})
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            else:
                assert line["key"] == "header", "nothing is deleted"


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Start the server in a thread."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
