"""Fixtures: GLUE's folder, and a finished study."""

import shutil
from pathlib import Path

import pytest
from support.toy_studies import study_config, toy_scale
from support.toy_tasks import write_glue

from electra.studies.inputs import prepare_shared_data
from electra.studies.run import run_study


@pytest.fixture(scope="session")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


@pytest.fixture(scope="session")
def data(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare the text for the toy scale."""
    return Path(prepare_shared_data(toy_scale(), str(text), tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="session")
def done(data: Path, glue: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """Run the toy study without its control, with two seeds, two runs at a time."""
    out = tmp_path_factory.mktemp("studies") / "done"
    return out, run_study(study_config(data, glue, out, seeds=2, workers=2, variants=("electra", "mlm", "broken")))


@pytest.fixture
def own(done: tuple[Path, dict], tmp_path: Path) -> Path:
    """Copy the finished study for a test that continues it, so tests do not affect each other."""
    return Path(shutil.copytree(done[0], tmp_path / "own"))
