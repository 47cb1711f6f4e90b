"""The directory that text is prepared in: whose it is, what may stay in it, what goes."""

import shutil
from dataclasses import dataclass, fields
from pathlib import Path

from electra.console import format_count
from electra.data.manifest import MANIFEST, SETTINGS, SPLITS, Settings, load_json, load_settings, save_json
from electra.data.shards import TOKENIZER
from electra.data.tokenization import CHUNKS
from electra.errors import DataError
from electra.text.tokenizer import Tokenizer

PARTIAL = ".*.partial"
STAMPS = "stamps.json"


@dataclass(frozen=True)
class Stamps:
    """When the text was changed last. In a file of its own, so that the manifest depends on text and settings alone."""

    files: dict[str, tuple[int, int]]
    """As `Corpus.stamps` gives them."""


def is_finished(directory: Path, settings: Settings) -> bool:
    """Whether data of these settings is complete; False where it is to be begun or gone on with.

    An unfinished preparation may go on with other sizes of its sources: a file that could not be read may
    have been mended, and every chunk is compared with the text it was made of.

    Raises:
        DataError: the directory holds other files, or data of other settings.
    """
    if not directory.exists():
        return False
    if not directory.is_dir():
        raise DataError(f"{directory}: a file; prepared data needs a directory of its own")
    if not (directory / SETTINGS).exists():
        # Hidden are the lock, and what an interrupted write left.
        if others := sorted(path.name for path in directory.iterdir() if not path.name.startswith(".")):
            raise DataError(
                f"{directory}: holds other files ({others[0]} for one); "
                "prepared data needs a directory of its own: choose a new or empty one"
            )
        return False
    finished = (directory / MANIFEST).exists()
    there = load_settings(directory)
    if changed := _describe_text_difference(there, settings, finished):
        raise DataError(
            f"{directory}: prepared from other text: {changed}; "
            "put the text back as it was to go on, or choose another --out for the new text"
        )
    if differing := _describe_setting_differences(there, settings):
        raise DataError(
            f"{directory}: holds data prepared with other settings: {'; '.join(differing)}; "
            "choose another --out, or delete this one"
        )
    return finished


def write_settings(
    directory: Path, settings: Settings, stamps: dict[str, tuple[int, int]], tokenizer: Tokenizer
) -> None:
    """Make the directory, or go on in it: without a manifest, until all is done. Raises StorageError."""
    save_json(directory / SETTINGS, settings)
    save_stamps(directory, stamps)
    tokenizer.save(directory / TOKENIZER)


def save_stamps(directory: Path, stamps: dict[str, tuple[int, int]]) -> None:
    """Keep the stamps of the text. Raises StorageError."""
    save_json(directory / STAMPS, Stamps(stamps))


def list_changed_files(directory: Path, stamps: dict[str, tuple[int, int]]) -> list[str]:
    """The files that may have changed since preparing began, by their stamps: all where these are not known."""
    try:
        before = load_json(directory / STAMPS, Stamps).files
    except DataError:
        return list(stamps)
    return [name for name, stamp in stamps.items() if before.get(name) != stamp]


def remove_partial(directory: Path) -> None:
    """Remove what workers that were killed, now or in an earlier call, had half written."""
    for path in directory.rglob(PARTIAL):
        path.unlink(missing_ok=True)


def remove_leftovers(directory: Path, names: set[str]) -> None:
    """Remove shards and records that are not among `names`: of text that has been changed since."""
    for folder in (*SPLITS, CHUNKS):
        for path in (directory / folder).glob("*"):
            if f"{folder}/{path.name}" not in names:
                path.unlink()


def remove_all(directory: Path) -> None:
    """Remove all that preparing has written."""
    for folder in (*SPLITS, CHUNKS, TOKENIZER):
        shutil.rmtree(directory / folder, ignore_errors=True)
    for name in (SETTINGS, STAMPS):
        (directory / name).unlink(missing_ok=True)


def _describe_text_difference(there: Settings, wanted: Settings, sizes_too: bool) -> str | None:
    """How the text differs, in words."""
    before, now = dict(there.sources), dict(wanted.sources)
    if list(before) != list(now):
        other = sorted(before.keys() ^ now.keys())
        which = f"{other[0]} for one" if other else "in another order"
        return f"{format_count(len(before), 'file')}, now {len(now):,}, {which}"
    changed = [name for name in now if before[name] != now[name]] if sizes_too else []
    if not changed:
        return None
    more = f", and {format_count(len(changed) - 1, 'more file')} changed" if len(changed) > 1 else ""
    return f"{changed[0]} had {before[changed[0]]:,} bytes and has {now[changed[0]]:,} now{more}"


def _describe_setting_differences(there: Settings, wanted: Settings) -> list[str]:
    """What else differs, in words."""
    differing = []
    for field in fields(Settings):
        values = getattr(there, field.name), getattr(wanted, field.name)
        if field.name != "sources" and values[0] != values[1]:
            shown = [str(value)[:12] if field.name == "tokenizer" else value for value in values]
            differing.append(f"{field.name} {shown[0]}, now {shown[1]}")
    return differing
