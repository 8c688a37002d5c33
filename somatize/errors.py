"""Every exception and warning of the library.

A node's own exception is never wrapped: it is raised as it is, with a note that names the node. What is
below is raised by the library itself, and each class also is the builtin a caller would expect::

    SomatizeError
    ├── GraphError              a graph declared wrongly; also ValueError
    │   ├── NameTaken           an id that another node has
    │   ├── UnknownNode         an id no node has, with the nearest one; also KeyError
    │   ├── CycleError          an edge that would close a circle
    │   ├── NotANode            a thing that cannot be a node; also TypeError
    │   ├── BadDevice           a device name that names no device
    │   ├── NotFrozen           a cached node that still learns, or is fed by one that does
    │   └── NoItems             a mapped node whose input has no items, or not as many answers; also TypeError
    ├── WorkerError             a host that cannot do what was asked of it; also RuntimeError
    │   ├── NoHost              a node's host that the broker has no entry for; also LookupError
    │   ├── BadWorker           a program that is no worker, or one this end cannot work with
    │   ├── WorkerDied          a worker that ended in the middle; also ConnectionError
    │   ├── HostTimeout         a host that took longer than its timeout; also TimeoutError
    │   ├── NotSendable         a value or code that cannot travel; also TypeError
    │   │   └── GradientCut     a value that requires a gradient, which would be lost on the way to or from a host
    │   ├── StateConflict       state of a node that was changed on two sides
    │   ├── BrokerClosed        a broker used after its `close`
    │   └── RemoteError         a far node's exception that cannot be rebuilt here, as text
    ├── DeviceMismatch          a placed node that answered with a tensor elsewhere; also RuntimeError
    ├── WatchingError           a `watching=` that is nothing a forward can tell; also TypeError
    ├── FactError               a dict that is no fact, or a fact outside the vocabulary; also ValueError
    ├── Unnameable              what a kept result's name can't be made of: a value, an attribute, code; also TypeError
    ├── StatusError             a Status that was asked for what it cannot do
    │   └── BadOption           an option it does not have, or a value none can be; also ValueError, TypeError
    ├── StoreError              a store that cannot do what was asked
    │   ├── NoStore             a path that holds no store; also FileNotFoundError
    │   ├── DamagedStore        files that are not what a store writes
    │   ├── NewerFormat         a store written by a later version
    │   ├── StoreClosed         a handle used after its `close`
    │   ├── StoreReadOnly       a write to a store one may only read; also PermissionError
    │   ├── NotWritten          what a disk had no room for, or failed to take; also OSError
    │   ├── NotStored           a digest or a name the store does not hold; also KeyError
    │   ├── BadName             a name a store cannot hold; also ValueError
    │   └── NotKeepable         a value no codec can write down; also TypeError
    ├── RecordError             a record that cannot be written or found
    │   ├── BadRun              a run name that cannot be one; also ValueError
    │   ├── UnknownRun          a run the store does not hold, with the nearest one; also KeyError
    │   ├── BadFilter           a condition on runs that cannot be read, with the place; also ValueError
    │   ├── UnknownForward      a forward a run does not hold; also KeyError
    │   ├── UnknownName         a number that nothing in a run said, with the nearest name; also KeyError
    │   ├── WhichRun            a store of several runs, and none was named; also ValueError
    │   ├── ExportError         an export asked for in a way that cannot be made; also ValueError
    │   ├── NotReplaced         a file that is there and is not what would take its place; also FileExistsError
    │   ├── RecorderClosed      a recorder told something after its `close`
    │   └── RecordLost          what a recorder could not write down, said when it closes
    ├── FigureError             a figure asked for in a way that cannot be drawn; also ValueError
    └── ExtraMissing            a library that is not installed, with the pip line; also ImportError

    UserWarning
    └── SomatizeWarning         work went on, and something should be known
        ├── WatcherWarning      a watcher raised, and is told nothing more of that forward
        ├── FactWarning         a value or a key no fact can carry was replaced or left out
        ├── StoreWarning        something about where or how a store lies
        ├── KeepWarning         a result was not kept, or what was kept could not be used
        └── RecordWarning       a record was skipped, kept in memory, or could not be written
"""

from __future__ import annotations


class SomatizeError(Exception):
    """The root of everything this library raises itself."""

    def __str__(self) -> str:
        # KeyError shows the repr of its text; a sentence should read as one, whichever builtin it also is.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class GraphError(SomatizeError, ValueError):
    """A graph was declared wrongly; the graph is as it was before."""


class NameTaken(GraphError):
    """An id was asked for that another node of the graph has."""


class UnknownNode(GraphError, KeyError):
    """An id was named that no node of the graph has; the text offers the nearest."""


class CycleError(GraphError):
    """An edge would close a circle; the text shows the way round."""


class NotANode(GraphError, TypeError):
    """A thing was given that cannot be a node: a class, an async function, something without `forward`."""


class BadDevice(GraphError):
    """A device name names no device."""


class NotFrozen(GraphError):
    """A node is cached that still learns, or that is fed by one that does; nothing ran."""


class NoItems(GraphError, TypeError):
    """A mapped node was given what has no items, or answered with more or fewer than it was given."""


