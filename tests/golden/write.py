"""Writes the golden files again: `python -m tests.golden.write`, from the root of the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"

if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "tests.golden.scene", str(GOLDEN)], cwd=ROOT, check=True)
