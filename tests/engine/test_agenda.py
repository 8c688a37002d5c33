"""The agenda of a forward, run without a graph: what is taken, in which order, and what is still there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from somatize.dag.pieces import Marks
from somatize.dag.plan import Plan, compiled
from somatize.dag.topology import Topology
from somatize.engine.program import Agenda, Role, roles


def plan_of(edges: list[tuple[str, str]], names: str) -> Plan:
    topology = Topology()
    for name in names:
        topology.add(name)
    for before, after in edges:
        topology.connect(before, after)
    return compiled(topology, {name: Marks() for name in names})


def walked(plan: Plan, kept: set[int] = frozenset(), damaged: set[int] = frozenset()) -> list[tuple[str, str]]:
    """Take every step; a value is the set of its step and all above it, so a missing input shows."""
    slots: list = [None] * len(plan) + ["input"]
    agenda = Agenda(plan, slots, kept)
    told = []
    while agenda.ready:
        number = agenda.take()
        step = plan.steps[number]
        if agenda.roles[number] is Role.RECALL and number in damaged:
            agenda.missed(number)
            continue
        told.append((agenda.roles[number].value, step.node))
        if agenda.roles[number] is Role.RUN:
            assert all(slots[source] is not None for source in step.inputs)
        agenda.done(number, step.node)
    assert [slots[leaf] for leaf in plan.leaves] == [plan.steps[leaf].node for leaf in plan.leaves]
    assert all(slots[step.number] is None for step in plan.steps if not step.leaf)
    return told


CHAIN = plan_of([("a", "b"), ("b", "c"), ("c", "d")], "abcd")
DIAMOND = plan_of([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], "abcd")


def test_without_kept_results_every_step_runs_in_order():
    assert walked(DIAMOND) == [("run", node) for node in "abcd"]


def test_what_only_feeds_a_recalled_step_is_skipped():
    assert roles(CHAIN, {2}) == [Role.SKIP, Role.SKIP, Role.RECALL, Role.RUN]
    assert walked(CHAIN, kept={1, 2}) == [("recall", "c"), ("run", "d")]


def test_what_also_feeds_a_running_step_runs():
    assert walked(DIAMOND, kept={1}) == [("run", "a"), ("recall", "b"), ("run", "c"), ("run", "d")]


def test_a_damaged_result_makes_what_it_needs_run_after_all():
    assert walked(CHAIN, kept={2}, damaged={2}) == [("run", node) for node in "abcd"]


def test_a_damaged_result_may_need_what_was_let_go_already():
    assert walked(DIAMOND, kept={1, 2}, damaged={2}) == [("recall", "b"), ("run", "a"), ("run", "c"), ("run", "d")]


def test_a_value_that_is_still_there_is_not_made_again():
    plan = plan_of([("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")], "abcd")
    assert walked(plan, kept={2}, damaged={2}) == [("run", node) for node in "abcd"]


def test_what_was_let_go_is_made_again_once_for_all_who_need_it():
    edges = [("a", "x"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
    plan = plan_of(edges, "axbcde")
    damaged = {plan.steps[number].node: number for number in range(6)}
    told = walked(plan, kept={damaged["d"]}, damaged={damaged["d"]})
    assert told == [("run", node) for node in "axabcde"]


@st.composite
def plans(draw):
    size = draw(st.integers(1, 9))
    names = "abcdefghi"[:size]
    pairs = [(before, after) for place, before in enumerate(names) for after in names[place + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=16)) if pairs else []
    numbers = st.sets(st.integers(0, size - 1))
    return plan_of(edges, names), draw(numbers), draw(numbers)


@given(plans())
def test_whatever_is_kept_and_damaged_every_leaf_has_its_value_and_nothing_else_is_held(drawn):
    plan, kept, damaged = drawn
    told = walked(plan, kept, damaged)
    for number in set(plan.leaves) - kept:
        assert ("run", plan.steps[number].node) in told
    ran = {node for what, node in told if what == "run"}
    assert not ran & {plan.steps[number].node for number in kept - damaged}
