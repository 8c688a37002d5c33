"""The demo: what it prints is what it recorded, and it needs nothing but the core libraries."""

from __future__ import annotations

import csv
import gzip
import re
import shlex
import subprocess
import sys
import zlib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from somatize import record
from somatize.cli import digits
from tests.cli.conftest import call
from tests.cli.terminals import ENVIRONMENT

ALONE = """
import sys
core = {"click", "rich", "lmdb", "msgpack", "cloudpickle", "xxhash", "pygments", "markdown_it", "mdurl", "somatize"}
class OnlyCore:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in core and top not in sys.stdlib_module_names and not top.startswith("_"):
            raise ModuleNotFoundError(f"not a core library: {name}", name=name)
sys.meta_path.insert(0, OnlyCore())
from somatize.cli import main
main()
"""


def test_the_digits_are_those_of_their_source():
    held = digits.load()
    sklearn = find_spec("sklearn")  # it is read without being imported, which takes seconds
    assert sklearn is not None
    source = Path(sklearn.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(source, "rt") as lines:
        rows = [[float(pixel) for pixel in row] for row in csv.reader(lines)]
    assert [[*image, label] for image, label in zip(held.images, held.labels, strict=True)] == rows
    assert len(rows) == 1797


def test_source_and_licence_lie_beside_them():
    folder = files("somatize.cli.digits")
    words = (folder / "SOURCE.txt").read_text()
    assert "E. Alpaydin and C. Kaynak" in words
    assert "CC BY 4.0" in words
    packed = (folder / "digits.zlib").read_bytes()
    assert len(packed) < 50_000
    assert len(zlib.decompress(packed)) == digits.IMAGES * (1 + digits.PIXELS)


def test_it_learns_records_and_names_commands_that_work(tmp_path):
    to = tmp_path / "my runs"
    told = call("demo", "--to", to, "--epochs", 2).stdout
    (row,) = record.runs(to)
    assert (row["run"], row["forwards"], row["broke"]) == ("digits", 49, 1)
    points = record.curve(to, "digits")
    assert f"The loss fell from {points[0][1]:.2f} to {points[-1][1]:.2f}." in told
    assert points[0][1] > 2 > 1 > points[-1][1]
    assert int(re.search(r"it reads (\d+)%", told)[1]) > 70
    assert "IndexError: there is no image 1797; the last one is 1796" in told
    assert record.about(to, "digits")["config"] == {"rate": 0.5, "batch": 60, "epochs": 2}
    assert [task["state"] for task in record.tasks(to, "digits")] == ["finished"]
    named = [shlex.split(line)[1:] for line in told.splitlines() if line.startswith("  somatize ")]
    assert [words[0] for words in named] == ["runs", "forwards", "curve", "facts", "watch", "page"]
    for words in named[:4]:
        assert call(*words).stdout.count("\n") > 1


def test_again_it_is_another_run(tmp_path):
    for _ in range(2):
        call("demo", "--to", tmp_path / "runs", "--epochs", 1)
    assert [row["run"] for row in record.runs(tmp_path / "runs")] == ["digits", "digits-2"]


def test_where_something_else_is_nothing_is_done(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    told = call("demo", "--to", tmp_path, "--epochs", 1, code=3)
    assert "mine.txt" in told.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["mine.txt"]


def test_it_needs_no_library_but_the_core_ones(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "demo", "--epochs", "1"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (place,) = tmp_path.glob("somatize-*/runs")
    assert f"Recorded in {place} as run 'digits'." in done.stdout
    assert [row["forwards"] for row in record.runs(place)] == [25]
