"""Here against a host: programs with state, edits, pulls, pushes, deaths and pools give equal answers, or an error."""

from __future__ import annotations

import copy
import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from somatize import Broker, Graph, node
from somatize.errors import StateConflict, WorkerDied

from .conftest import spawned

FACTOR = 1


class First:
    """Learns by itself, and has the list that the second node has too."""

    scale = 1

    def __init__(self) -> None:
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
        with torch.no_grad():
            for number, parameter in enumerate(self.net.parameters()):
                parameter.fill_(0.5 + number)
        self.count = 0
        self.told: list[float] = []
        self.table = np.zeros(3)
        self.box = {"limit": 3, "inner": [1]}

    def forward(self, x):
        loss = self.net(torch.full((3, 2), float(x)) + torch.arange(3.0)[:, None]).pow(2).mean()
        self.net.zero_grad()
        loss.backward()
        if x > 1:
            self.count += 1
            self.told.append(self.count)
        if x > 2:
            self.table[0] += self.box["limit"]
        return round(loss.item(), 4) * FACTOR * self.scale


class Second:
    def __init__(self, first: First) -> None:
        self.told = first.told
        self.optimizer = torch.optim.SGD(first.net.parameters(), lr=0.01, momentum=0.5)

    def forward(self, loss):
        self.optimizer.step()
        return [loss, len(self.told), self.optimizer.param_groups[0]["lr"]]


class Both:
    """The nodes, with what tells their state."""

    def __init__(self, host: str | None) -> None:
        self.first = First()
        self.second = Second(self.first)
        self.host = host
        self.edits = 0
        self._made()

    def _made(self) -> None:
        first, second = node(self.first).named("first"), node(self.second).named("second")
        whole = first >> second
        self.graph = Graph.somatize(whole if self.host is None else whole.at(self.host))

    def take(self, other: Both) -> None:
        """Be as the other one is."""
        self.first, self.second = copy.deepcopy((other.first, other.second))
        self._made()

    def state(self) -> Any:
        one, two = self.first, self.second
        momentum = [two.optimizer.state.get(parameter, {}).get("momentum_buffer") for parameter in one.net.parameters()]
        return (
            {name: value.tolist() for name, value in one.net.state_dict().items()},
            [None if value is None else value.tolist() for value in momentum],
            [one.count, one.told, one.table.tolist(), one.box, one.net.training, one.told is two.told],
            two.optimizer.param_groups[0]["lr"],
        )


# Each edit gives another value than the one before: to assign what is there already changes nothing, and what the host
# learned meanwhile stays.


def fill(one: Both) -> None:
    one.edits += 1
    one.first.net[0].weight.data.fill_(0.3 + one.edits / 64)


def by_numpy(one: Both) -> None:
    one.edits += 1
    one.first.net[0].bias.detach().numpy()[:] = 2.0 + one.edits


def buffer(one: Both) -> None:
    one.first.net[1].running_mean.add_(1.0)


def mode(one: Both) -> None:
    one.first.net.train(not one.first.net.training)


def count(one: Both) -> None:
    one.first.count += 10


def deep(one: Both) -> None:
    one.first.box["inner"].append(2)


def limit(one: Both) -> None:
    one.first.box["limit"] += 1


def listed(one: Both) -> None:
    one.second.told.append(0)


def rate(one: Both) -> None:
    one.second.optimizer.param_groups[0]["lr"] /= 2


def table(one: Both) -> None:
    one.edits += 1
    one.first.table[1] = one.edits


def another(one: Both) -> None:
    one.edits += 1
    one.first.table = np.full(3, float(one.edits))


EDITS = [fill, by_numpy, buffer, mode, count, deep, limit, listed, rate, table, another]
OTHERS = ["pull", "push", "global", "class", "pull"]


def steps(others: list[str]) -> Any:
    return st.one_of(st.integers(0, 3), st.sampled_from(EDITS), st.sampled_from(others))


def pid(_):
    return os.getpid()


class Far:
    """A program at a host beside the same one here."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.here, self.far = Both(None), Both("w1")
        self.died = False
        self.errors: list[Exception] = []

    def do(self, step: Any) -> None:
        if callable(step):
            step(self.here)
            step(self.far)
        elif isinstance(step, int):
            self.forward(step)
        else:
            getattr(self, f"do_{step}")()

    def forward(self, x: int) -> None:
        expected = self.here.graph.forward(x)
        try:
            answer = self.far.graph.forward(x, broker=self.broker)
        except (StateConflict, WorkerDied) as error:
            self.give_up(error)
        else:
            assert repr(answer) == repr(expected)  # which may be nan

    def give_up(self, error: Exception) -> None:
        self.errors.append(error)
        self.do_push()

    def do_push(self) -> None:
        self.far.graph.push(self.broker)
        self.here.take(self.far)

    def do_pull(self) -> None:
        edited = self.far.state()
        try:
            self.far.graph.pull(self.broker)
        except WorkerDied as error:
            assert repr(self.far.state()) == repr(edited)
            self.give_up(error)
        else:
            self.here.take(self.far)  # what was edited here and not sent is as it is there

    def do_die(self) -> None:
        worker = Graph.somatize(node(pid).at("w1")).forward(0, broker=self.broker)
        os.kill(worker, signal.SIGKILL)
        self.died = True

    def do_global(self) -> None:
        global FACTOR
        FACTOR += 1

    def do_class(self) -> None:
        First.scale += 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.embedded({"w1": spawned(send=[__name__]), "pool": [spawned(send=[__name__])] * 2}) as made:
        yield made


def compared(done: list[Any], broker: Broker) -> None:
    program = Far(broker)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in done:
            program.do(step)
        before = len(program.errors)
        program.forward(3)
        if len(program.errors) == before:
            expected = program.here.state()
            program.far.graph.pull(broker)
            assert repr(program.far.state()) == repr(expected)
    if not program.died and not any(callable(step) for step in done):
        assert program.errors == []


@given(st.lists(steps(OTHERS), max_size=12))
@example([fill, 0, fill])
@example([3, 3, "pull", 2, "die", 3, fill, 3])
@example([3, "pull", "die", 3, "push", count, 3])
@example([3, another, "pull", 3, another, 3, another, "push", 3])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_program_at_a_host_gives_what_it_gives_here_or_an_error(broker: Broker, program: list[Any]) -> None:
    compared(program, broker)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(st.lists(steps([*OTHERS, "die"]), max_size=30))
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_program_at_a_host_gives_what_it_gives_here_or_an_error_long(broker: Broker, program: list[Any]) -> None:
    compared(program, broker)


class Item:
    def __init__(self, learns: bool) -> None:
        self.learns = learns
        self.total = 0

    def forward(self, x):
        if self.learns and x > 5:
            self.total += x
        return x + self.total


@given(st.lists(st.integers(0, 9), max_size=40), st.booleans(), st.integers(0, 2))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_so_does_one_that_is_mapped_at_a_pool(broker: Broker, items: list[int], learns: bool, edited: int) -> None:
    here, far = Item(learns), Item(learns)
    at_pool = Graph.somatize(node(far).named("far").mapped().at("pool"))
    for _ in range(2):
        here.total = far.total = far.total + edited
        expected = Graph.somatize(node(here).mapped()).forward(items)
        try:
            assert at_pool.forward(items, broker=broker) == expected
        except StateConflict:
            assert learns
            assert max(items) > 5
            at_pool.push(broker)
