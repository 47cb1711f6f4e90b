"""Code blocks of README and docs: Python code runs, options on command lines exist."""

import re
from functools import cache
from pathlib import Path

import pytest
from support.places import ROOT

from electra.cli import main

PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - set((ROOT / "docs/research/log").iterdir()))]
BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*) -->\n)?^```(?P<language>python|console)\n(?P<code>.*?)^```", re.S | re.M)


def blocks(language: str) -> list:
    """List the blocks of a language, except those after `<!-- not run: REASON -->`."""
    return [
        pytest.param(match["code"], match["note"] or "", id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, match in enumerate(BLOCK.finditer(page.read_text()))
        if match["language"] == language and not (match["note"] or "").startswith("not run: ")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "note"), blocks("python"))
def test_python_blocks_run(
    code: str, note: str, tmp_path: Path, text: Path, inputs: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has links to text, a pre-training run, GLUE data and a fine-tuned model, as named by `needs:`."""
    places = {
        "notes": text,
        "run": finished,
        "demo": finished,
        "GLUE": inputs / "glue",
        "SST": inputs / "tuned" / "seed-0" / "model",
    }
    assert set(note.removeprefix("needs: ").split()) <= set(places)
    for name, place in places.items():
        if name in code:
            (tmp_path / name).exists() or (name == "SST" and "out=" in code) or (tmp_path / name).symlink_to(place)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {})


@cache
def options(verb: str) -> frozenset[str]:
    """Return the options in the help page of a command."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        main([verb, "--help"])
    return frozenset(re.findall(r"--[a-z][\w.-]*", output.getvalue()))


@pytest.mark.parametrize(("code", "note"), blocks("console"))
def test_command_lines_have_known_options(code: str, note: str) -> None:
    for line in code.splitlines():
        if match := re.match(r"\$ electra ([a-z-]+) ([^#]*)", line):
            verb, words = match.groups()
            assert set(re.findall(r"--[a-z][\w.-]*", words)) <= options(verb), line
