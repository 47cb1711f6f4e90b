"""The commands of the guide on data run, in their order, on two toy sources."""

import json
import re
import shlex
from pathlib import Path

import pytest
from support.places import ROOT
from support.toy import sentences

from electra.cli import main

GUIDE = ROOT / "docs/guides/data.md"


def list_commands(*headings: str) -> list[list[str]]:
    """List the command lines of sections of the guide, without the name of the program."""
    sections = re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE)[1:]
    chosen = [section for section in sections if section.split("\n")[0] in headings]
    assert len(chosen) == len(headings)
    return [shlex.split(line) for section in chosen for line in re.findall(r"^\$ electra (.*)$", section, re.MULTILINE)]


@pytest.mark.slow
def test_commands_on_sources_and_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rensa")
    for seed, name in enumerate(("wiki", "law")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(
            sentences(800, seed) + "\n" + sentences(50)
        )  # 50 documents of wiki again
    monkeypatch.chdir(tmp_path)
    for words in list_commands("Several sources", "Duplicates"):
        main([*words, *(["--workers", "1"] if words[0] in ("prepare", "pretrain") else [])])
    assert set(json.loads((tmp_path / "mixed/summary.json").read_text())["heldout_by_source"]) == {"wiki", "law"}
    exact, similar = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("unique", "dissimilar"))
    assert all(source["dropped_documents"] >= 50 for source in exact["duplicates"])
    assert similar["documents"] <= exact["documents"]
