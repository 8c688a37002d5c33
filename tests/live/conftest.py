"""A graph whose forwards go as they are told, watched by a Live and a Recorder at once; and real kernels."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Live, Recorder, Store


def without_when(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as two clocks would agree on them."""
    return [{key: value for key, value in row.items() if key != "when"} for row in rows]


@pytest.fixture
def same() -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return without_when


def drawn(figure: Any) -> dict[str, Any]:
    """A figure as data, but for its title."""
    data: dict[str, Any] = figure.to_dict()
    data["layout"]["title"].pop("text", None)
    return data


@pytest.fixture
def untitled() -> Callable[[Any], dict[str, Any]]:
    return drawn


class Both:
    """A store with one run, and a Live that was told the same."""

    def __init__(self, place: Path, **live: Any) -> None:
        self.store = Store(place / "store")
        self.recorder = Recorder(self.store, "r", summarising=live.get("summarising", ["loss"]))
        self.live = Live("seen", **live)

    @property
    def watchers(self) -> list[Any]:
        return [self.recorder, self.live]

    def say(self, fact: dict[str, Any]) -> None:
        self.recorder(fact)
        self.live(fact)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    made.recorder.close()
    made.store.close()


def step(value: Any) -> Any:
    """Raises what it is given, if that can be raised."""
    if isinstance(value, BaseException):
        raise value
    return value


@pytest.fixture
def graph() -> Graph:
    return Graph.somatize(step)


class Kernel:
    """A real kernel, and what it publishes."""

    def __init__(self, argv: list[str] | None = None, environment: dict[str, str] | None = None) -> None:
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager(kernel_name="python3")
        if argv is not None:
            self.manager.kernel_spec.argv = argv
        self.manager.start_kernel(**({} if environment is None else {"env": environment}))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str, *, attended: bool = True) -> list[dict[str, Any]]:
        """Run a cell to its end; gives what was published meanwhile. Raises what it raised, as text."""
        messages = self.start(code, attended=attended)
        found = list(messages)
        for message in found:
            if message["msg_type"] == "error":
                raise AssertionError("\n".join(message["content"]["traceback"]))
        return found

    def start(self, code: str, *, attended: bool = True) -> Iterator[dict[str, Any]]:
        """Run a cell; gives each message as it comes, until the cell has ended."""
        parent = self.client.execute(code, allow_stdin=attended)
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            yield message
            if (
                message["msg_type"] == "status"
                and message["content"]["execution_state"] == "idle"
                and message["parent_header"].get("msg_id") == parent
            ):
                return

    def later(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 60) -> dict[str, Any]:
        """The first message of that kind published after a cell has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                message: dict[str, Any] = self.client.get_iopub_msg(timeout=0.5)
            except queue.Empty:
                continue
            if wanted(message):
                return message
        raise AssertionError("no such message came")

    def say(self, model: str, **content: Any) -> None:
        """What a page says to a widget."""
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": model, "data": data})
        self.client.shell_channel.send(message)

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.stop()


@pytest.fixture
def bare_kernel(tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    """A kernel where some packages are not installed: the others lie in a folder of their own."""
    made: list[Kernel] = []

    def start(*missing: str) -> Kernel:
        site = tmp_path / "site"
        site.mkdir()
        for path in list(sys.path):
            if path.endswith("site-packages"):
                for entry in Path(path).iterdir():
                    if not any(entry.name == name or entry.name.startswith(f"{name}-") for name in missing):
                        (site / entry.name).symlink_to(entry)
        root = Path(__file__).parents[2]
        environment = {"PYTHONPATH": f"{site}:{root}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        argv = [sys.executable, "-S", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        made.append(Kernel(argv, environment))
        return made[-1]

    yield start
    for one in made:
        one.stop()