class WorkerError(SomatizeError, RuntimeError):
    """A host cannot do what was asked of it."""


class NoHost(WorkerError, LookupError):
    """A node is to run on a host that the broker has no entry for, or no broker was given; nothing ran."""


class BadWorker(WorkerError):
    """A program is no worker, or one that this end cannot work with; the text has what it printed."""


class WorkerDied(WorkerError, ConnectionError):
    """A worker ended in the middle of its work, or with state that nobody else has.

    The text names host and node, how it ended, and its last words.
    """


class HostTimeout(WorkerError, TimeoutError):
    """A host took longer than its worker's timeout; its worker was ended."""


class NotSendable(WorkerError, TypeError):
    """A value, or the code of a node, cannot travel to its host or back; the text says what it is and why."""


class GradientCut(NotSendable):
    """A value on its way to a host, or back, requires a gradient, which does not cross between processes.

    The text names the node, the direction and the cure: ``torch.no_grad()``, or ``.at(host, detached=True)``.
    """


class StateConflict(WorkerError):
    """State of a node at a host was changed both here and there, or at one of several workers; the text names it.

    `Graph.pull` takes the state that is there, and `Graph.push` sends the one that is here.
    """


class BrokerClosed(WorkerError):
    """A broker was used after its `close`."""


class RemoteError(WorkerError):
    """A node on a host raised what cannot be rebuilt here.

    `type` is the name of its class there, `said` its text, `traceback` the far traceback as text.
    """

    def __init__(self, message: str = "", type: str = "", said: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.said = said
        self.traceback = traceback


class DeviceMismatch(SomatizeError, RuntimeError):
    """A node placed on one device answered with a tensor on another."""


class WatchingError(SomatizeError, TypeError):
    """The value of `watching=` is no watcher: it cannot be called with facts."""


class FactError(SomatizeError, ValueError):
    """A dict is no fact, or says something outside the vocabulary."""


class Unnameable(SomatizeError, TypeError):
    """A name cannot be made of something; the text says of what, and where it lies: ``input[3]`` is a lock."""


class StatusError(SomatizeError):
    """A Status was asked for what it cannot do."""


class BadOption(StatusError, ValueError, TypeError):
    """A Status was given an option it does not have, or a value that none can be; the text offers the nearest."""


class StoreError(SomatizeError):
    """A store cannot do what was asked of it."""


class NoStore(StoreError, FileNotFoundError):
    """A path was to be read that holds no store."""


class DamagedStore(StoreError):
    """A store's files are not what a store writes; the text names the file."""


class NewerFormat(StoreError):
    """A store was written by a later version of the library."""


class StoreClosed(StoreError):
    """A handle was used after its `close`."""


class StoreReadOnly(StoreError, PermissionError):
    """A write was asked of a store that may only be read."""


class NotWritten(StoreError, OSError):
    """A disk had no room for what was to be written, or failed; the store is as it was before."""


class NotStored(StoreError, KeyError):
    """A digest or a name was asked for that the store does not hold."""


class BadName(StoreError, ValueError):
    """A name was given that a store cannot hold."""


class NotKeepable(StoreError, TypeError):
    """No codec can write a value down."""


class RecordError(SomatizeError):
    """A record cannot be written or found."""


class BadRun(RecordError, ValueError):
    """A run was given a name that cannot be one."""


class UnknownRun(RecordError, KeyError):
    """A run was named that the store does not hold; the text offers the nearest."""


class BadFilter(RecordError, ValueError):
    """A text given as `where=` is no condition."""


class UnknownForward(RecordError, KeyError):
    """A forward was asked for that the run does not hold."""


class UnknownName(RecordError, KeyError):
    """A number was asked for that nothing in the run said; the text offers the nearest name that was."""


class WhichRun(RecordError, ValueError):
    """A store holds several runs, or none, and the reader was not told which."""


class ExportError(RecordError, ValueError):
    """An export was asked for in a way that cannot be made: of a table there is not, to a place that is no file."""


class NotReplaced(RecordError, FileExistsError):
    """A file lies where something is to be written, and is not of its kind; it was left as it is."""


class RecorderClosed(RecordError):
    """A recorder was told something after its `close`."""


class RecordLost(RecordError):
    """A recorder closed with records it could not write down."""


class FigureError(SomatizeError, ValueError):
    """A figure was asked for in a way that cannot be drawn."""


class ExtraMissing(SomatizeError, ImportError):
    """A library that comes with an extra is not installed; the text has the pip line."""


class SomatizeWarning(UserWarning):
    """The work went on, and something should be known."""


class WatcherWarning(SomatizeWarning):
    """A watcher raised; it is told nothing more of that forward."""


class FactWarning(SomatizeWarning):
    """A value or a key that no fact can carry was replaced or left out."""


class StoreWarning(SomatizeWarning):
    """Something about where or how a store lies."""


class KeepWarning(SomatizeWarning):
    """A result was not kept, or what was kept could not be used; the node runs."""


class RecordWarning(SomatizeWarning):
    """A record was skipped, is waiting in memory, or could not be written."""


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about an unknown name: the known one that looks most like it, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
