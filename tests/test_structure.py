"""The structure of the package: layers that import downwards only, no cycles, folders and files of a readable size."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from support.places import ROOT

import electra

PACKAGE = Path(electra.__file__).parent
LAYERS = [
    {"errors"},
    {"external"},
    {"config"},
    {"runtime", "console", "storage", "seeding", "schema", "plotting"},
    {"text", "model", "train", "reporting"},
    {"execution"},
    {"data"},
    {"pretraining", "finetuning"},
    {"inference"},
    {"presets"},
    {"studies"},
    {"commands"},
    {"display"},
    {"cli"},
    {"__main__"},
]
"""Modules and sub-packages of `electra`; each imports from those above it in this list."""

SUBPACKAGES = {
    "inference": [{"onnx"}],
    "model": [{"cpu", "tensorflow"}],
    "pretraining": [{"objectives"}, {"stages"}, {"validation"}, {"evaluation"}, {"reporting"}],
    "finetuning": [
        {"readers", "training"},
        {"classification", "qa", "tagging", "reporting"},
        {"wnli", "multiple_choice", "embedding"},
        {"benchmark"},
    ],
    "studies": [{"paper", "probing"}, {"catalog"}, {"advice", "reporting"}],
}
"""The same inside a package, for its own sub-packages."""

MAX_FILES, MAX_LINES, MAX_FUNCTION_LINES = 14, 300, 60
MAX_TEST_LINES = 500
"""Lines of a file of tests, which do not depend on each other and are often tables of cases."""
LARGE_FOLDERS = {
    "docs/research/log": "a page for each experiment",
    "docs/research/results": "rows, tables and figures of each study",
    "docs/research/results/configs": "a configuration for each run",
    "docs/research/results/records/elements-tiny-0.25": "a record for each run",
    "tests/golden/traces": "a trace for each objective and task",
}
"""Folders with more files than that, and why: they hold data."""

MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "runs")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """The name of a module, without `electra`; a package is called by its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = frozenset(map(name_of, MODULES))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """The modules of the package that a module imports, lazily and for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                found.add(module if module.removeprefix("electra.") in NAMES else node.module or "")
    return frozenset(name.removeprefix("electra.") for name in found if name.startswith("electra."))


def depth_of(name: str, layers: list[set[str]]) -> int:
    return next(depth for depth, layer in enumerate(layers) if name in layer)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    name = name_of(path)
    if not name:
        return  # the root imports the public names when they are used, from the commands alone
    here, *inner = name.split(".")
    for there in imports_of(path):
        other, *others = there.split(".")
        assert other == here or depth_of(other, LAYERS) < depth_of(here, LAYERS), f"{name} imports {there}"
        layers = SUBPACKAGES.get(here, [])
        names = set().union(*layers)
        if other == here and inner and others and inner[0] in names and others[0] in names and inner[0] != others[0]:
            assert depth_of(others[0], layers) < depth_of(inner[0], layers), f"{name} imports {there}"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    TopologicalSorter({name_of(path): imports_of(path) for path in MODULES if name_of(path)}).prepare()


@pytest.mark.parametrize("package", ["model", "pretraining.objectives"])
def test_networks_do_not_know_the_terminal_or_the_processes(package: str) -> None:
    """What the networks import, directly or not, excludes the terminal, environment variables, signals and ranks."""
    imports = {name_of(path): imports_of(path) for path in MODULES}
    found: dict[str, str] = {}
    waiting = {name: name for name in imports if f"{name}.".startswith(f"{package}.")}
    while waiting:
        name, importer = waiting.popitem()
        found[name] = importer
        waiting |= {each: name for each in imports.get(name, ()) if each not in found}
    forbidden = {name: importer for name, importer in found.items() if name.split(".")[0] in ("console", "runtime")}
    assert not forbidden, "a module -> one that imports it"


def test_every_module_has_a_layer() -> None:
    assert {name_of(path).split(".")[0] for path in MODULES} - {""} == set().union(*LAYERS)
    for package, layers in SUBPACKAGES.items():
        folders = {path.parent.name for path in (PACKAGE / package).glob("*/__init__.py")}
        assert folders == set().union(*layers)


def test_folders_are_small() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in paths if path.parent.name != "__pycache__")
    assert {folder for folder, count in counts.items() if count > MAX_FILES} == set(LARGE_FOLDERS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    text, is_test = path.read_text(), path.is_relative_to(ROOT / "tests")
    assert len(text.splitlines()) <= (MAX_TEST_LINES if is_test else MAX_LINES)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            first = node.body[1 if docstring and len(node.body) > 1 else 0]
            assert (node.end_lineno or 0) - first.lineno < MAX_FUNCTION_LINES, f"{path}: {node.name}"


def test_no_test_module_imports_another() -> None:
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    for path in (ROOT / "tests").rglob("*.py"):
        imported = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE))
        assert not tests & {name.rpartition(".")[2] for name in imported}, path


def test_pages_are_finished() -> None:
    """There is no marker where text was to be put in."""
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        assert not re.findall(r"^[A-Z]+[-_][A-Z_-]+$", page.read_text(), re.MULTILINE), page
