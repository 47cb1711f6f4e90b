"""GLUE's folder, and one study that was run to its end."""

from pathlib import Path

import pytest
from toy_studies import order
from toy_tasks import write_glue

from electra.studies.run import run_study


@pytest.fixture(scope="session")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


@pytest.fixture(scope="session")
def done(text: Path, glue: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The toy study without its control, with two seeds, two runs at a time."""
    out = tmp_path_factory.mktemp("studies") / "done"
    return out, run_study(order(text, glue, out, seeds=2, workers=2, variants=("electra", "mlm", "broken")))
