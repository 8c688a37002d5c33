"""What is published: a wheel with the part in C, one without it for any machine, and a source archive that makes both.

What is compiled needs a C compiler and Python's headers, which `.ci/run` installs.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.metadata import Metadata

import somatize
from tests.programs import program

ROOT = Path(__file__).parents[2]
NAME = f"somatize-{somatize.__version__}"
INFO = f"{NAME}.dist-info"
MODULE = "somatize/store/_speedups.abi3.so"
THE_LINE = "somatize: built without its part in C, so recording takes longer: "
ABOUT_COMPILING = {"SOMATIZE_PURE", "CC", "CFLAGS", "LDSHARED", "LDFLAGS"}
# As `python -m build --no-isolation` and pip ask, whose own ways to that point take as long again.
ASKED = "import sys, hatchling.build as backend; getattr(backend, f'build_{sys.argv[1]}')(sys.argv[2])"


def around(**environment: str) -> dict[str, str]:
    """What a build finds in its environment: nothing that this one may hold about compiling, but what is given."""
    return {name: value for name, value in os.environ.items() if name not in ABOUT_COMPILING} | environment


def built(source: Path, kind: str, into: Path, **environment: str) -> tuple[Path, list[str]]:
    """The archive that the build backend makes of `source` without a network, and what it said of the part in C."""
    into.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", ASKED, kind, into],
        cwd=source,
        env=around(**environment),
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    (made,) = into.iterdir()
    return made, [line for line in done.stderr.splitlines() if line.startswith("somatize:") or "warning:" in line]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """With the part in C; that it was left out, or a warning of the compiler, is a failure."""
    program("a C compiler with Python's headers")
    made, said = built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))
    assert said == []
    return made


@pytest.fixture(scope="module")
def pure(tmp_path_factory) -> Path:
    made, said = built(ROOT, "wheel", tmp_path_factory.mktemp("pure"), SOMATIZE_PURE="1")
    assert said == []
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    made, said = built(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    assert said == []
    return made


@pytest.fixture
def source(sdist, tmp_path) -> Path:
    """The tree that the source archive holds."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    return tmp_path / "source" / NAME


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def of_the_tree(*folders: str) -> set[str]:
    """The files there are, but for what Python and tools leave beside them."""
    found = (path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    kept = (path for path in found if path.suffix != ".so")
    return {path.as_posix() for path in kept if not any(part.startswith((".", "__pycache__")) for part in path.parts)}


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(pure):
    held = set(contents(pure))
    about = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert held - of_the_tree("somatize") == about
    assert {path for path in of_the_tree("somatize") - held if not path.startswith("somatize/store/native/")} == set()
    assert {"somatize/py.typed", "somatize/figures/notebook.js"} <= held
    assert not [name for name in held if "test" in name or name.endswith((".pyc", ".so", ".c", ".h"))]


def test_the_pure_wheel_is_for_any_machine_and_small(pure):
    assert pure.name == f"{NAME}-py3-none-any.whl"
    about = contents(pure)[f"{INFO}/WHEEL"].decode().splitlines()
    assert about[2:] == ["Root-Is-Purelib: true", "Tag: py3-none-any"]
    assert pure.stat().st_size < 1_500_000


def test_the_compiled_wheel_is_for_one_platform_and_this_cpython_and_later_ones(wheel):
    since = f"cp{sys.version_info.major}{sys.version_info.minor}"  # not before what it was compiled with
    tag = re.fullmatch(rf"{re.escape(NAME)}-({since}-abi3-(?!many|musl|any)[a-z0-9_]+)\.whl", wheel.name)
    assert tag is not None, wheel.name
    about = contents(wheel)[f"{INFO}/WHEEL"].decode().splitlines()
    assert about[2:] == ["Root-Is-Purelib: false", f"Tag: {tag[1]}"]
    assert wheel.stat().st_size < 1_500_000


def test_the_wheels_differ_by_one_module(wheel, pure):
    compiled, plain = contents(wheel), contents(pure)
    assert set(compiled) - set(plain) == {MODULE}
    assert set(plain) - set(compiled) == set()
    told = {f"{INFO}/WHEEL", f"{INFO}/RECORD"}
    assert {name for name in plain if plain[name] != compiled[name]} == told


def test_the_module_is_taken_from_the_wheel_and_names_no_folder_of_its_build(wheel, tmp_path):
    module = contents(wheel)[MODULE]
    assert not [place for place in (str(ROOT), sys.prefix, sys.base_prefix) if place.encode() in module]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    asked = "from somatize.store import speedups; print(speedups.MODULE.__file__)"
    path = around(PYTHONPATH=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, env=path, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / MODULE), "")


def test_where_nothing_compiles_the_wheel_is_the_pure_one_and_a_line_says_why(pure, tmp_path):
    made, said = built(ROOT, "wheel", tmp_path / "wheel", CC="/bin/false")
    assert made.name == pure.name
    assert made.read_bytes() == pure.read_bytes()
    (line,) = said
    assert line.startswith(THE_LINE)
    assert "/bin/false" in line
    assert len(line) < 200


@pytest.mark.parametrize(
    ("asked", "name", "value", "why"),
    [
        ("sysconfig", "get_config_var", {"Py_GIL_DISABLED": 1}.get, "this Python has no GIL"),
        ("sys", "implementation", SimpleNamespace(name="pypy"), "pypy is not CPython"),
    ],
)
def test_a_python_that_cannot_take_the_module_gets_none(asked, name, value, why, tmp_path, monkeypatch, capsys):
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    monkeypatch.delenv("SOMATIZE_PURE", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(hook[asked], name, value)
        made = hook["compiled"](ROOT, tmp_path)
    assert made is None
    assert capsys.readouterr().err == f"{THE_LINE}{why}\n"
    assert [*tmp_path.iterdir()] == []


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
    assert {
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "ARCHITECTURE.md",
        "Makefile",
        "pyproject.toml",
        "PKG-INFO",
    } <= held
    assert not [name for name in held if name.startswith((".venv", ".git/", ".ci", "build/")) or name.endswith(".so")]


def test_the_source_archive_makes_the_same_wheel_and_is_left_as_it_was(wheel, source, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    again, said = built(source, "wheel", tmp_path / "wheel")
    assert (again.name, said) == (wheel.name, [])
    assert again.read_bytes() == wheel.read_bytes()
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before


def test_an_editable_wheel_has_the_module_in_the_tree_and_a_pure_one_takes_it_away(wheel, pure, source, tmp_path):
    def editable(name: str, **environment: str) -> set[str]:
        made, said = built(source, "editable", tmp_path / name, **environment)
        assert said == []
        assert made.name == pure.name
        assert [*(source / "build").iterdir()] == []
        return {held for held in contents(made) if not held.startswith(INFO)}

    module = source / MODULE
    module.write_bytes(b"of other sources")
    assert editable("first") == {"_somatize.pth"}
    assert module.read_bytes() == contents(wheel)[MODULE]
    plain, _ = built(source, "wheel", tmp_path / "plain", SOMATIZE_PURE="1")
    assert plain.read_bytes() == pure.read_bytes()
    assert editable("second", SOMATIZE_PURE="1") == {"_somatize.pth"}
    assert not module.exists()
