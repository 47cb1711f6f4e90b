"""Real data outside the repository: CONTRIBUTING says what may lie there. Tests that need it are skipped where it is missing."""

import os
from pathlib import Path

TEST_DATA = Path(os.environ.get("ELECTRA_TEST_DATA") or Path(__file__).resolve().parents[2] / "../shared")
DATA = TEST_DATA / "data"
REFERENCE = TEST_DATA / "reference"
