"""``somatize page``: where it is written, what it leaves alone, and what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import NAMES, call


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_any_run(recorded: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "a run.html"
    assert call("page", recorded, name, "-o", out, "--of", "loss").stdout == f"{out}\n"
    made = out.read_text(encoding="utf-8")
    assert made.startswith("<!doctype html><!-- a page of somatize -->")
    assert name.replace("&", "&amp;") in made
    assert 4_000_000 < out.stat().st_size < 6_000_000


def test_a_page_is_replaced_and_another_file_is_not_without_force(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "notes.html"
    out.write_text("mine")
    refused = call("page", recorded, "steady", "-o", out, code=5).stderr
    assert refused == f"somatize: {out} is there and is no page of somatize; it was left as it is: give --force\n"
    assert out.read_text() == "mine"
    call("page", recorded, "steady", "-o", out, "--force")
    call("page", recorded, "steady", "-o", out)


def test_what_is_not_there_is_said(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert "did you mean 'steady'" in call("page", recorded, "stedy", "-o", out, code=3).stderr
    assert "say which" in call("page", recorded, "-o", out, code=2).stderr
    assert "did you mean 'loss'" in call("page", recorded, "steady", "-o", out, "--x", "lsos", code=3).stderr
    assert "is an empty directory" in call("page", tmp_path, "-o", out, code=3).stderr
    assert "there is no directory" in call("page", recorded, "steady", "-o", tmp_path / "no" / "p.html", code=5).stderr
    assert not out.exists()


def test_without_plotly_it_says_what_to_install(recorded: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['plotly'] = None; from somatize.cli import main; main()"
    words = ["page", str(recorded), "steady", "-o", str(tmp_path / "page.html")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 6
    assert done.stderr == "somatize: a figure needs plotly, which is not installed: pip install 'somatize[viz]'\n"
    assert not list(tmp_path.iterdir())
