"""What travels: code by value, code by its name, and through ssh."""

from __future__ import annotations

import getpass
import importlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Worker, node
from somatize.errors import BadWorker, NotSendable
from tests.programs import program

from .conftest import ARGV, spawned

MODULE = """
from somatize import Node

FACTOR = {factor}

class Times(Node):
    def __init__(self, by):
        self.by = by
    def forward(self, x, ctx):
        return x * self.by * FACTOR

def double(x):
    return 2 * x

def divide(x):
    return x / 0
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module `my_module`, which this process can import."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_module.py").write_text(MODULE.format(factor=10))
    yield tmp_path
    sys.modules.pop("my_module", None)


def test_a_local_module_goes_along_by_value_if_it_is_said(here: Path) -> None:
    import my_module

    graph = Graph.somatize(node(my_module.Times(2)).named("times").at("w1"))
    with Broker.embedded({"w1": spawned()}) as broker:
        with pytest.raises(NotSendable, match=r"No module named 'my_module'.*send=\[its name\]"):
            graph.forward(1, broker=broker)
    with Broker.embedded({"w1": spawned(send=["my_module"])}) as broker:
        assert graph.forward(1, broker=broker) == 20
        assert Graph.somatize(node(my_module.double).at("w1")).forward(4, broker=broker) == 8


def test_an_edit_in_any_module_that_goes_along_goes_along_too(here: Path) -> None:
    (here / "my_package").mkdir()
    (here / "my_package" / "__init__.py").write_text("")
    (here / "my_package" / "deep.py").write_text("RATES = {'x': 1}\nclass Adds:\n    def to(self, x): return x + 1\n")
    (here / "my_module.py").write_text(
        "from my_package import deep\n"
        "def node_code(x): return deep.Adds().to(x) * deep.RATES['x'] * factor()\n"
        "def factor(): return 10\n"
    )
    import my_module

    deep = my_module.deep
    graph = Graph.somatize(node(my_module.node_code).at("w1"))
    with Broker.embedded({"w1": spawned(send=["my_module", "my_package"])}) as broker:
        assert graph.forward(1, broker=broker) == 20
        deep.Adds.to = lambda self, x: x + 2
        assert graph.forward(1, broker=broker) == 30
        deep.RATES["x"] = 5
        assert graph.forward(1, broker=broker) == 150
        deep.RATES = {"x": 7}
        assert graph.forward(1, broker=broker) == 210
        (here / "my_package" / "deep.py").write_text(
            "RATES = {'x': -1}\nclass Adds:\n    def to(self, x): return -x\n\n"
        )
        importlib.invalidate_caches()
        importlib.reload(deep)
        assert graph.forward(1, broker=broker) == my_module.node_code(1) == 10
    for name in ("my_package", "my_package.deep"):
        sys.modules.pop(name)


def test_by_name_with_its_state(here: Path) -> None:
    import my_module

    with Broker.embedded({"w1": spawned(mode="project", env={"PYTHONPATH": str(here)})}) as broker:
        graph = Graph.somatize(node(my_module.Times(3)).at("w1") >> node(my_module.double).at("w1"))
        assert graph.forward(1, broker=broker) == 60
        graph.implementation("times").by = 4
        assert graph.forward(1, broker=broker) == 80
        with pytest.raises(NotSendable, match="a codec"):
            graph.forward(object(), broker=broker)
        with pytest.raises(ZeroDivisionError, match="division by zero") as raised:
            Graph.somatize(node(my_module.divide).at("w1")).forward(1, broker=broker)
        assert "in divide" in "".join(raised.value.__notes__)


def test_another_source_there_is_refused_naming_the_class(here: Path, tmp_path_factory: Any) -> None:
    import my_module

    other = tmp_path_factory.mktemp("other")
    (other / "my_module.py").write_text(MODULE.format(factor=10).replace("x * self.by", "x + self.by"))
    with Broker.embedded({"w1": spawned(mode="project", env={"PYTHONPATH": str(other)})}) as broker:
        with pytest.raises(NotSendable, match="the source of my_module:Times is another one here"):
            Graph.somatize(node(my_module.Times(3)).at("w1")).forward(1, broker=broker)
        with pytest.raises(NotSendable, match=r"lambda.*use the mode 'network'"):
            Graph.somatize(node(lambda x: x).at("w1")).forward(1, broker=broker)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"argv": "python -m somatize.worker"}, "a list of texts"),
        ({"argv": []}, "a list of texts"),
        ({"argv": ["x"], "mode": "remote"}, "'network' or 'project'"),
        ({"argv": ["x"], "send": "my_module"}, "a list of modules"),
        ({"argv": ["x"], "send": ["no_such_module"]}, "there is no module 'no_such_module' here"),
        ({"argv": ["x"], "send": ["no.such.module"]}, r"there is no module 'no\.such\.module' here"),
        ({"argv": ["x"], "send": [os]}, "there is no module <module 'os'"),
        ({"argv": ["x"], "env": {"THREADS": 4}}, "a dict of texts"),
        ({"argv": ["x"], "timeout": 0}, "a number of seconds"),
        ({"argv": ["x"], "timeout": float("inf")}, "a number of seconds"),
        ({"argv": ["x"], "timeout": "3"}, "a number of seconds"),
    ],
)
def test_what_cannot_be_a_worker_is_refused_where_it_is_said(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(BadWorker, match=words):
        Worker.spawn(**wrong)


def test_env_and_cwd(tmp_path: Path) -> None:
    def where(x):
        return __import__("os").getcwd(), __import__("os").environ["MINE"]

    with Broker.embedded({"w1": spawned(env={"MINE": "yes"}, cwd=tmp_path)}) as broker:
        assert Graph.somatize(node(where).at("w1")).forward(0, broker=broker) == (str(tmp_path), "yes")


@pytest.fixture
def ssh(tmp_path: Path) -> list[str]:
    """An ssh to this machine: a server for one connection at a time on its own stdin, with keys made here."""
    client, server = program("ssh"), program("sshd")
    for name in ("host", "user"):
        key = str(tmp_path / name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "allowed").write_bytes((tmp_path / "user.pub").read_bytes())
    (tmp_path / "allowed").chmod(0o600)
    if os.getuid() == 0:  # where Debian's has its privileges separated
        Path("/run/sshd").mkdir(exist_ok=True)
    (tmp_path / "config").write_text(
        f"HostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/allowed\nStrictModes no\nUsePAM no\n"
        f"PidFile none\nPasswordAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\n"
    )
    # No port: the client's own ProxyCommand starts the server, and they talk over its pipes.
    proxy = shlex.join([server, "-i", "-f", str(tmp_path / "config")])
    options = ["ProxyCommand " + proxy, "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "LogLevel ERROR"]
    options += ["BatchMode yes", f"IdentityFile {tmp_path}/user", "IdentitiesOnly yes"]
    return [
        client,
        "-F",
        "none",
        *(word for option in options for word in ("-o", option)),
        f"{getpass.getuser()}@anywhere",
    ]


def test_through_ssh(ssh: list[str], capfd: Any) -> None:
    def work(x):
        import os
        import subprocess

        print("hello from afar")
        subprocess.run(["sh", "-c", "cat; echo child"], check=True)
        return os.getpid()

    graph = Graph.somatize(node(work).named("work").at("gpu1"))
    argv = [*ssh, shlex.join(ARGV)]
    with Broker.embedded({"gpu1": Worker.spawn(argv)}) as broker:
        seen: list[Any] = []
        pid = graph.forward(1, broker=broker, watching=seen.append)
        assert [(f["fact"], f.get("host")) for f in seen if f["fact"] != "machine"] == [
            ("ran", "gpu1"),
            ("left", "gpu1"),
            ("finished", None),
        ]
        assert graph.forward(1, broker=broker) == pid
    until = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
    assert capfd.readouterr().err.count("[gpu1] hello from afar\n") == 2


def test_a_death_on_the_other_side_of_ssh(ssh: list[str]) -> None:
    def dies(x):
        import os
        import signal

        if x:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    from somatize.errors import WorkerDied

    graph = Graph.somatize(node(dies).named("far").at("gpu1"))
    with Broker.embedded({"gpu1": Worker.spawn([*ssh, shlex.join(ARGV)])}) as broker:
        graph.forward(0, broker=broker)
        with pytest.raises(WorkerDied, match=r"host 'gpu1' ended by .* in node 'far'"):
            graph.forward(1, broker=broker)
        assert graph.forward(0, broker=broker) > 0
