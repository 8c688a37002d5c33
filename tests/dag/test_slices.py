"""What goes to which host together: adjacent nodes in one trip, no two slices that wait for each other."""

from __future__ import annotations

import timeit
from collections.abc import Iterable
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from somatize.dag.pieces import Marks
from somatize.dag.plan import Plan, Slice, compiled, slices
from somatize.dag.topology import Topology
from somatize.engine.program import Agenda


def planned(hosts: str, edges: list[tuple[int, int]]) -> Plan:
    """A plan of nodes n0, n1, ...; each letter is its host, and a dot is here."""
    topology = Topology()
    for number in range(len(hosts)):
        topology.add(f"n{number}")
    for before, after in edges:
        topology.connect(f"n{before}", f"n{after}")
    return compiled(topology, {f"n{n}": Marks(host=None if h == "." else h) for n, h in enumerate(hosts)})


def cut(hosts: str, edges: list[tuple[int, int]], **more: Any) -> list[Slice]:
    plan = planned(hosts, edges)
    return slices(plan, range(len(plan)), **more)


def chain(length: int) -> list[tuple[int, int]]:
    return [(n, n + 1) for n in range(length - 1)]


def test_a_chain_at_one_host_is_one_slice_and_only_its_end_comes_back() -> None:
    (one,) = cut(".aaa.", chain(5))
    assert one == Slice("a", (1, 2, 3), (0,), (3,), ())


def test_another_place_in_between_makes_two() -> None:
    first, second = cut("a.a", chain(3))
    assert (first.steps, second.steps) == ((0,), (2,))
    first, between, last = cut("aba", chain(3))
    assert [one.host for one in (first, between, last)] == ["a", "b", "a"]


