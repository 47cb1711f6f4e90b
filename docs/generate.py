"""Pages that are generated from the code when the site is built: an mkdocs hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "electra"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the drawing of the packages."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(DOCS))
    from package_graph import draw

    for path, content in (
        ("reference/cli.md", command_line()),
        ("reference/configuration.md", configuration()),
        ("concepts/packages.svg", draw(PACKAGE)),
    ):
        files.append(File.generated(config, path, content=content))
    return files


LIST_HELP = """
import contextlib, io, json, re, sys
from electra.cli import main

def help_text(*words):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return output.getvalue().strip()

overview = help_text()
commands = re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", overview, re.MULTILINE)
print(json.dumps({"": overview, **{name: help_text(name) for name in commands}}))
"""


def help_texts() -> dict[str, str]:
    """Map each command to the output of `electra COMMAND --help`, and the empty name to the overview.

    One process prints all of them: imports take seconds, and the width of the terminal is read once.
    """
    paths = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-c", LIST_HELP]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(json.loads(output))


def command_line() -> str:
    """Format a section for each command, with its help text."""
    overview, *commands = help_texts().items()
    sections = [f"## electra {name}\n\n```text\n{text}\n```\n" for name, text in commands]
    return f"# Command line\n\n```text\n{overview[1]}\n```\n\n" + "\n".join(sections)


def configuration() -> str:
    """Format the resolved configuration of every preset as a config file."""
    from electra.config.files import to_yaml
    from electra.presets import PRESETS

    head = (
        "# Configuration\n\nA config file (`--config`) is YAML with these names; on the command line they are dotted options. "
        "A preset is\napplied first, then the config file, then options. [Command line](cli.md) describes each option.\n"
    )
    return head + "".join(f"\n## {name}\n\n```yaml\n{to_yaml(build())}```\n" for name, build in PRESETS.items())
