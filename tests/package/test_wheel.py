"""What is published: a wheel with the package and nothing else, made of a source archive that makes the same wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import somatize

ROOT = Path(__file__).parents[2]
NAME = f"somatize-{somatize.__version__}"
INFO = f"{NAME}.dist-info"


def built(source: Path, kind: str, into: Path) -> Path:
    """The archive that the build backend makes of `source`, with what is installed here and no network."""
    asked = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(into), str(source)]
    subprocess.run(asked, check=True, capture_output=True, timeout=100)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return built(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def of_the_tree(*folders: str) -> set[str]:
    """The files there are, but for what Python and tools leave beside them."""
    found = (path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path.as_posix() for path in found if not any(part.startswith((".", "__pycache__")) for part in path.parts)}


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    about = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert held - of_the_tree("somatize") == about
    assert of_the_tree("somatize") - held == set()
    assert {"somatize/py.typed", "somatize/cells.js"} <= held
    assert not [name for name in held if "test" in name or name.endswith((".pyc", ".so"))]


def test_the_wheel_is_for_any_machine_and_small(wheel):
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    assert wheel.stat().st_size < 1_500_000


def test_the_licence_is_the_one_of_the_tree(wheel):
    assert zipfile.ZipFile(wheel).read(f"{INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_its_metadata_is_what_a_registry_takes(wheel):
    raw = zipfile.ZipFile(wheel).read(f"{INFO}/METADATA")
    metadata = Metadata.from_email(raw, validate=True)
    assert (metadata.name, str(metadata.version)) == ("somatize", somatize.__version__)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    without_pictures = re.sub(r"!\[.*?\]\(.*?\)", "", (ROOT / "README.md").read_text())
    assert (metadata.description or "").split() == without_pictures.split()
    assert "](docs/" not in (metadata.description or "")
    assert str(metadata.requires_python) == ">=3.11"
    assert sorted(metadata.provides_extra or []) == sorted(Parser().parsestr(raw.decode()).get_all("Provides-Extra"))
    core = [str(one) for one in metadata.requires_dist or [] if one.marker is None]
    assert [re.match(r"[\w-]+", one).group() for one in sorted(core)] == [
        "click",
        "cloudpickle",
        "lmdb",
        "msgpack",
        "rich",
        "xxhash",
    ]


def test_its_command_is_the_one_there_is(wheel):
    said = zipfile.ZipFile(wheel).read(f"{INFO}/entry_points.txt").decode()
    assert said.strip() == "[console_scripts]\nsomatize = somatize.cli:main"


def test_the_source_archive_holds_what_its_tests_need(sdist):
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert of_the_tree("somatize", "tests", "docs", "examples", "benchmarks", "notebooks") - held == set()
    assert {"README.md", "LICENSE", "CHANGELOG.md", "ARCHITECTURE.md", "Makefile", "pyproject.toml", "PKG-INFO"} <= held
    assert not [name for name in held if name.startswith((".venv", ".git/", ".ci", "build/"))]


def test_the_source_archive_makes_the_same_wheel(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    again = built(tmp_path / "source" / NAME, "wheel", tmp_path / "wheel")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
