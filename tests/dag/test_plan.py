"""What a plan says: order, sources, and when each value is let go."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somatize import Graph, Node
from somatize.dag.pieces import Cached, Frozen, Mapped, Marks
from somatize.dag.plan import Plan, Step, compiled
from somatize.dag.topology import Topology


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    size = draw(st.integers(0, 12))
    topology = Topology()
    for name in draw(st.permutations(range(size))):
        topology.add(str(name))
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    for a, b in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30)) if pairs else []:
        topology.connect(str(a), str(b))
    return topology


def planned(topology: Topology) -> Plan:
    return compiled(topology, {name: Marks(id=name) for name in topology.names()})


@given(topologies())
def test_steps_stand_in_order_and_name_their_inputs(topology: Topology) -> None:
    plan = planned(topology)
    assert [step.node for step in plan.steps] == topology.order()
    assert [step.number for step in plan.steps] == list(range(len(topology)))
    for step in plan.steps:
        assert list(step.names) == topology.predecessors(step.node)
        assert [plan.steps[source].node for source in step.inputs] == list(step.names)
        assert all(source < step.number for source in step.inputs)


@given(topologies())
def test_each_value_is_freed_once_after_its_last_reader_and_leaves_never(topology: Topology) -> None:
    plan = planned(topology)
    freed = Counter(source for step in plan.steps for source in step.frees)
    assert freed == Counter(source for source in range(len(plan)) if not plan.steps[source].leaf)
    for step in plan.steps:
        assert set(step.frees) <= set(step.inputs)
        assert not any(source in later.inputs for source in step.frees for later in plan.steps[step.number + 1 :])


@given(topologies())
def test_leaves_are_said_in_the_order_declared(topology: Topology) -> None:
    plan = planned(topology)
    assert [plan.steps[leaf].node for leaf in plan.leaves] == topology.leaves()
    assert [step.node for step in plan.steps if step.leaf] == sorted(topology.leaves(), key=topology.order().index)


@given(topologies())
def test_a_value_is_handed_on_where_the_next_step_alone_reads_it_and_nothing_else(topology: Topology) -> None:
    plan = planned(topology)
    for step in plan.steps:
        readers = [other for other in plan.steps if step.number in other.inputs]
        alone = len(readers) == 1 and readers[0].number == step.number + 1 and readers[0].inputs == (step.number,)
        assert step.hands_on is alone


@given(topologies())
def test_compiling_is_pure(topology: Topology) -> None:
    before = (topology.names(), topology.edges())
    first, second = planned(topology), planned(topology)
    assert first == second
    assert hash(first) == hash(second)
    assert (topology.names(), topology.edges()) == before


def diamond() -> Graph:
    a, b, c, d = (Pass().named(id) for id in "abcd")
    return Graph.somatize(a >> (b.on("cpu") | c) >> d)


def test_a_plan_is_these_steps() -> None:
    marks = {name: Marks(id=name, device="cpu" if name == "b" else None) for name in "abcd"}
    assert diamond().plan() == Plan(
        steps=(
            Step(0, "a", (), (), (), leaf=False, hands_on=False, marks=marks["a"]),
            Step(1, "b", (0,), ("a",), (), leaf=False, hands_on=False, marks=marks["b"]),
            Step(2, "c", (0,), ("a",), (0,), leaf=False, hands_on=False, marks=marks["c"]),
            Step(3, "d", (1, 2), ("b", "c"), (1, 2), leaf=True, hands_on=False, marks=marks["d"]),
        ),
        leaves=(3,),
    )


def test_a_plan_prints_well() -> None:
    graph = diamond()
    last = graph.node("e", Pass().at("w1").frozen().cached("v").mapped(2))
    graph.edge("d", last)
    assert str(graph.plan()).splitlines() == [
        "   0  a  <- input",
        "   1  b  <- a  on cpu",
        "   2  c  <- a  frees 0",
        "   3  d  <- b, c  frees 1, 2",
        "   4  e  <- d  at w1  frozen  cached  mapped  frees 3",
    ]
    assert graph.plan().steps[4].marks == Marks("e", None, "w1", Frozen(), Cached("v"), Mapped(2))
    assert str(Graph().plan()) == "(no steps)"
    assert len(graph.plan()) == 5


def test_a_plan_is_data_that_cannot_be_changed_and_can_be_sent() -> None:
    plan = diamond().plan()
    with pytest.raises(AttributeError):
        plan.steps = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        plan.steps[0].node = "z"  # type: ignore[misc]
    for there in (pickle.loads(pickle.dumps(plan)), cloudpickle.loads(cloudpickle.dumps(plan)), copy.deepcopy(plan)):
        assert there == plan
