"""A node at a host has one state: what changed on one side arrives, and what changed on both is refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from somatize import Broker, Graph, Node, Store, node
from somatize.errors import HostTimeout, NotSendable, SomatizeWarning, StateConflict, WorkerDied

from .conftest import spawned

X = torch.ones(4, 2)
COUNT = 0
STEP = 0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    worker = spawned(send=[__name__])
    with Broker.embedded({"w1": worker, "w2": worker, "pool": [worker, worker]}) as made:
        yield made


@pytest.fixture
def mortal() -> Iterator[Broker]:
    """A broker of a worker that may die."""
    with Broker.embedded({"w1": spawned(send=[__name__])}) as made:
        yield made


class Learns(Node):
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(2, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.count = 0
        self.losses: list[float] = []

    def forward(self, x, ctx):
        loss = self.net(x).pow(2).mean() + 0 * STEP
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.count += 1
        self.losses.append(round(loss.item(), 5))
        return self.losses[-1]


class Counts:
    """Counts its runs, and does what it is told to meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    def forward(self, what):
        self.count += 1
        if callable(what):
            what()
        return self.count


def at(thing: Any, host: str = "w1", **options: Any) -> Graph:
    return Graph.somatize(node(thing).named("n").at(host, **options))


def here(thing: Any) -> Graph:
    return Graph.somatize(node(thing).named("n"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def pid(_):
    return os.getpid()


def kill(broker: Broker) -> None:
    os.kill(at(pid).forward(0, broker=broker), signal.SIGKILL)


# -- what changes on one side


def test_what_it_learns_stays_as_code_globals_and_attributes_change_here(broker: Broker) -> None:
    global STEP
    there, own = Learns(), Learns()
    far, near = at(there), here(own)
    for step in range(3):
        STEP = step
        assert far.forward(X, broker=broker) == near.forward(X)
    there.note = own.note = "new"
    there.opt.param_groups[0]["lr"] = own.opt.param_groups[0]["lr"] = 0.1  # the same
    assert far.forward(X, broker=broker) == near.forward(X)
    far.pull(broker)


def test_it_comes_home_into_the_very_objects(broker: Broker) -> None:
    there, own = Learns(), Learns()
    weight, optimizer, losses = there.net.weight, there.opt, there.losses
    far, near = at(there), here(own)
    for _ in range(2):
        assert [far.forward(X, broker=broker) for _ in range(3)] == [near.forward(X) for _ in range(3)]
        far.pull(broker)
        assert there.net.weight is weight
        assert there.opt is optimizer
        assert optimizer.param_groups[0]["params"][0] is weight
        assert torch.equal(weight, own.net.weight)
        momentum = optimizer.state[weight]["momentum_buffer"]
        assert torch.equal(momentum, own.opt.state[own.net.weight]["momentum_buffer"])
        assert (there.count, there.losses) == (own.count, own.losses)
    assert losses == []  # a list is replaced
    assert here(there).forward(X) == near.forward(X)
    assert far.forward(X, broker=broker) == near.forward(X)
    far.pull(broker)


def by_data(net: Any) -> None:
    net[0].weight.data.fill_(0.5)


def by_numpy(net: Any) -> None:
    net[0].weight.detach().numpy()[:] = 0.25


def another_tensor(net: Any) -> None:
    net[0].bias.data = torch.full((3,), 2.0)


def another_module(net: Any) -> None:
    net[0] = torch.nn.Linear(3, 3, bias=False)
    by_data(net)


def a_buffer(net: Any) -> None:
    net[1].running_mean.fill_(3.0)


def a_mode(net: Any) -> None:
    net[1].eps = 0.5
    net[3].train()


def a_tie(net: Any) -> None:
    net[0].weight = net[3].weight


@pytest.mark.parametrize("change", [by_data, by_numpy, another_tensor, another_module, a_buffer, a_mode, a_tie])
def test_every_change_of_a_module_here_arrives(change: Any, broker: Broker) -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 3)
    )
    net.eval()
    far, x = at(net), torch.randn(8, 3)
    with torch.no_grad():
        assert torch.equal(far.forward(x, broker=broker), net(x))
        change(net)
        assert torch.allclose(far.forward(x, broker=broker), net(x))
        modes = at(lambda _: [one.training for one in net.modules()])
        assert modes.forward(0, broker=broker) == [one.training for one in net.modules()]
    far.pull(broker)


