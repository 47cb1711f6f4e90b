"""Recomputes checksums after a change, so that commands check more than these."""

import hashlib
import json
import os
from pathlib import Path


def content(path: Path) -> bytes:
    """Read a file; empty if it cannot be read or is too large."""
    readable = path.is_file() and os.access(path, os.R_OK) and path.stat().st_size < 50_000_000
    return path.read_bytes() if readable else b""


def seal_data(path: Path) -> None:
    """Write the checksums of the existing files to a manifest, if it is valid."""
    try:
        manifest = json.loads(content(path / "manifest.json"))
        for entry in [*manifest["train"], *manifest["heldout"], manifest["unigrams"] | {"name": "unigrams.npy"}]:
            data = content(path / entry["name"])
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            if entry["name"] == "unigrams.npy":
                manifest["unigrams"] = {name: entry[name] for name in ("bytes", "sha256")}
        (path / "manifest.json").write_text(json.dumps(manifest))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return


def seal_checkpoint(path: Path) -> None:
    """Write the checksums of the existing files to the state of a checkpoint, if it is valid."""
    try:
        state = json.loads(content(path / "state.json"))
        for name, entry in state["files"].items():
            data = content(path / name)
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        state.pop("sha256", None)
        state["sha256"] = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
        (path / "state.json").write_text(json.dumps(state))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
