"""The same graph and the same facts on Ray, in a network namespace of its own: nothing listens beyond its loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.programs import program

IN_RAY = Path(__file__).with_name("in_ray.py")
NAMESPACE = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]


def in_ray(*words: str) -> dict[str, Any]:
    """What a process in a namespace with nothing but a loopback, and a Ray of its own, says at its end."""
    program("ip and unshare")
    # An address beside 127.0.0.1, so that there is one it could listen on and must not.
    outer = "ip addr add 192.0.2.7/32 dev lo && ip route add default dev lo src 192.0.2.7"
    inside = f"ip link set lo up && {outer} && exec {sys.executable} {IN_RAY} {' '.join(words)}"
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # its sockets need a short path
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder}
        done = subprocess.run(
            [*NAMESPACE, "sh", "-c", inside], capture_output=True, text=True, timeout=240, env=environment, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What one process that did everything on one Ray says of it: starting a Ray takes most of the time."""
    return in_ray()


# Ray gives its own processes 15 s to start; where they miss that, a Ray is begun up to three times.
pytestmark = pytest.mark.timeout(260)


def test_the_same_value_and_the_same_facts_in_the_same_order_while_the_slice_runs(said: dict[str, Any]) -> None:
    assert said["value"] == 10
    assert said["kinds"] == ["ran a", "loss b w1", "ran b w1", "left w1", "ran c", "finished"]


def test_many_facts_are_few_messages(said: dict[str, Any]) -> None:
    assert said["many"]["values"] == list(range(300))
    assert said["many"]["messages"] < 30


def test_a_pool_shares_the_items_of_a_mapped_node(said: dict[str, Any]) -> None:
    assert said["items"] == list(range(20))
    assert said["actors"] == 2
    assert said["pool_kinds"] == ["items", "ran", "left", "finished"]


def test_tasks_and_logs_come_back_under_their_node(said: dict[str, Any]) -> None:
    assert said["shown"] == [
        ["started", "forward", None, None],
        ["started", "far", "forward", "w1"],
        ["started", "outer", "far", "w1"],
        ["log", "in outer", "outer", "w1"],
        ["finished", "outer", "far", "w1"],
        ["started", "left", "far", "w1"],
        ["finished", "left", "far", "w1"],
        ["finished", "far", "forward", "w1"],
        ["finished", "forward", None, None],
    ]


def test_a_nodes_exception_and_what_cannot_be_rebuilt(said: dict[str, Any]) -> None:
    assert said["raised"] == ["ValueError", "no 3"]


def test_an_actor_that_dies_is_reported_and_started_again(said: dict[str, Any]) -> None:
    assert said["died"].startswith("the actor of host 'w1' ended in node 'dies'")
    assert said["again"] == "alive"


def test_an_interrupt_reaches_the_user_at_once_and_nothing_goes_on_there(said: dict[str, Any]) -> None:
    interrupted = said["interrupted"]
    assert interrupted.pop("within") < 1
    assert interrupted == {"before": "before", "told": ["failed", "broke"], "after": "after", "went_on": False}


def test_large_values_and_edits(said: dict[str, Any]) -> None:
    assert said["sum"] == 1_000_000.0
    assert said["edited"] == [2, 3]


def test_modes_random_numbers_and_classes_are_those_that_are_here_and_a_gradient_does_not_cross(
    said: dict[str, Any],
) -> None:
    found = said["as_here"]
    assert (found["modes"], found["drawn"], found["own"]) == (True, True, [True, 2])
    assert found["cut"].startswith("what node 'far' returned would lose its gradient on the way back from host 'w1'")
    assert found["cut there"].startswith("the graph's input would lose its gradient on the way to node 'far' at host")


def test_a_node_has_one_state_in_an_actor(said: dict[str, Any]) -> None:
    conflict, died, still = ["StateConflict", True, True], ["WorkerDied", True, True], ["WorkerDied", True, True]
    assert said["state"] == [1, 2, 0, 12, 12, 22, conflict, 110, died, still, 110, 110]


def test_what_cannot_be_placed_is_an_error_naming_it(said: dict[str, Any]) -> None:
    assert (
        "host 'big' asks for {'num_cpus': 1000}, which was not placed within 0.5 s; the cluster has" in said["unplaced"]
    )


def test_nothing_listened_beyond_loopback(said: dict[str, Any]) -> None:
    assert said["listening"]
    assert all(address.startswith(("127.", "::1", "::ffff:127.")) for address in said["listening"])


@pytest.mark.slow
def test_a_start_that_fails_leaves_nothing_and_is_tried_again() -> None:
    assert in_ray("again") == {"value": 3, "running": [0, 0], "after": 0}
