"""The directory of prepared data: checks of existing content, and removal of outdated files."""

import shutil
from dataclasses import dataclass, fields
from pathlib import Path

from electra.data.manifest import MANIFEST, SETTINGS, SPLITS, Settings, load_json, load_settings, save_json
from electra.data.shards import TOKENIZER
from electra.data.tokenization import CHUNKS
from electra.errors import DataError
from electra.external import format_count
from electra.text.tokenizer import Tokenizer

PARTIAL = ".*.partial"
STAMPS = "stamps.json"


@dataclass(frozen=True)
class Stamps:
    """Times of the last change of the text; in a separate file, so that the manifest depends only on text and settings."""

    files: dict[str, tuple[int, int]]
    """As in `Corpus.stamps`."""


def is_finished(directory: Path, settings: Settings) -> bool:
    """Whether data of these settings is complete; False if preparation has to start or resume.

    An unfinished preparation can resume with changed file sizes: an unreadable file may have been repaired, and every chunk
    is compared with its text.

    Raises:
        DataError: the directory contains other files, or data of other settings.
    """
    if not directory.exists():
        return False
    if not directory.is_dir():
        raise DataError("not-directory", f"{directory}: a file; prepared data needs a separate directory")
    if not (directory / SETTINGS).exists():
        # The lock and partial files of interrupted writes are hidden.
        if others := sorted(path.name for path in directory.iterdir() if not path.name.startswith(".")):
            raise DataError(
                "other-files",
                f"{directory}: contains other files (such as {others[0]}); "
                "prepared data needs a separate directory: choose a new or empty one",
            )
        return False
    finished = (directory / MANIFEST).exists()
    existing = load_settings(directory)
    if difference := _find_text_difference(existing, settings, finished):
        code, changed = difference
        raise DataError(
            code,
            f"{directory}: prepared from other text: {changed}; "
            "restore the original text to resume, or choose another --out for the new text",
        )
    if differing := _describe_setting_differences(existing, settings):
        raise DataError(
            "other-settings",
            f"{directory}: contains data prepared with other settings: {'; '.join(differing)}; "
            "choose another --out, or delete the directory",
        )
    return finished


def write_settings(
    directory: Path, settings: Settings, stamps: dict[str, tuple[int, int]], tokenizer: Tokenizer
) -> None:
    """Write settings, stamps and tokenizer; the manifest follows at the end of preparation. Raises StorageError."""
    save_json(directory / SETTINGS, settings)
    save_stamps(directory, stamps)
    tokenizer.save(directory / TOKENIZER)


def save_stamps(directory: Path, stamps: dict[str, tuple[int, int]]) -> None:
    """Save the stamps of the text. Raises StorageError."""
    save_json(directory / STAMPS, Stamps(stamps))


def list_changed_files(directory: Path, stamps: dict[str, tuple[int, int]]) -> list[str]:
    """List the files that may have changed since preparation started, by their stamps; all if the stamps are unknown."""
    try:
        before = load_json(directory / STAMPS, Stamps).files
    except DataError:
        return list(stamps)
    return [name for name, stamp in stamps.items() if before.get(name) != stamp]


def remove_partial(directory: Path) -> None:
    """Remove partial files of workers that were killed, in this or an earlier call."""
    for path in directory.rglob(PARTIAL):
        path.unlink(missing_ok=True)


def remove_leftovers(directory: Path, names: set[str]) -> None:
    """Remove shards and records that are not in `names`: they are from text that has changed."""
    for folder in (*SPLITS, CHUNKS):
        for path in (directory / folder).glob("*"):
            if f"{folder}/{path.name}" not in names:
                path.unlink()


def remove_all(directory: Path) -> None:
    """Remove everything that preparation has written."""
    for folder in (*SPLITS, CHUNKS, TOKENIZER):
        shutil.rmtree(directory / folder, ignore_errors=True)
    for name in (SETTINGS, STAMPS):
        (directory / name).unlink(missing_ok=True)


def _find_text_difference(existing: Settings, requested: Settings, compare_sizes: bool) -> tuple[str, str] | None:
    """Return the code and the description of a difference between the texts; None if there is none."""
    before, now = dict(existing.sources), dict(requested.sources)
    if list(before) != list(now):
        other = sorted(before.keys() ^ now.keys())
        code, which = ("other-text", f"such as {other[0]}") if other else ("other-order", "in another order")
        return code, f"{format_count(len(before), 'file')}, now {len(now):,}, {which}"
    changed = [name for name in now if before[name] != now[name]] if compare_sizes else []
    if not changed:
        return None
    more = f", and {format_count(len(changed) - 1, 'more file')} changed" if len(changed) > 1 else ""
    return "other-text", f"{changed[0]} had {before[changed[0]]:,} bytes and has {now[changed[0]]:,} now{more}"


def _describe_setting_differences(existing: Settings, requested: Settings) -> list[str]:
    """Describe each setting that differs, except the text."""
    differing = []
    for field in fields(Settings):
        values = getattr(existing, field.name), getattr(requested, field.name)
        is_unknown = field.name == "names" and values[0] is None  # in data of older versions
        if field.name != "sources" and values[0] != values[1] and not is_unknown:
            shown = [str(value)[:12] if field.name == "tokenizer" else value for value in values]
            differing.append(f"{field.name} {shown[0]}, now {shown[1]}")
    return differing