def test_branches_of_one_host_go_together_and_come_back_together() -> None:
    (one,) = cut(".aaa", [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert one.steps == (1, 2, 3)
    (two,) = cut(".aa.", [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert (two.steps, two.returns) == ((1, 2), (1, 2))


def test_two_hosts_work_at_the_same_time() -> None:
    found = cut(".aba", [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert [(one.host, one.steps) for one in found] == [("a", (1,)), ("b", (2,)), ("a", (3,))]
    assert (found[0].returns, found[0].holds) == ((), (1,))


def test_what_two_hosts_would_wait_for_in_a_circle_is_cut() -> None:
    found = cut("abab", [(0, 2), (1, 3), (0, 3), (1, 2)])
    assert len(found) == 4


def test_what_is_kept_comes_back_and_what_is_alone_is_a_slice() -> None:
    (one,) = cut("aaa", chain(3), brought=[1])
    assert one.returns == (1, 2)
    before, alone, after = cut("aaa", chain(3), alone=[1])
    assert (before.returns, alone.alone, alone.returns, after.takes) == ((0,), True, (1,), (1,))
    assert before.holds == alone.holds == ()


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> tuple[str, list[tuple[int, int]]]:
    hosts = draw(st.text("ab.", min_size=1, max_size=most))
    pairs = [(a, b) for b in range(len(hosts)) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * most)) if pairs else []
    return hosts, edges


@given(graphs())
def test_every_step_runs_once_when_all_it_needs_is_there(graph: tuple[str, list[tuple[int, int]]]) -> None:
    hosts, edges = graph
    plan = planned(hosts, edges)
    found = slices(plan, range(len(plan)))
    assert sorted(n for one in found for n in one.steps) == [s.number for s in plan.steps if s.marks.host]
    agenda = Agenda(plan, [None] * (len(plan) + 1))
    agenda.bundle([one.steps for one in found])
    by_head = {one.steps[0]: one for one in found}
    there: set[int] = set()
    done: list[int] = []
    held: set[int] = set()
    while agenda.ready or agenda.due:
        if agenda.due:
            one = by_head[agenda.due.pop(0)]
            assert set(one.takes) <= there | held
            assert all(plan.steps[n].marks.host == one.host for n in set(one.takes) - there)
            inside = set(one.steps)
            assert all(set(plan.steps[n].inputs) <= inside | set(one.takes) for n in one.steps)
            there.update(one.returns)
            held.update(one.holds)
            for number in one.steps:
                agenda.done(number, number)
            done += one.steps
        else:
            number = agenda.take()
            assert set(plan.steps[number].inputs) <= there
            there.add(number)
            agenda.done(number, number)
            done.append(number)
    assert there.issuperset(plan.leaves)
    assert sorted(done) == list(range(len(plan)))


def test_what_is_made_here_for_the_later_of_two_makes_no_second_trip() -> None:
    assert [one.steps for one in cut(".a.a", [(0, 1), (0, 2), (1, 3), (2, 3)])] == [(1, 3)]
    assert [one.steps for one in cut("a.a", [(0, 2), (1, 2)])] == [(0, 2)]
    assert [one.steps for one in cut("a.a", [(0, 1), (0, 2), (1, 2)])] == [(0,), (2,)]  # it waits for the first of them


def test_no_host_waits_for_another_without_need() -> None:
    # b is there from the start, and n1 has to wait for what is made here: n3 reads both, n1 does not wait for b.
    found = cut(".aba", [(0, 1), (1, 3), (2, 3)])
    assert [(one.host, one.steps) for one in found] == [("a", (1,)), ("b", (2,)), ("a", (3,))]


def needs(plan: Plan) -> list[set[int]]:
    found: list[set[int]] = []
    for step in plan.steps:
        found.append({one for source in step.inputs for one in {source, *found[source]}})
    return found


Cut = frozenset[frozenset[int]]


def cuts(plan: Plan) -> set[Cut]:
    """Every way to put adjacent steps of a host, and those that read the same, together."""
    near = [
        (one.number, other.number)
        for other in plan.steps
        for one in plan.steps[: other.number]
        if one.marks.host == other.marks.host is not None and (one.number in other.inputs or one.inputs == other.inputs)
    ]
    found = {frozenset(frozenset({step.number}) for step in plan.steps if step.marks.host is not None)}
    for pair in near:
        found |= {_together(groups, *pair) for groups in found}
    return found


def _together(groups: Cut, one: int, other: int) -> Cut:
    both = [group for group in groups if one in group or other in group]
    return groups.difference(both) | {frozenset().union(*both)}


def no_host_is_kept_waiting(plan: Plan, group: Iterable[int], needed: list[set[int]]) -> bool:
    host = plan.steps[min(group)].marks.host
    return (
        len({frozenset(n for n in needed[one] if plan.steps[n].marks.host not in (None, host)) for one in group}) == 1
    )


@given(graphs(most=6))
def test_no_other_cut_has_fewer_slices_where_no_host_waits_without_need(
    graph: tuple[str, list[tuple[int, int]]],
) -> None:
    hosts, edges = graph
    plan = planned(hosts, edges)
    needed, own = needs(plan), [step.marks.host for step in plan.steps]
    assume(
        not any(
            own[n] is None and own[u] in [own[v] for v in range(len(plan)) if n in needed[v] and own[v]]
            for n in range(len(plan))
            for u in needed[n]
        )
    )  # fmt: skip  nothing comes here and goes back
    found = [set(one.steps) for one in slices(plan, range(len(plan)))]
    assert all(no_host_is_kept_waiting(plan, group, needed) for group in found)
    fewest = min(
        len(groups) for groups in cuts(plan) if all(no_host_is_kept_waiting(plan, group, needed) for group in groups)
    )
    assert len(found) == fewest


def test_it_is_linear() -> None:
    took = []
    for length in (2_000, 8_000):
        hosts = "aab." * (length // 4)
        plan = planned(hosts, chain(length))
        took.append(min(timeit.repeat(lambda plan=plan: slices(plan, range(len(plan))), number=1, repeat=3)))
    assert took[1] < took[0] * 16
