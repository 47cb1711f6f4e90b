"""Parts of the reports of runs: one HTML page that contains its figures, tables, curves over training."""

import base64
import html
import io
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from electra.plotting import Axes, Figure
from electra.storage import convert_os_errors, write_atomically

NEUTRAL = "#777777"
Corner = Literal["upper right", "lower right"]
FALLING: Corner = "upper right"
RISING: Corner = "lower right"
"""Places of legends beside curves that fall or rise; matplotlib takes seconds to find the best place in a long run."""
Rows = Sequence[Mapping[str, Any]]
"""Rows of a run's `metrics.jsonl`."""


def plot_metrics(axes: Axes, rows: Rows, names: Mapping[str, str], title: str, legend: Corner = FALLING) -> None:
    """Plot metrics over the steps; `names` are their labels by name."""
    steps = [row["step"] for row in rows]
    for name, label in names.items():
        axes.plot(steps, [row.get(name, math.nan) for row in rows], label=label, linewidth=1.4)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.grid(alpha=0.25)
    if names:
        axes.legend(fontsize=8, loc=legend)


def write_page(directory: Path, title: str, body: str, figures: Mapping[str, Figure]) -> Path:
    """Write `report.html`, with the figures at its end, and the figures in `pictures/`; return the path of the HTML file.

    `body` is HTML.
    """
    with convert_os_errors(directory):
        pictures = directory / "pictures"
        pictures.mkdir(exist_ok=True)
        images = []
        for name, figure in figures.items():
            buffer = io.BytesIO()
            with warnings.catch_warnings():
                # Characters that no font has are drawn as boxes; the text of the page has them.
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                figure.savefig(buffer, format="png", dpi=110)
            write_atomically(pictures / f"{name}.png", buffer.getvalue())
            image = base64.b64encode(buffer.getvalue()).decode()
            images.append(f'<p><img alt="{name}" src="data:image/png;base64,{image}">')
        path = directory / "report.html"
        write_atomically(path, format_page(title, body, images).encode())
    return path


def format_page(title: str, body: str, images: Iterable[str]) -> str:
    """Format an HTML page."""
    return f"""<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }} th {{ text-align: left }}
td, th {{ padding: .15rem 1rem .15rem 0; border-bottom: 1px solid #ddd }}
.n {{ text-align: right; font-variant-numeric: tabular-nums }} img {{ max-width: 100% }}
.s span {{ padding: .05rem .15rem; border-radius: .2rem }} .r {{ text-decoration: underline }} small {{ color: #777 }}
</style>
<h1>{html.escape(title)}</h1>
{body}
<h2>Figures</h2>{"".join(images)}
"""


def format_table(rows: Iterable[Sequence[str]], numbers: bool = False) -> str:
    """Format rows of a description and its values as an HTML table; numbers are aligned on the right."""
    start = "<td class=n>" if numbers else "<td>"
    cells = (
        f"<tr><td>{html.escape(name)}" + "".join(f"{start}{html.escape(value)}" for value in values)
        for name, *values in rows
    )
    return f"<table>{''.join(cells)}</table>"
