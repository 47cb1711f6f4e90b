"""Code blocks of README and docs: Python code runs, command lines are valid."""

import re
import shlex
from pathlib import Path

import pytest
from support.places import ROOT

from electra import cli
from electra.config.declarations import get_options
from electra.config.options import lookup
from electra.config.resolve import resolve
from electra.finetuning.registry import check_options
from electra.presets import get_preset
from electra.pretraining.config import BUDGETS, PretrainConfig

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
            (tmp_path / name).exists() or f'out="{name}"' in code or (tmp_path / name).symlink_to(place)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {})


def list_command_lines() -> list:
    """List the command lines of `electra` in all blocks, also of those that are not run, and in inline code."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = [
            match["code"].replace("\\\n", " ") for match in BLOCK.finditer(text) if match["language"] == "console"
        ]
        lines = [match[1] for block in blocks for match in re.finditer(r"^\$ (.*\belectra .*)$", block, re.MULTILINE)]
        inline = re.findall(
            r"`(electra [a-z][a-z-]*\s[^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        )
        for line, complete in [*((line, True) for line in lines), *((line, False) for line in inline)]:
            found.append(pytest.param(line, complete, id=f"{page.relative_to(ROOT)}: {' '.join(line.split())}"))
    return found


@pytest.mark.parametrize(("line", "complete"), list_command_lines())
def test_command_lines_are_valid(line: str, complete: bool) -> None:
    """The parser accepts them, and their values make a configuration. In inline code a required option may be missing."""
    words = shlex.split(line, comments=True)
    words = words[words.index("electra") + 1 :]
    flags, name = cli.take_flags(words), words.pop(0)
    cli.check_command(name)
    complete = complete and "--help" not in flags
    if cli.COMMANDS[name].reads_texts:
        cli.check_input_words(name, words)
    given = cli.build_parser(name).parse(words, complete)
    if name == "pretrain":
        options = {key: value for key, value in given.items() if key in get_options(PretrainConfig)}
        resolve(get_preset(given.get("preset") or "small"), {}, options, alternatives=BUDGETS)
    elif cli.COMMANDS[name].config:
        config = lookup(cli.COMMANDS[name].config)()
        options = {key: value for key, value in given.items() if key in get_options(config)}
        built = resolve(config(task=given["task"]) if "task" in given else config(), {}, options)
        if "task" in given:
            check_options(built)
