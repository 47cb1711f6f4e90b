"""The package graph and the generated pages of the documentation; files named on pages."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from support.places import ROOT

import electra
from electra import commands
from electra.cli import COMMANDS
from electra.presets import PRESETS

DOCS = ROOT / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_graph_has_every_package_and_only_real_imports() -> None:
    graph, package = load("package_graph"), Path(electra.__file__).parent
    imports = graph.package_imports(package)
    drawing = ElementTree.fromstring(graph.draw(package))
    space = "{http://www.w3.org/2000/svg}"
    assert {text.text for text in drawing.iter(f"{space}text")} == set(imports)
    places = {text.text: float(text.attrib["y"]) for text in drawing.iter(f"{space}text")}
    edges = [path.attrib["data-edge"].split() for path in drawing.iter(f"{space}path")]
    assert edges
    for name, other in edges:
        assert other in imports[name]
        assert places[name] < places[other]


def test_the_architecture_page_lists_every_package() -> None:
    page = (DOCS / "concepts/architecture.md").read_text()
    packages = load("package_graph").package_imports(Path(electra.__file__).parent)
    first_column = " ".join(re.findall(r"^\| (`[^|]*)\|", page, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", first_column)) >= set(packages)


@pytest.mark.slow
def test_generated_pages_have_every_command_and_preset() -> None:
    pages = load("generate")
    command_line, configuration = pages.command_line(), pages.configuration()
    for name in COMMANDS:
        assert f"\n## electra {name}\n" in command_line
    for preset in PRESETS:
        assert f"\n## {preset}\n" in configuration


def test_the_python_reference_has_every_public_function() -> None:
    listed = re.findall(r"^::: electra\.commands\.(\w+)$", (DOCS / "reference/api.md").read_text(), re.MULTILINE)
    assert set(listed) == set(commands.__all__)


PATH = re.compile(r"(?<![\w/.])(?:benchmarks|docs|examples|runs|src|tests)/[\w./-]*\w")


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_files_named_on_a_page_exist(page: Path) -> None:
    named = set(PATH.findall(page.read_text())) - {"examples/s", "tests/FILE.py"}  # a unit, and a placeholder
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_readme_is_short() -> None:
    assert len((DOCS.parent / "README.md").read_text().splitlines()) <= 150
