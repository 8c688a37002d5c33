"""What today's code makes is what it made when the golden files were written; `make golden` writes them again."""

from __future__ import annotations

import difflib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"


def files(place: Path) -> dict[str, str]:
    return {
        path.relative_to(place).as_posix(): path.read_text("utf-8")
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that the scene makes now, in a process of its own, as its clock stands still."""
    place = tmp_path_factory.mktemp("golden")
    words = [sys.executable, "-m", "tests.golden.scene", str(place)]
    subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    return files(place)


def test_the_same_files_are_made(made: dict[str, str]) -> None:
    assert sorted(made) == sorted(files(GOLDEN))


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the version of Python is a part of these names")
def test_kept_results_have_the_names_they_had_before_the_modules_moved(made: dict[str, str]) -> None:
    assert made["names.json"] == files(GOLDEN)["names.json"]


@pytest.mark.parametrize("name", sorted({*files(GOLDEN)} - {"names.json"}))
def test_a_file_is_as_it_was(name: str, made: dict[str, str]) -> None:
    old, new = files(GOLDEN)[name], made.get(name, "")
    if old != new:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "golden", "now", lineterm="", n=1)
        first = "\n".join(line[:300] for line in itertools.islice(lines, 30))
        pytest.fail(f"tests/data/golden/{name} differs:\n{first}", pytrace=False)
