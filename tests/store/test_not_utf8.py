"""Text that UTF-8 cannot write, as file names may be: recorded as an escape, wherever it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from somatize import Ctx, Graph, Recorder, Store, node
from somatize.errors import BadRun, UnknownName, UnknownRun
from somatize.record import Followed, about, curve, export, facts, forwards, page, progress, runs

ODD, ESCAPED = "caf\udce9", "caf\\udce9"

PROGRAM = """
import json, os, sys
from somatize import Graph, Recorder, Store, node
from somatize.record import about
with Recorder(Store("store"), run="r") as recorder:
    Graph.somatize(node(abs)).forward(1, watching=recorder)
told = about("store", "r")
print(json.dumps([told[key] for key in ("argv", "cwd", "user", "executable", "argv0")]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems refuse such names of files")
def test_of_a_process(tmp_path: Path) -> None:
    directory = tmp_path / ODD
    directory.mkdir()
    python = directory / f"python{ODD}"
    python.symlink_to(sys.executable)
    script = directory / f"{ODD}.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [python, "-W", "error", script, os.fsencode(f"{ODD}.csv")],
        cwd=directory,
        env={**os.environ, "USER": ODD, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    argv, cwd, user, executable, argv0 = json.loads(done.stdout)
    assert (argv[-1], user) == (f"{ESCAPED}.csv", ESCAPED)
    assert cwd.endswith(ESCAPED)
    assert ESCAPED in argv0
    assert ESCAPED in executable or "python" in executable


@pytest.fixture
def odd(tmp_path: Path) -> Store:
    try:
        return Store(tmp_path / ODD)
    except UnicodeEncodeError:
        pytest.skip("this system refuses such names of files")


def test_of_a_run_and_its_facts(way: str, odd: Store) -> None:
    @node
    def tells(value: Any, ctx: Ctx) -> Any:
        ctx.tell({"fact": "path", "value": ODD, ODD: 1})
        ctx.tell({"fact": ODD, "value": 1.5})
        return value

    graph = Graph.somatize(tells.named("a").frozen().cached())
    given = {ODD: ODD, "list": [ODD], ("a", ODD): {ODD: 1}}
    with Recorder(odd, run="r", summarising=["path", ODD], config=given) as recorder:
        assert graph.forward(ODD, watching=recorder, store=odd) == ODD
        assert graph.forward(ODD, watching=recorder, store=odd) == ODD
        recorder({"fact": "loss", "value": ODD})
        recorder.say_of_run({"fact": f"of {ODD}", ODD: ODD})
    assert about(odd)["config"] == {ESCAPED: ESCAPED, "list": [ESCAPED], str(("a", ODD)): {ESCAPED: 1}}
    assert about(odd)["facts"] == [{"fact": f"of {ESCAPED}", ESCAPED: ESCAPED}]
    assert facts(odd, forward=0)[:2] == [
        {"fact": "path", "value": ESCAPED, ESCAPED: "1", "node": "a"},
        {"fact": ESCAPED, "value": "1.5", "node": "a"},
    ]
    assert facts(odd, forward=1)[-1] == {"fact": "loss", "value": ESCAPED}
    assert forwards(odd)[0]["path.value"] == ESCAPED
    assert curve(odd, of=ODD) == curve(odd, of=ESCAPED) == [(0, 1.5)]
    assert odd.check() == []


def test_of_names_and_places(odd: Store, tmp_path: Path) -> None:
    with pytest.raises(BadRun):
        Recorder(odd, run=ODD)
    with pytest.raises(UnknownRun):
        forwards(odd, ODD)
    with Recorder(odd, run="r") as recorder:
        Graph.somatize(abs).forward(1, watching=recorder)
    odd.keep("a", 1, {ODD: ODD})
    odd.bind("b", odd.put(b"x"), {ODD: ODD})
    assert odd.kept("a")[0].meta[ESCAPED] == odd.bound("b")[0].meta[ESCAPED] == ESCAPED
    assert odd.bound(ODD) == odd.kept(ODD) == []
    assert page(odd, "r", tmp_path / f"{ODD}.html").exists()
    assert export.to_csv(odd, "r", tmp_path / f"{ODD}.csv").path.exists()
    assert [row["run"] for row in runs(odd.copy(tmp_path / f"copy {ODD}"))] == ["r"]
    with pytest.raises(UnknownName):
        progress(odd, of=ODD)
    with Followed(odd.path) as followed:
        assert followed.look()
