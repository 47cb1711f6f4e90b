"""The house rule: imports only go down, and rooms on one floor do not import each other."""

import ast
import re
from pathlib import Path

import pytest

import electra

PACKAGE = Path(electra.__file__).parent
FLOORS = [
    {"errors"},
    {"external"},
    {"hints"},
    {"plain_values"},
    {"config", "runtime", "console", "storage", "seeding", "schema", "drawing"},
    {"text", "model", "train"},
    {"data"},
    {"pretraining", "finetuning"},
    {"serving"},
    {"presets"},
    {"studies"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {room: height for height, floor in enumerate(FLOORS) for room in floor}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms a module imports, wherever in the file the import stands (lazy and type-only ones too)."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "electra":
            names |= {f"electra.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            names.add(node.module or "")
    rooms = {name.split(".")[1] for name in names if name.startswith("electra.")}
    return {room for room in rooms if not room.startswith("__")}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_go_down(path: Path) -> None:
    here = room_of(path)
    if here == "__init__":
        return  # the root exposes the public names lazily, from the commands alone
    for there in imported_rooms(path):
        assert there == here or HEIGHT[there] < HEIGHT[here], f"{here} imports {there}"


def test_every_room_stands_on_a_floor() -> None:
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert rooms == set(HEIGHT)


@pytest.mark.parametrize("floor", ["electra", "benchmarks"])
def test_the_readme_names_every_file(floor: str) -> None:
    """Under its folder, with a line that says what is in it; of `commands` the folder is enough."""
    root = Path(__file__).parents[1]
    house = (root / "README.md").read_text().split("## The house")[1].split("```")[1]
    named = re.findall(r"^ *(?:src/)?([\w/]+(?:\.py)?)(?= |$)", house, re.MULTILINE)
    folder = {"electra": PACKAGE, "benchmarks": root / "benchmarks"}[floor]
    files = [path for path in folder.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    missing = [path for path in files if path.parent.name != "commands" and path.name not in named]
    assert not missing


def test_pages_are_finished() -> None:
    """No marker stands where text was to be put in."""
    root = Path(__file__).parents[1]
    for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md")):
        assert not re.findall(r"^[A-Z]+[-_][A-Z_-]+$", page.read_text(), re.MULTILINE), page
