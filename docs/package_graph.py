"""The drawing of the packages: which sub-package of `electra` imports which, as SVG, computed from the source."""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

WIDTH, BOX, ROW, HEIGHT = 900, 116, 84, 34


def package_imports(package: Path) -> dict[str, set[str]]:
    """Sub-package or module -> those it imports, lazily and for types too."""
    names = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    graph: dict[str, set[str]] = {name: set() for name in names - {"__init__", "__main__"}}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                root, _, rest = module.partition(".")
                other = rest.partition(".")[0]
                if root == package.name and name in graph and other in graph and other != name:
                    graph[name].add(other)
    return graph


def without_implied(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The transitive reduction: an import is drawn only where no longer path implies it."""
    reachable: dict[str, set[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        reachable[name] = set(graph[name]).union(*(reachable[other] for other in graph[name]))
    return {
        name: {other for other in others if not any(other in reachable[third] for third in others - {other})}
        for name, others in graph.items()
    }


def draw(package: Path) -> str:
    """SVG in rows: a package is one row above the highest package that it imports; lines go down to what is imported."""
    graph = package_imports(package)
    level: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        level[name] = 1 + max((level[other] for other in graph[name]), default=-1)
    rows = defaultdict(list)
    for name in sorted(level):
        rows[level[name]].append(name)
    top = max(rows)
    at = {
        name: (WIDTH * (i + 1) / (len(names) + 1), 20 + ROW * (top - row))
        for row, names in rows.items()
        for i, name in enumerate(names)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROW * (top + 1)}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14"><title>Packages of electra and their imports</title>'
    ]
    for name, others in sorted(without_implied(graph).items()):
        for other in sorted(others):
            (x, y), (to_x, to_y) = at[name], at[other]
            parts.append(
                f'<path d="M{x:.0f} {y + HEIGHT} C{x:.0f} {y + ROW:.0f} {to_x:.0f} {to_y - ROW + HEIGHT:.0f} '
                f'{to_x:.0f} {to_y}" fill="none" stroke="#7986cb" data-edge="{name} {other}"/>'
            )
    for name, (x, y) in sorted(at.items()):
        parts.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="5" fill="#e8eaf6" stroke="#3f51b5"/>'
            f'<text x="{x:.0f}" y="{y + 22}" text-anchor="middle" fill="#1a237e">{escape(name)}</text>'
        )
    return "".join([*parts, "</svg>"])
