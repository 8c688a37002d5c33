"""Modules that are named in ``send=`` can be imported by node code at a worker, here and where no file is shared."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Worker, node
from somatize.errors import BadWorker, SomatizeWarning
from somatize.worker import broker as connection
from somatize.worker import sent_modules

from .conftest import ARGV, spawned

FILES = {
    "sent_alone.py": (
        "import dataclasses, enum\nK = 3\nTABLE = {'a': [1]}\nCOUNT = 0\n"
        "class Cls:\n    limit = 1\n    def value(self): return self.limit + K + 0 * COUNT\n"
        "@dataclasses.dataclass(slots=True)\nclass Row:\n    v: int = 1\n"
        "class Color(enum.Enum):\n    RED = 1\n"
        "KINDS = (Cls, Row, Color)\n"
        "def f(x): return x + K\n"
        "def count(x):\n    global COUNT\n    COUNT += 1\n    return COUNT\n"
    ),
    "sent_fails.py": "import os\nif os.environ.get('AT_A_HOST'): raise OSError('no')\ndef f(x): return x + 1\n",
    "sent_pkg/__init__.py": "from .core import f as f\nNAME = __name__\n",
    "sent_pkg/core.py": "from . import deep\ndef f(x): return deep.inner.g(x) + 1\n",
    "sent_pkg/deep/__init__.py": "from . import inner\n",
    "sent_pkg/deep/inner.py": "from ..other import H\ndef g(x): return x * H\n",
    "sent_pkg/other.py": "H = 10\n",
    "sent_pkg/late.py": "def late(x): return ('late', x)\n",
    "sent_pkg/data.txt": "some data",
    "sent_pkg/tables/table.bin": "\x00\x01",
    "sent_space/part/code.py": "def f(x): return -x\n",
}
NAMES = ["sent_alone", "sent_pkg", "sent_space", "sent_fails"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "project")
    yield tmp_path / "project"
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture(params=["the same machine", "another machine"])
def broker(request: Any, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Of a worker that has the modules at hand, and of one that has to be sent their files."""
    if request.param == "another machine":
        # There is one machine: a worker on another one is one that shares no memory.
        monkeypatch.setattr(connection, "sees_memory", lambda _: False)
    (tmp_path / "elsewhere").mkdir()
    env = {"TMPDIR": str(tmp_path / "elsewhere"), "AT_A_HOST": "1"}
    with Broker.embedded({"w1": spawned(send=NAMES, env=env, cwd=tmp_path / "elsewhere")}) as made:
        yield made


def imports_alone(x):
    import sent_alone

    return sent_alone.f(x)


def imports_from(x):
    from sent_pkg.core import f
    from sent_pkg.deep.inner import g

    return f(x), g(x)


def imports_late(x):
    import importlib

    return importlib.import_module("sent_pkg.late").late(x)


def imports_space(x):
    from sent_space.part.code import f

    return f(x)


def reads_data(_):
    from importlib import resources

    with resources.as_file(resources.files("sent_pkg") / "tables" / "table.bin") as path:
        beside = path.parent.parent / "data.txt"
        return resources.files("sent_pkg").joinpath("data.txt").read_text(), path.read_bytes(), beside.read_text()


def reads_beside_file(_):
    from pathlib import Path

    import sent_pkg

    return Path(sent_pkg.__file__).with_name("data.txt").read_text(), sent_pkg.NAME