def test_a_mode_that_is_set_here_arrives(broker: Broker) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout(0.5))
    far = at(lambda _: (net.training, net[1].training, net[0].weight.requires_grad))
    assert far.forward(0, broker=broker) == (True, True, True)
    net.eval()
    net[0].weight.requires_grad_(False)
    assert far.forward(0, broker=broker) == (False, False, False)
    net.train()
    assert far.forward(0, broker=broker) == (True, True, False)


def test_code_is_sent_and_rebinds_the_class_of_the_living_object(broker: Broker) -> None:
    class One:
        total = 0

        def __init__(self) -> None:
            self.count = 0

        def forward(self, x):
            self.count += 1
            One.total += 1
            return x + 1, self.count, One.total

    class Two(One):
        def forward(self, x):
            return "two", self.count

    def edited(self, x):
        self.count += 1
        One.total += 1
        return x + 2, self.count, One.total

    one = One()
    far = at(one)
    assert far.forward(1, broker=broker) == (2, 1, 1)
    One.forward = edited  # type: ignore[method-assign]
    assert far.forward(1, broker=broker) == (3, 2, 2)
    one.__class__ = Two
    assert far.forward(1, broker=broker) == ("two", 2)
    far.pull(broker)
    assert (one.count, One.total) == (2, 2)


def count_global(_):
    global COUNT
    COUNT += 1
    return COUNT


def test_globals_of_functions_are_leaves(broker: Broker) -> None:
    global COUNT
    COUNT = 0
    far, reads = at(count_global), at(lambda _: COUNT)
    assert [far.forward(0, broker=broker) for _ in range(3)] == [1, 2, 3]
    assert reads.forward(0, broker=broker) == 3
    assert COUNT == 0
    far.pull(broker)
    assert COUNT == 3
    COUNT = 10
    assert (reads.forward(0, broker=broker), far.forward(0, broker=broker)) == (10, 11)
    COUNT = 5
    with pytest.raises(StateConflict, match="`COUNT` was changed both here and at host 'w1'"):
        far.forward(0, broker=broker)
    far.push(broker)
    assert far.forward(0, broker=broker) == 6
    far.pull(broker)


def test_captured_variables_are_leaves_and_shared_by_functions(broker: Broker) -> None:
    def made() -> Any:
        count, seen = 0, []

        def counts(_):
            nonlocal count
            count += 1
            seen.append(count)
            return count

        return counts, lambda _: (count, list(seen))

    counts, reads = made()
    far, other = at(counts), at(reads)
    assert [far.forward(0, broker=broker) for _ in range(2)] == [1, 2]
    assert other.forward(0, broker=broker) == (2, [1, 2])
    far.pull(broker)
    assert reads(0) == (2, [1, 2])


def test_attributes_that_are_deleted_or_new(broker: Broker) -> None:
    class Mixed:
        def __init__(self) -> None:
            self.old = 1

        def forward(self, x):
            if x:
                del self.old
                self.made = torch.nn.Linear(1, 1)
            return sorted(vars(self))

    mixed = Mixed()
    far = at(mixed)
    assert far.forward(0, broker=broker) == ["old"]
    mixed.more = 2
    assert far.forward(1, broker=broker) == ["made", "more"]
    far.pull(broker)
    assert sorted(vars(mixed)) == ["made", "more"]
    mixed.made.weight.data.fill_(3.0)
    del mixed.more
    assert at(lambda _: float(mixed.made.weight)).forward(0, broker=broker) == 3.0
    assert far.forward(0, broker=broker) == ["made"]


def test_what_two_attributes_or_nodes_share_stays_shared(broker: Broker) -> None:
    class Shares:
        def __init__(self, seen: list[int]) -> None:
            self.seen = seen
            self.nested = [seen, "x"]

        def forward(self, x):
            self.nested[0].append(x)
            return list(self.seen)

    seen: list[int] = []
    one, two = Shares(seen), Shares(seen)
    both = Graph.somatize(node(one).named("one").at("w1") >> node(two).named("two").at("w1"))
    assert both.forward(1, broker=broker) == [1, [1]]
    one.nested[1] = "y"  # the list that holds the shared one is another leaf, tied to it
    with pytest.raises(StateConflict, match="nested"):
        both.forward(1, broker=broker)
    both.pull(broker)
    assert one.seen is one.nested[0] is two.seen is two.nested[0]
    one.nested[1] = "z"
    assert both.forward(2, broker=broker)[:3] == [1, [1], 2]
    both.pull(broker)
    assert one.seen is two.seen


