"""The repository, its tests, and real data outside it: CONTRIBUTING says what may lie there; tests that need it are skipped without."""

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
TEST_DATA = Path(os.environ.get("ELECTRA_TEST_DATA") or ROOT / "../shared")
DATA = TEST_DATA / "data"
REFERENCE = TEST_DATA / "reference"
