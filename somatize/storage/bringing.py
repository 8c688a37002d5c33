"""Records of forwards that ended elsewhere, brought into a run with the time they ended at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .journal import RECORD

if TYPE_CHECKING:
    from .pending import Pending
    from .writer import Writer


def bring(writer: Writer, pending: Pending, state: int, took_us: int, when: int) -> None:
    """Write the record of a forward that ended at `when`, in microseconds since 1970, with the next number.

    Unlike what a running forward says, nothing is kept in memory for it: raises OSError where the disk does not take
    it.
    """
    with writer.gate.lock:
        pending.over = True
        writer.pending.pop(id(pending), None)
        body, nodes, texts = writer.packer.pack(pending.facts)
        summary = b"" if texts is None else writer.packer.summary(texts)
        writer.batch.give_up()  # it is made for records of now; the journal has this one
        writer._append(pending, RECORD, when, (state, nodes, took_us, summary, body))
        pending.facts.clear()
    if writer.committer.idle:
        writer.committer.begin()