def test_a_list_that_a_node_of_another_graph_has_too_is_one_or_refused(broker: Broker) -> None:
    class Shares:
        def __init__(self, seen: list[int]) -> None:
            self.seen = seen

        def forward(self, x):
            self.seen.append(x)
            return list(self.seen)

    seen: list[int] = []
    one, two = at(Shares(seen)), at(Shares(seen))
    assert one.forward(1, broker=broker) == [1]
    with pytest.raises(StateConflict, match="seen"):
        two.forward(2, broker=broker)
    one.push(broker)
    assert two.forward(2, broker=broker) == [2]
    assert one.forward(3, broker=broker) == [2, 3]
    one.push(broker)


def test_an_optimizer_of_another_node_steps_the_same_parameters(broker: Broker) -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    own = Learns()
    own.opt = torch.optim.Adam(own.net.parameters(), lr=0.1)

    def backward(x):
        loss = net(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        return round(loss.item(), 5)

    class Steps:
        def __init__(self) -> None:
            self.optimizer = optimizer

        def forward(self, loss):
            self.optimizer.step()
            return loss

    apart = Graph.somatize(node(backward).named("b").at("w1") >> node(lambda x: x) >> node(Steps()).at("w1"))
    near = here(own)
    assert [apart.forward(X, broker=broker) for _ in range(4)] == [near.forward(X) for _ in range(4)]
    apart.pull(broker)
    assert torch.equal(net.weight, own.net.weight)
    assert torch.equal(optimizer.state[net.weight]["exp_avg"], own.opt.state[own.net.weight]["exp_avg"])


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    rate: float = 0.1
    colour: Colour = Colour.RED
    seen: list[int] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: list[int]


class Everything(Node):
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pair = Pair(1, [2])
        self.by_key: Any = collections.defaultdict(list)
        self.last: Any = collections.deque([0], 3)
        self.random = np.random.default_rng(0)
        self.generator = torch.Generator().manual_seed(0)
        self.table = np.zeros(100_000)
        self.view = self.table
        self.me = self
        self.add = functools.partial(sum, start=1)

    @functools.cached_property
    def cached(self) -> int:
        return 5

    def forward(self, x, ctx):
        self.settings.seen.append(x)
        self.by_key[x].append(self.cached)
        self.last.append(x)
        self.pair.b.append(x)
        self.view[x] += 1
        drawn = float(self.random.random()), float(torch.rand(1, generator=self.generator))
        same = self.settings.colour is Colour.RED, self.me is self
        return drawn, same, float(self.table.sum()), len(self.pair.b), list(self.last), self.settings.rate


def test_objects_of_many_kinds(broker: Broker) -> None:
    there, own = Everything(Settings()), Everything(Settings())
    settings, table = there.settings, there.table
    far, near = at(there), here(own)
    assert [far.forward(x, broker=broker) for x in range(3)] == [near.forward(x) for x in range(3)]
    settings.rate = own.settings.rate = 0.5
    assert far.forward(9, broker=broker) == near.forward(9)
    far.pull(broker)
    assert there.settings is settings
    assert there.table is there.view is table
    assert there.me is there
    assert (settings, there.by_key, there.last, there.pair) == (own.settings, own.by_key, own.last, own.pair)
    assert near.forward(9) == here(there).forward(9)


class Slotted:
    __slots__ = ("count", "seen")

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[int] = []

    def forward(self, x):
        self.count += 1
        self.seen.append(x)
        return self.count, list(self.seen)


def test_an_object_with_nothing_but_slots(broker: Broker) -> None:
    slotted = Slotted()
    far = at(slotted)
    assert [far.forward(x, broker=broker) for x in range(2)] == [(1, [0]), (2, [0, 1])]
    far.pull(broker)
    assert (slotted.count, slotted.seen) == (2, [0, 1])
    slotted.count = 10
    assert far.forward(2, broker=broker) == (11, [0, 1, 2])
    far.pull(broker)


def test_what_cannot_be_written_in_place_stays_and_says_so(broker: Broker) -> None:
    far = at(functools.partial(lambda held, _: held.append(1) or len(held), []))
    assert [far.forward(0, broker=broker) for _ in range(2)] == [1, 2]
    with pytest.raises(NotSendable, match="'partial' objects cannot be written in place here"):
        far.pull(broker)
    assert far.forward(0, broker=broker) == 3
    far.push(broker)
    assert far.forward(0, broker=broker) == 1
    far.push(broker)


# -- what changes on both, at several workers, or at two hosts


def test_a_leaf_that_changed_on_both_sides_is_refused_and_both_cures_work(broker: Broker) -> None:
    there = Learns()
    far = at(there)
    far.forward(X, broker=broker)
    there.net.weight.data.fill_(2.0)
    words = r"node 'n': `net\.weight` was changed both here and at host 'w1'; g\.pull\(broker\) .* g\.push\(broker\)"
    for _ in range(2):
        with pytest.raises(StateConflict, match=words):
            far.forward(X, broker=broker)
    assert there.net.weight.tolist() == [[2.0, 2.0]]
    far.pull(broker)
    learned = there.net.weight.tolist()
    assert learned != [[2.0, 2.0]]
    far.forward(X, broker=broker)
    there.net.weight.data.fill_(2.0)
    far.push(broker)
    own = Learns()
    own.net.weight.data.fill_(2.0)
    own.net.bias.data.copy_(there.net.bias)
    assert far.forward(X, broker=broker) == here(own).forward(X)
    far.pull(broker)


def test_only_push_sends_changes_of_what_is_not_checked(broker: Broker) -> None:
    net = torch.nn.Linear(1, 1)
    far, x = at(net, check=False), torch.ones(1, 1)
    with torch.no_grad():
        before = far.forward(x, broker=broker)
        net.weight.data.fill_(9.0)
        assert torch.equal(far.forward(x, broker=broker), before)
        far.push(broker)
        assert torch.equal(far.forward(x, broker=broker), net(x))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_node_that_changed_its_state_at_a_pool_is_an_error(mapped: bool, broker: Broker) -> None:
    counts = Counts()
    piece = node(counts).named("n").at("pool")
    graph = Graph.somatize(piece.mapped() if mapped else piece)
    with pytest.raises(StateConflict, match=r"node 'n': `count` was changed at .*host 'pool'"):
        graph.forward([1, 2, 3], broker=broker)
    with pytest.raises(StateConflict):
        graph.forward([1, 2, 3], broker=broker)
    graph.push(broker)


def test_working_state_is_no_state(broker: Broker) -> None:
    class Loads:
        def __init__(self) -> None:
            self._model = None

        def forward(self, x):
            if self._model is None:
                self._model = torch.nn.Linear(1, 1)
            return x

    loads = Loads()
    graph = Graph.somatize(node(loads).mapped().at("pool"))
    assert graph.forward([1, 2, 3, 4], broker=broker) == [1, 2, 3, 4]
    graph.pull(broker)
    assert loads._model is None


@pytest.mark.parametrize("annotated", [False, True])
def test_a_function_that_had_nothing_but_its_code_is_sent_again_with_what_it_gets(
    annotated: bool, broker: Broker
) -> None:
    def bare(x):
        return x

    def with_types(x: int) -> int:
        return x

    function: Any = with_types if annotated else bare
    graph = at(function)
    assert [graph.forward(x, broker=broker) for x in (1, 2, 3)] == [1, 2, 3]
    function.__code__ = (lambda x: x + 1).__code__
    assert [graph.forward(x, broker=broker) for x in (1, 2)] == [2, 3]
    function.__code__ = (lambda x, y=0: (x, y)).__code__
    function.__defaults__ = (5,)
    assert graph.forward(1, broker=broker) == (1, 5)
    function.__defaults__ = (6,)
    assert graph.forward(1, broker=broker) == (1, 6)
    function.__code__, function.__defaults__ = (lambda x: x + STEP).__code__, None
    assert [graph.forward(x, broker=broker) for x in (1, 2)] == [1 + STEP, 2 + STEP]


class Fragile:
    """Cannot be put together while the environment says so."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self):
        return rebuilt, (self.value,)


def rebuilt(value: int) -> Fragile:
    if "SOMATIZE_TEST_INTERRUPTS" in os.environ:
        raise KeyboardInterrupt
    return Fragile(value)


class Finds:
    def __init__(self) -> None:
        self.part = Counts()
        self.best: Any = None
        self.last: Any = None

    def forward(self, x):
        self.part.count += x
        self.best = Counts()
        self.best.count = self.part.count
        self.last = Fragile(x)
        return self.part.count

    def found(self) -> list[int]:
        return [self.part.count, self.best.count, self.last.value]


def test_a_pull_that_was_interrupted_is_made_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    finds = Finds()
    graph = at(finds)
    assert [graph.forward(x, broker=broker) for x in (1, 2)] == [1, 3]
    monkeypatch.setenv("SOMATIZE_TEST_INTERRUPTS", "1")
    with pytest.raises(KeyboardInterrupt):
        graph.pull(broker)
    monkeypatch.delenv("SOMATIZE_TEST_INTERRUPTS")
    graph.pull(broker)
    assert finds.found() == [3, 3, 2]
    assert graph.forward(3, broker=broker) == 6
    graph.pull(broker)
    assert finds.found() == [6, 6, 3]
    finds.best.count = 10
    assert graph.forward(4, broker=broker) == 10
    graph.pull(broker)
    assert finds.found() == [10, 10, 4]


@pytest.mark.parametrize("replaced", ["part", "best"])
@pytest.mark.parametrize("pulled", [0, 1, 2])
def test_an_object_that_was_replaced_here_is_pulled_as_it_is_there(replaced: str, pulled: int, broker: Broker) -> None:
    finds = Finds()
    graph = at(finds)
    for _ in range(pulled):
        graph.forward(1, broker=broker)
        graph.pull(broker)
    graph.forward(1, broker=broker)
    setattr(finds, replaced, None)
    graph.pull(broker)
    assert finds.found() == [pulled + 1, pulled + 1, 1]
    setattr(finds, replaced, None)  # nothing changed there since
    graph.pull(broker)
    assert finds.found() == [pulled + 1, pulled + 1, 1]
    assert graph.forward(1, broker=broker) == pulled + 2
    graph.pull(broker)


class Memo:
    def __init__(self) -> None:
        self._memo: Any = None

    def forward(self, x):
        if self._memo is None:
            self._memo = ["there"]
        self._memo.append(x)
        return list(self._memo)


def test_working_state_that_is_set_here_arrives_and_is_state_from_then_on(broker: Broker) -> None:
    memo = Memo()
    graph = at(memo)
    assert graph.forward(1, broker=broker) == ["there", 1]
    memo._memo = ["here"]
    assert [graph.forward(x, broker=broker) for x in (2, 3)] == [["here", 2], ["here", 2, 3]]
    graph.pull(broker)
    assert memo._memo == ["here", 2, 3]
    memo._memo = None
    assert graph.forward(4, broker=broker) == ["there", 4]
    graph.pull(broker)


def test_working_state_that_is_set_here_and_cannot_travel_is_told_once(broker: Broker) -> None:
    memo = Memo()
    graph = at(memo)
    assert graph.forward(1, broker=broker) == ["there", 1]
    memo._memo = [threading.Lock()]
    with pytest.warns(SomatizeWarning, match=r"node 'n': `_memo` was set here and cannot travel; host 'w1'") as told:
        assert [graph.forward(x, broker=broker) for x in (2, 3)] == [["there", 1, 2], ["there", 1, 2, 3]]
    assert len(told) == 1


def test_a_read_only_array_is_so_at_both_ends(broker: Broker) -> None:
    class Holds:
        def __init__(self) -> None:
            self.table = np.arange(3.0)
            self.table.flags.writeable = False

        def forward(self, added):
            before = self.table.flags.writeable
            if added:
                self.table.flags.writeable = True
                self.table += added
                self.table.flags.writeable = added > 1
            return before, self.table.tolist()

    holds = Holds()
    graph = at(holds)
    assert graph.forward(0, broker=broker) == (False, [0, 1, 2])
    assert graph.forward(1, broker=broker) == (False, [1, 2, 3])
    graph.pull(broker)
    assert (holds.table.flags.writeable, holds.table.tolist()) == (False, [1, 2, 3])
    assert graph.forward(2, broker=broker) == (False, [3, 4, 5])
    graph.pull(broker)
    assert (holds.table.flags.writeable, holds.table.tolist()) == (True, [3, 4, 5])
    holds.table[0] = 7
    holds.table.flags.writeable = False
    assert graph.forward(0, broker=broker) == (False, [7, 4, 5])


def test_what_changed_there_of_memory_that_cannot_be_written_here_is_refused(broker: Broker) -> None:
    class Holds:
        def __init__(self) -> None:
            self.table = np.frombuffer(b"abc", np.uint8)

        def forward(self, x):
            self.table.flags.writeable = True
            self.table[0] = x

    graph = at(Holds())
    graph.forward(1, broker=broker)
    with pytest.raises(NotSendable, match="memory that cannot be written to"):
        graph.pull(broker)
    graph.push(broker)


def test_a_node_at_two_hosts_has_one_state(broker: Broker) -> None:
    counts = Counts()
    one, two = at(counts), at(counts, "w2")
    assert one.forward(0, broker=broker) == 1
    with pytest.raises(StateConflict, match="`count` was changed at host 'w1', and is to run at host 'w2'"):
        two.forward(0, broker=broker)
    one.pull(broker)
    assert [two.forward(0, broker=broker) for _ in range(2)] == [2, 3]
    two.pull(broker)
    assert one.forward(0, broker=broker) == 4
    one.pull(broker)


def test_a_node_here_that_uses_what_changed_there_is_told_once(broker: Broker) -> None:
    learns = Learns()

    def looks(x: Any) -> float:
        return learns.net.weight.sum().item()

    graph = Graph.somatize(learns.named("learns").at("w1") >> node(looks).named("looks"))
    before = learns.net.weight.sum().item()
    with pytest.warns(SomatizeWarning, match="was changed at host 'w1', and node 'looks', which runs here") as told:
        assert [graph.forward(X, broker=broker) for _ in range(2)] == [before] * 2
    assert len(told) == 1
    graph.pull(broker)
    assert looks(X) != before


def test_memory_that_two_share_here_may_not_change_there(broker: Broker) -> None:
    class Views:
        def __init__(self) -> None:
            self.whole = np.zeros(10)
            self.part = self.whole[:5]

        def forward(self, x):
            self.whole += x
            return float(self.part.sum())

    views = Views()
    graph = at(views)
    assert graph.forward(0, broker=broker) == 0.0
    with pytest.raises(StateConflict, match="`whole` was changed at host 'w1' and shares its memory"):
        graph.forward(1, broker=broker)
    views.part = views.part.copy()
    graph.push(broker)
    assert [graph.forward(1, broker=broker) for _ in range(2)] == [0.0, 0.0]
    graph.pull(broker)
    net = torch.nn.Linear(1, 1)
    views.whole, views.part = net, [net.state_dict()]  # type: ignore[assignment, list-item]

    def trains(_):
        net.weight.data += 1
        return views.part is not None

    with pytest.raises(StateConflict, match="weight` was changed at host 'w1' and shares its memory"):
        at(trains).forward(0, broker=broker)
    at(trains).push(broker)


def test_what_cannot_be_pickled(broker: Broker) -> None:
    class Locks:
        def __init__(self) -> None:
            self.lock: Any = None
            self.count = 0

        def forward(self, x):
            if self.lock is None:
                self.lock = threading.Lock()
            self.count += 1
            return self.count

    locks = Locks()
    far = at(locks)
    assert [far.forward(0, broker=broker) for _ in range(2)] == [1, 2]
    with pytest.warns(SomatizeWarning, match="node 'n': `lock` stays at host 'w1': it cannot be pickled"):
        far.pull(broker)
    assert (locks.count, locks.lock) == (2, None)
    assert far.forward(0, broker=broker) == 3
    far.push(broker)
    refused = Locks()
    refused.lock = threading.Lock()
    with pytest.raises(NotSendable, match="node 'n' cannot go to host 'w1': `lock` cannot travel"):
        at(refused).forward(0, broker=broker)


def test_what_changed_before_a_node_raised_counts(broker: Broker) -> None:
    def fails() -> None:
        raise ValueError("no")

    counts = Counts()
    far = at(counts)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            far.forward(fails, broker=broker)
    assert far.forward(0, broker=broker) == 3
    far.pull(broker)
    assert counts.count == 3


def test_a_kept_result_is_not_called_after_a_state_that_is_not_the_nodes(broker: Broker, tmp_path: Any) -> None:
    counts, own = Counts(), Counts()
    far = Graph.somatize(node(counts).named("n").frozen().cached().at("w1"))
    near = Graph.somatize(node(own).named("n").frozen().cached())
    with Store(tmp_path / "far") as there, Store(tmp_path / "near") as here_:
        assert far.forward(0, broker=broker, store=there) == near.forward(0, store=here_)
        with pytest.raises(StateConflict, match="`count` was changed at host 'w1', and a result of its node is kept"):
            far.forward(0, broker=broker, store=there)
        far.pull(broker)
        assert far.forward(0, broker=broker, store=there) == near.forward(0, store=here_)
    far.pull(broker)


# -- deaths


def lost(broker: Broker, graph: Graph, given: Any = 0) -> str:
    with pytest.raises(WorkerDied) as raised:
        graph.forward(given, broker=broker)
    return str(raised.value)


def test_a_worker_that_died_with_state_that_nobody_has_is_an_error_until_it_is_given_up(mortal: Broker) -> None:
    counts = Counts()
    far = at(counts, retries=3)
    assert far.forward(0, broker=mortal) == 1
    kill(mortal)
    for _ in range(2):
        words = lost(mortal, far)
        assert "host 'w1' ended by signal SIGKILL, and what node 'n' had changed there" in words
        assert "count" in words
        assert "g.push(broker)" in words
    with pytest.raises(WorkerDied, match="SIGKILL"):
        far.pull(mortal)
    assert at(abs).forward(-3, broker=mortal) == 3
    counts.count = 10
    far.push(mortal)
    assert far.forward(0, broker=mortal) == 11
    far.pull(mortal)


def test_with_nothing_to_lose_it_is_replaced_with_one_warning(mortal: Broker) -> None:
    counts = Counts()
    far = at(counts)
    assert far.forward(0, broker=mortal) == 1
    far.pull(mortal)
    kill(mortal)
    with pytest.warns(SomatizeWarning, match="'w1' ended by signal SIGKILL; it had nothing that is not here") as told:
        assert far.forward(0, broker=mortal) == 2
    assert len(told) == 1
    far.pull(mortal)


def test_a_trip_that_may_have_changed_state_is_not_taken_again(mortal: Broker) -> None:
    counts = Counts()
    far = at(counts, retries=3)
    far.forward(0, broker=mortal)
    assert "ended by signal SIGKILL in node 'n'" in lost(mortal, far, die)
    assert "what node 'n' had changed there" in lost(mortal, far)
    far.push(mortal)
    far.forward(0, broker=mortal)
    far.pull(mortal)
    assert "ended by signal SIGKILL in node 'n'" in lost(mortal, far, die)  # though all is here, it learns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert far.forward(0, broker=mortal) == counts.count + 1
    far.pull(mortal)


def test_a_timeout_loses_it_too() -> None:
    def hangs() -> None:
        import time

        time.sleep(60)

    with Broker.embedded({"w1": spawned(send=[__name__], timeout=8)}) as broker:
        far = at(Counts())
        far.forward(0, broker=broker)
        with pytest.raises(HostTimeout):
            far.forward(hangs, broker=broker)
        assert "what node 'n' had changed there" in lost(broker, far)


def test_an_interrupt_does_not_lose_it(mortal: Broker, tmp_path: Any) -> None:
    def waits() -> None:
        import time

        (tmp_path / "began").touch()
        time.sleep(60)

    def press() -> None:
        while not (tmp_path / "began").exists():
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    counts = Counts()
    far = at(counts)
    far.forward(0, broker=mortal)
    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        far.forward(waits, broker=mortal)
    assert far.forward(0, broker=mortal) == 3
    far.pull(mortal)
    assert counts.count == 3


def test_a_forked_child_has_not_the_state_of_its_parents_worker(mortal: Broker) -> None:
    far = at(Counts())
    far.forward(0, broker=mortal)
    child = os.fork()
    if not child:
        try:
            far.forward(0, broker=mortal)
        except WorkerDied:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert far.forward(0, broker=mortal) == 2
    far.pull(mortal)


def test_a_broker_that_is_closed_with_state_that_is_not_here_says_so() -> None:
    counts = Counts()
    with (
        pytest.warns(SomatizeWarning, match="node 'n': `count`, changed at host 'w1'; g.pull"),
        Broker.embedded({"w1": spawned(send=[__name__])}) as broker,
    ):
        at(counts).forward(0, broker=broker)
