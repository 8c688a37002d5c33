"""The graph a user holds: it declares, compiles, runs and reads back, each by delegation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from somatize.dag.declaration import Declaration
from somatize.dag.plan import Plan, compiled
from somatize.engine.program import Program
from somatize.engine.remote_calls import nodes_at_hosts, refuse_unknown
from somatize.errors import FigureError
from somatize.watching.watchers import Watching

from .dag import parameters as learning
from .engine import loops

if TYPE_CHECKING:
    from somatize.engine.loops import Foreseen
    from somatize.engine.remote_calls import HostBroker
    from somatize.figures.plotly_backend import Figure
    from somatize.store.store import Store


class Graph:
    """A computation as nodes and the edges between them.

    Made of an expression, ``Graph.somatize(a >> (b | c) >> d)``, or step by step with `node` and `edge`; either way
    it is the same graph. It may run in several threads at once, inside of a node, and inside of itself. Declaring
    is for one thread. It can be pickled and copied as far as what its nodes run can.
    """

    def __init__(self) -> None:
        self._declaration = Declaration()
        self._program: Program | None = None

    @classmethod
    def somatize(cls, expression: Any) -> Graph:
        """The graph of an expression: a node, a function, or pieces put together with ``>>`` and ``|``.

        Each place in the expression is a node. Ids given with `.named` are kept; the others are the snake_case of
        what the node runs, with ``_2``, ``_3`` where that is taken. Raises `GraphError` and its subclasses.
        """
        graph = cls()
        graph._declaration.declare(expression)
        return graph

    def node(self, *args: Any) -> str:
        """Declare a node, ``node(thing)`` or ``node("id", thing)``; returns its id.

        `thing` is what `somatize.node` takes, with its suffixes. Raises `NameTaken`, `NotANode`, `GraphError`.
        """
        id = self._declaration.node(*args)
        self._program = None
        return id

    def edge(self, before: str, after: str) -> None:
        """Declare that the value of `before` feeds `after`.

        Raises `UnknownNode` with the nearest id, `CycleError` with the way round, and `GraphError` for an edge that
        is there already.
        """
        self._declaration.topology.connect(before, after)
        self._program = None

    def forward(
        self,
        input: Any = None,
        *,
        watching: Watching = None,
        threads: int = 1,
        store: Store | str | PathLike[str] | None = None,
        refresh: Iterable[str] = (),
        keeping: bool = True,
        synchronise: bool = False,
        broker: HostBroker | None = None,
        seed: int | None = None,
    ) -> Any:
        """Run the graph on `input` and return the value of its leaf, or a dict of those by id if it has several.

        Each root gets `input`. Values cross edges by reference and are let go once their last reader ran. Nodes
        run in this thread, in the order of `topological_sort`; with `threads` of more than one, up to so many at the
        same time, each in a copy of this context and in torch's modes of this thread.

        `watching` is told the facts of this forward (`somatize.facts`), whatever it raises (`somatize.watching`): a
        callable, a Recorder, or a list or tuple of them. With None no fact is made and no clock read.

        `store`, a Store or the path of one, is where cached nodes recall and keep their results; without it they run.
        What is named in `refresh` runs again, as does all it feeds, and is kept anew; with `keeping=False` results are
        recalled and none is kept.

        On CUDA and MPS a node returns when its work is launched, and its `took_us` is until then; with `synchronise`
        each placed node waits until its device is through, which is slower and tells where the time goes.

        `broker` knows the hosts at which nodes declared `.at` run (`somatize.Broker`).

        With `seed` the random generators of Python, numpy (the global one) and torch are seeded before each node, and
        each item of a mapped one, from the seed, the node's id and the item's place: what it draws is the same wherever
        it runs, and counts in what kept results are called. Afterwards the generators here are as before. It is refused
        with `threads` of more than one, and while another thread of this process runs a forward with a seed.

        A node that raises raises its own exception here, with a note that names it. Raises `NoHost` before anything
        runs where a node's host is not the broker's, `NotFrozen` where a cached node is not frozen or is fed by one
        that is not, `DeviceMismatch`, and a `WorkerError` for what goes wrong with a host.
        """
        program = self._program or self._compiled()
        if seed is not None:
            program = program.synchronised() if synchronise else program
            keeping_ = None if store is None else loops.to_keep(program, store, refresh, write=keeping)
            return loops.run_seeded(program, input, watching, self, threads, seed, keeping_, broker)
        if store is None and threads == 1 and program.simple and not synchronise and type(threads) is int:
            return loops.run_plain(program, input, watching, self)
        if synchronise:
            program = program.synchronised()
        if store is None:
            return loops.run(program, input, watching, self, threads, None, broker)
        to_keep = loops.to_keep(program, store, refresh, write=keeping)
        return loops.run(program, input, watching, self, threads, to_keep, broker)

    def pull(self, broker: HostBroker) -> None:
        """Bring home the state that this graph's nodes have at their hosts, whatever they have here.

        Modules, parameters, buffers, optimizers and arrays are written in place; other attributes, captured variables
        and globals that changed there are replaced. What cannot be pickled stays there, with a `SomatizeWarning`.
        Raises `WorkerDied` where that state ended with a worker, `StateConflict` where two workers changed it,
        `NoHost`.
        """
        program = self._compiled()
        refuse_unknown(program, broker)
        broker.pull(nodes_at_hosts(program))

    def push(self, broker: HostBroker) -> None:
        """Send the state that this graph's nodes have here to their hosts, whatever they have there.

        It gives up what they learned there, also what ended with a worker. Raises `NoHost` and `NotSendable`.
        """
        program = self._compiled()
        refuse_unknown(program, broker)
        broker.push(nodes_at_hosts(program))

    def foreseen(self, input: Any = None, *, store: Store | str | PathLike[str], seed: int | None = None) -> Foreseen:
        """Predict what `forward` with this input, store and seed would do with each node, and why; nothing runs.

        Per node, by its id: that it would be recalled, run or be skipped, and for a cached one that would run, which
        part of its name is another than that of the nearest result kept. It prints. Raises `NotFrozen`.
        """
        program = self._compiled()
        return loops.foreseen(program, input, loops.to_keep(program, store, (), write=False), seed)

    def nodes(self) -> list[str]:
        """The ids of all nodes, in the order declared."""
        return self._declaration.topology.names()

    def edges(self) -> list[tuple[str, str]]:
        """All edges as (before, after), grouped by where they start."""
        return self._declaration.topology.edges()

    def roots(self) -> list[str]:
        """The nodes that get the graph's input."""
        return self._declaration.topology.roots()

    def leaves(self) -> list[str]:
        """The nodes whose values `forward` returns."""
        return self._declaration.topology.leaves()

    def predecessors(self, id: str) -> list[str]:
        """The predecessors of a node, in the order the edges were declared. Raises `UnknownNode`."""
        return self._declaration.topology.predecessors(id)

    def successors(self, id: str) -> list[str]:
        """The successors of a node, in the order the edges were declared. Raises `UnknownNode`."""
        return self._declaration.topology.successors(id)

    def topological_sort(self) -> list[str]:
        """The order in which nodes run: each after all that feed it, else as declared."""
        return self._declaration.topology.order()

    def implementation(self, id: str) -> Any:
        """The object a node was declared with. Raises `UnknownNode`."""
        return self._declaration.implementation(id).thing

    def hosts(self) -> dict[str, str]:
        """The host of each node that has one."""
        return self._declaration.marked("host")

    def devices(self) -> dict[str, str]:
        """The device of each node that was placed on one."""
        return self._declaration.marked("device")

    def cached(self) -> dict[str, Any]:
        """The nodes whose result is kept, with the salt of each."""
        return self._declaration.marked("cached")

    def frozen(self) -> dict[str, Any]:
        """The nodes that no longer learn, with the state of each."""
        return self._declaration.marked("frozen")

    def mapped_nodes(self) -> dict[str, Any]:
        """The nodes that are called item by item, with the batch of each."""
        return self._declaration.marked("mapped")

    def plan(self) -> Plan:
        """The compiled steps, as data that prints well; compiled again only after the graph changed."""
        return self._compiled().plan

    def figure(
        self,
        theme: str | None = None,
        *,
        foreseen: Foreseen | None = None,
        store: Store | str | PathLike[str] | None = None,
        run: str | None = None,
    ) -> Figure:
        """The graph drawn: what comes when, and what feeds what (`somatize.figures.graph_drawing`).

        Needs plotly, ``pip install 'somatize[viz]'``. Beyond 300 nodes it is an overview, and says so. With None as
        `theme` it reads on a light page as on a dark one. What was `foreseen` of a forward is shown on the boxes; with
        a `store`, the time, runs, recalls and failures of each node in a `run` of it, or in the only one, as
        `somatize.record.graph` does from the record alone. Raises `ExtraMissing`, `UnknownRun`, `WhichRun`, and
        `FigureError` for other themes and for a run without a store.
        """
        from .figures import graph_drawing
        from .store.node_tally import turns_in

        if store is None and run is not None:
            raise FigureError(f"run={run!r}: say the store that it is in, figure(store=, run={run!r})")
        turns = None if store is None else turns_in(store, run)
        return graph_drawing.figure(self._declaration, theme, foreseen, turns)

    def mermaid(self) -> str:
        """The graph as Mermaid text, which GitHub draws where it is fenced as ``mermaid``."""
        from .figures import graph_drawing

        return graph_drawing.mermaid(self._declaration)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The notebook output of the graph: its figure, or without plotly its Mermaid text."""
        from .figures import graph_drawing

        return graph_drawing.in_a_cell(self._declaration)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The parameters of the nodes by node id and name, without those of frozen nodes; shared ones appear once."""
        return learning.named_parameters(self._declaration)

    def parameters(self) -> Iterator[Any]:
        """The same without names, as an optimizer takes them."""
        return (parameter for _, parameter in learning.named_parameters(self._declaration))

    def state_dict(self) -> dict[str, Any]:
        """The state of all nodes, frozen ones too, under the names of `named_parameters`."""
        return learning.state_dict(self._declaration)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Give the nodes the state that `state_dict` gave. Raises `GraphError`, before anything is loaded."""
        learning.load_state_dict(self._declaration, state, strict)

    def train(self, mode: bool = True) -> Graph:
        """Let the nodes train, or not; those of frozen nodes do not either way. Returns the graph."""
        learning.train(self._declaration, mode)
        return self

    def eval(self) -> Graph:
        """`train(False)`."""
        return self.train(False)

    def __len__(self) -> int:
        return len(self._declaration.topology)

    def __contains__(self, id: object) -> bool:
        return id in self._declaration.topology

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes())

    def __bool__(self) -> bool:
        """True, also when empty: an empty graph is a graph."""
        return True

    def __repr__(self) -> str:
        return self._declaration.shown()

    def __copy__(self) -> Graph:
        """A graph of its own whose nodes run the same objects; attributes of a subclass are shared."""
        graph = object.__new__(type(self))
        graph.__dict__.update(self.__getstate__(), _declaration=self._declaration.copied())
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_program": None}

    def _compiled(self) -> Program:
        # Two threads may both compile the first time; either program will do.
        program = self._program
        if program is None:
            declaration = self._declaration
            program = Program(compiled(declaration.topology, declaration.marks), declaration.implementations)
            self._program = program
        return program
