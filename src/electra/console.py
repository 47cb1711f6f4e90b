"""What a person at the terminal sees: decisions as lines, long work as progress bars. Silent in all but the main process."""

import os

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

console = Console(quiet=os.environ.get("RANK", "0") != "0", highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def decided(what: str, why: str = "") -> None:
    """One line that says what was decided, and why."""
    console.print(f"[bold]·[/bold] {what}" + (f" [dim]({why})[/dim]" if why else ""))


def warned(text: str) -> None:
    """One line that deserves attention."""
    console.print(f"[yellow]! {text}[/yellow]")


def byte_progress() -> Progress:
    """A bar for work that reads a known number of bytes; on anything but a terminal only its end is shown."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=console,
    )


def training_progress() -> Progress:
    """The bar of a training run: share of the budget, what `detail` says, time left."""
    return Progress(
        TextColumn("[bold]{task.description}[/bold]"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
    )
