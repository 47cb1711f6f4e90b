"""Built-in English text: the documentation of the installed packages."""

import atexit
import hashlib
import json
import logging
import os
import platform
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

from electra.errors import StorageError, TextError
from electra.runtime.workers import available_cores, map_unordered
from electra.storage import write_atomically
from electra.text.prose import read_paragraphs

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the extraction; a new one invalidates cached text."""

MIN_DOCUMENT_CHARS = 200
DOCUMENTS = {".rst", ".md", ".txt"}
NOT_PROSE = {"__pycache__", "test", "tests", "site-packages", "licenses", "LICENSES"}
OURS = "electra"
FILES_PER_ITEM = 64
"""Files that a worker process reads at a time."""


@cache
def get_builtin_text() -> Path:
    """Return a file with the prose of the installation: one paragraph per line, one document per module or file.

    It is extracted once for each set of installed packages, in seconds on all cores, and cached in
    `$XDG_CACHE_HOME/electra` (`~/.cache/electra`), or until this process ends if that cannot be written.
    """
    path = get_cache_directory() / f"builtin-{compute_fingerprint()}.txt"
    if path.is_file():
        return path
    files = list(find_documentation_files())
    log.info(
        f"builtin: extracting the documentation of installed packages from {len(files):,} files (once, some minutes at most)",
        extra={"code": "extracting"},
    )
    text = extract_prose(files)
    if not text:
        raise TextError(
            "no-documentation",
            "builtin: this installation has no documentation; give a file or a folder of text instead",
        )
    try:
        write_atomically(path, text)
    except StorageError as error:
        folder = Path(tempfile.mkdtemp(prefix="electra-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        log.warning(f"{error}; the built-in text is written to a temporary folder", extra={"code": "no-cache"})
        path = folder / path.name
        write_atomically(path, text)
    return path


def get_cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "electra"


def compute_fingerprint() -> str:
    """Hash everything that determines the text: Python, the installed packages and the extraction."""
    installed = {f"{package.name}=={package.version}" for package in distributions() if package.name != OURS}
    facts = [VERSION, platform.python_version(), *sorted(installed)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def find_documentation_files() -> Iterator[Path]:
    """List modules and documents of the standard library, then of the installed packages, each in sorted order."""
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    for folder in dict.fromkeys(map(Path, folders)):
        yield from _walk(folder)


def extract_prose(files: list[Path]) -> bytes:
    """Extract the prose of files in their order, without repeated paragraphs."""
    seen: set[str] = set()
    documents: list[str] = []
    for paragraphs in _extract_in_parallel(files):
        new = list(dict.fromkeys(paragraph for paragraph in paragraphs if paragraph not in seen))
        if sum(map(len, new)) >= MIN_DOCUMENT_CHARS:
            seen.update(new)
            documents.append("".join(f"{paragraph}\n" for paragraph in new))
    return "\n".join(documents).encode("utf-8", "replace")


def _walk(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name.startswith(".") or entry.name in NOT_PROSE or (entry.is_symlink() and entry.is_dir()):
            continue
        if entry.is_dir():
            if entry.name != OURS:
                yield from _walk(entry)
        elif entry.suffix == ".py" or entry.suffix in DOCUMENTS or entry.name == "METADATA":
            yield entry


def _extract_in_parallel(files: list[Path]) -> Iterator[list[str]]:
    """Yield the paragraphs of each file, in order."""
    shares = [(start, files[start : start + FILES_PER_ITEM]) for start in range(0, len(files), FILES_PER_ITEM)]
    results = dict(map_unordered(_extract_share, shares, available_cores()))
    return chain.from_iterable(results[start] for start, _ in shares)


def _extract_share(share: tuple[int, list[Path]]) -> tuple[int, list[list[str]]]:
    start, files = share
    return start, [read_paragraphs(path) for path in files]
