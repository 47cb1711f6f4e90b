"""The drawing of the packages: which sub-package of `electra` imports which, as SVG, computed from the source."""

import ast
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean

WIDTH, BOX, GAP, WAYPOINT, ROW, HEIGHT = 660, 110, 14, 26, 72, 34
SWEEPS = 20


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


def reduce_transitively(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Remove the edges that a longer path implies (transitive reduction)."""
    reachable: dict[str, set[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        reachable[name] = set(graph[name]).union(*(reachable[other] for other in graph[name]))
    return {
        name: {other for other in others if not any(other in reachable[third] for third in others - {other})}
        for name, others in graph.items()
    }


def find_levels(graph: dict[str, set[str]]) -> dict[str, int]:
    """Find the level of each package: one above the highest package that it imports."""
    levels: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        levels[name] = 1 + max((levels[other] for other in graph[name]), default=-1)
    return levels


def route_edges(graph: dict[str, set[str]], levels: dict[str, int]) -> dict[tuple[str, str], list[str]]:
    """List the nodes of each edge, with a waypoint on every level between its two packages."""
    return {
        (name, other): [
            name,
            *(f"{name}>{other}@{level}" for level in range(levels[name] - 1, levels[other], -1)),
            other,
        ]
        for name, others in sorted(graph.items())
        for other in sorted(others)
    }


def order_rows(edges: dict[tuple[str, str], list[str]], levels: dict[str, int]) -> dict[int, list[str]]:
    """Order the nodes of each level by the mean position of their neighbors, so that few edges cross (Sugiyama)."""
    rows: dict[int, list[str]] = {level: [] for level in range(max(levels.values()) + 1)}
    neighbors: dict[str, set[str]] = {name: set() for name in levels}
    for name in sorted(levels):
        rows[levels[name]].append(name)
    for (name, _), nodes in edges.items():
        for step, waypoint in enumerate(nodes[1:-1], 1):
            rows[levels[name] - step].append(waypoint)
            neighbors[waypoint] = set()
        for above, below in pairwise(nodes):
            neighbors[above].add(below)
            neighbors[below].add(above)
    for _ in range(SWEEPS):
        for row in rows.values():
            place = {node: (i + 0.5) / len(each) for each in rows.values() for i, node in enumerate(each)}
            row.sort(key=lambda node: fmean(place[other] for other in neighbors[node] or {node}))
    return rows


def place_nodes(rows: dict[int, list[str]]) -> dict[str, tuple[float, float]]:
    """Compute the center of the top edge of each box, and of each waypoint, which is narrower."""
    at = {}
    for level, nodes in rows.items():
        widths = [WAYPOINT if "@" in node else BOX + GAP for node in nodes]
        left = (WIDTH - sum(widths)) / 2
        for node, width in zip(nodes, widths, strict=True):
            at[node] = (left + width / 2, 10 + ROW * (len(rows) - 1 - level))
            left += width
    return at


def draw(package: Path) -> str:
    """Draw the packages in rows as SVG, with lines from each package down to those that it imports."""
    graph = package_imports(package)
    levels = find_levels(graph)
    edges = route_edges(reduce_transitively(graph), levels)
    rows = order_rows(edges, levels)
    at = place_nodes(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROW * len(rows)}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14"><title>Packages of electra and their imports</title>'
    ]
    for (name, other), nodes in edges.items():
        x, y = at[name]
        path = f"M{x:.0f} {y + HEIGHT}"
        for node in nodes[1:]:
            (to_x, to_y), bend = at[node], (ROW - HEIGHT) / 2
            path += f" C{x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y}"
            path += f" V{to_y + HEIGHT}" if node != other else ""
            x = to_x
        parts.append(f'<path d="{path}" fill="none" stroke="#7986cb" data-edge="{name} {other}"/>')
    for name in sorted(levels):
        x, y = at[name]
        parts.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="5" fill="#e8eaf6" stroke="#3f51b5"/>'
            f'<text x="{x:.0f}" y="{y + 22}" text-anchor="middle" fill="#1a237e">{escape(name)}</text>'
        )
    return "".join([*parts, "</svg>"])