def far(function: Any) -> Graph:
    """A graph of a function that goes along by value, as that of a script."""
    function.__module__ = "__main__"
    return Graph.somatize(node(function).named("n").at("w1"))


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (imports_alone, 5),
        (imports_from, (21, 20)),
        (imports_late, ("late", 2)),
        (imports_space, -2),
        (reads_data, ("some data", b"\x00\x01", "some data")),
        (reads_beside_file, ("some data", "sent_pkg")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_node_imports_what_is_sent(function: Any, answer: Any, broker: Broker) -> None:
    assert far(function).forward(2, broker=broker) == answer


def kinds_of(x):
    from sent_alone import KINDS, Cls, Color, Row

    made = [Cls(), Row(), Color.RED]
    return [isinstance(one, kind) for one, kind in zip(x, KINDS, strict=True)], Cls in KINDS and Row in KINDS, made


def test_what_comes_by_value_and_what_is_imported_are_of_one_class(project: Path, broker: Broker) -> None:
    import sent_alone

    sent = [sent_alone.Cls(), sent_alone.Row(), sent_alone.Color.RED]
    for given in (sent, sent):
        same, whole, made = far(kinds_of).forward(given, broker=broker)
        assert (same, whole) == ([True] * 3, True)
        assert [type(one) for one in made] == [sent_alone.Cls, sent_alone.Row, sent_alone.Color]
        assert made[2] is sent_alone.Color.RED


def values_of(_):
    import sent_alone

    return sent_alone.K, sent_alone.TABLE, sent_alone.f(1)


def test_globals_are_as_they_are_here(project: Path, broker: Broker) -> None:
    import sent_alone

    graph = far(values_of)
    assert graph.forward(0, broker=broker) == (3, {"a": [1]}, 4)
    sent_alone.K = 50
    assert graph.forward(0, broker=broker) == (50, {"a": [1]}, 51)
    sent_alone.TABLE["a"].append(2)
    assert graph.forward(0, broker=broker) == (50, {"a": [1, 2]}, 51)


def counts_by_import(_):
    import sent_alone

    return sent_alone.count(0), sent_alone.COUNT


def test_a_function_that_came_and_the_imported_one_share_their_globals(project: Path, broker: Broker) -> None:
    import sent_alone

    by_value, by_import = Graph.somatize(node(sent_alone.count).at("w1")), far(counts_by_import)
    assert by_value.forward(0, broker=broker) == 1
    assert by_import.forward(0, broker=broker) == (2, 2)
    assert by_value.forward(sent_alone.Cls(), broker=broker) == 3  # its class brings no globals along
    assert by_import.forward(sent_alone.Cls(), broker=broker) == (4, 4)


def test_an_edit_of_a_class_counts_there_too(project: Path, broker: Broker) -> None:
    import sent_alone

    def value_of(x):
        from sent_alone import Cls

        return x.value(), Cls().value()

    graph = far(value_of)
    assert graph.forward(sent_alone.Cls(), broker=broker) == (4, 4)
    sent_alone.Cls.limit = 7
    assert graph.forward(sent_alone.Cls(), broker=broker) == (10, 10)
    sent_alone.Cls.value = lambda self: "edited"
    assert graph.forward(sent_alone.Cls(), broker=broker) == ("edited", "edited")


def test_where_a_module_cannot_be_imported_what_comes_by_value_runs(project: Path, broker: Broker) -> None:
    import sent_fails

    assert Graph.somatize(node(sent_fails.f).at("w1")).forward(1, broker=broker) == 2


def test_a_part_of_a_package_brings_the_packages_above_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sent_pkg" / "__init__.py").write_text("")
    files, _ = sent_modules.offered(["sent_pkg.deep"], shares=False)
    assert sorted(files["files"]) == ["sent_pkg/__init__.py", "sent_pkg/deep/__init__.py", "sent_pkg/deep/inner.py"]


def test_of_large_data_what_has_no_room_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it would take large files.
    monkeypatch.setattr(sent_modules, "MOST_DATA", 5)
    with pytest.warns(SomatizeWarning, match=r"1 data files of them do not go to another machine.*sent_pkg/data.txt"):
        files, _ = sent_modules.offered(["sent_pkg"], shares=False)
    assert "sent_pkg/data.txt" not in files["files"]
    assert "sent_pkg/tables/table.bin" in files["files"]


def test_project_mode_refuses_it_and_names_the_cure() -> None:
    with pytest.raises(BadWorker, match=r"a worker imports from its own checkout; .*PYTHONPATH.*mode='network'"):
        Worker.spawn(ARGV, mode="project", send=["json"])


def test_workers_share_one_folder_of_the_same_files(project: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(connection, "sees_memory", lambda _: False)
    env = {"TMPDIR": str(tmp_path)}
    graph = far(imports_alone)
    for factor in (3, 3, 4):
        (project / "sent_alone.py").write_text(FILES["sent_alone.py"].replace("K = 3", f"K = {factor}"))
        importlib.invalidate_caches()
        sys.modules.pop("sent_alone", None)
        with Broker.embedded({"w1": spawned(send=["sent_alone"], env=env)}) as broker:
            assert graph.forward(2, broker=broker) == 2 + factor
    (home,) = tmp_path.glob("somatize-modules-*")
    assert len(list(home.iterdir())) == 2
    assert home.stat().st_mode & 0o077 == 0
