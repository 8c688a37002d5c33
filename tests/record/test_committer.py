"""The group commit, where it reads a journal back while its writer appends to it."""

from __future__ import annotations

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.record import facts, forwards
from somatize.storage.writer import Writer

G = Graph.somatize(node(lambda x: x))


def test_an_entry_that_is_half_written_when_the_journal_is_read_back_is_not_skipped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read beside a write may show an entry torn and the next one whole: that is no damage."""
    recorder = Recorder(store, run="r")
    real = Writer.read_journal

    def read(writer: Writer, generation: int, start: int, most: int) -> bytes:
        # Two more forwards come between the mark up to where is committed and the read; the first is seen torn.
        monkeypatch.setattr(Writer, "read_journal", real)
        before = writer.position[1]
        G.forward(1, watching=recorder)
        recorder({"fact": "note", "text": "after"})
        content = bytearray(real(writer, generation, start, most))
        content[before - start + 60] ^= 0xFF
        return bytes(content)

    G.forward(0, watching=recorder)
    recorder._writer.batch.give_up()
    monkeypatch.setattr(Writer, "read_journal", read)
    store.opened.flush()
    store.opened.flush()
    recorder.close()
    assert [row["state"] for row in forwards(store, "r")] == ["ok", "ok"]
    assert [fact["fact"] for fact in facts(store, "r", 1)] == ["ran", "finished", "note"]
    assert store.check() == []
