"""The documentation: every snippet runs and prints what stands under it, and the reference leaves no public name out."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SLOW = {"howto/ray.md"}  # as Ray's own tests

PAGES = [
    pytest.param(
        path, id=path.relative_to(DOCS).as_posix(), marks=[pytest.mark.slow] * (str(path.relative_to(DOCS)) in SLOW)
    )
    for path in sorted(DOCS.rglob("*.md"))
]


@pytest.mark.parametrize("path", PAGES)
def test_every_snippet_runs_and_prints_what_it_says(page, path):
    page(path)
