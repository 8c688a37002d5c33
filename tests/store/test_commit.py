"""The group commit, where it reads a journal back while its writer appends to it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.record import facts, forwards, runs
from somatize.store import commit
from somatize.store.writer import Writer

pytestmark = pytest.mark.usefixtures("way")

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
    # One byte is read wrongly, as from a failing disk, and by the commit alone.
    monkeypatch.setattr(Writer, "read_journal", read)
    store.opened.flush()
    store.opened.flush()
    recorder.close()
    assert [row["state"] for row in forwards(store, "r")] == ["ok", "ok"]
    assert [fact["fact"] for fact in facts(store, "r", 1)] == ["ran", "finished", "note"]
    assert store.check() == []


def test_a_sweep_lets_go_of_the_pages_that_were_looked_at(tmp_path: Path) -> None:
    def resident() -> int:
        """Megabytes of files that are mapped and in memory."""
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("RssFile:")[2].split()[0]) >> 10

    def looks() -> int:
        with store.opened.records.read() as reading:
            return sum(len(bytes(value)) for _, value in reading.items()) >> 20

    with Store(tmp_path / "s") as store, Recorder(store, run="r") as recorder:
        for _ in range(100):
            recorder({"fact": "note", "text": "x" * 250_000})
        store.opened.flush()
        before = resident()
        assert looks() >= 23
        grown = resident()
        assert grown >= before + 15
        with store.opened.records.read() as reading:
            store.opened.records.sweep()  # who reads goes on
            assert reading.get(b"i") is not None
        assert resident() >= grown - 2
        store.opened.records.sweep()
        assert resident() <= grown - 15
        assert looks() >= 23


@pytest.mark.timeout(30)
def test_the_thread_that_ends_the_last_writer_of_a_store_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would wait for each other, and everything that opens or closes a store with them."""
    # Were it waited for, the test would hang.
    monkeypatch.setattr(commit.Committer.stop, "__defaults__", (3600.0,))
    for number in range(5):
        place = tmp_path / f"{number}"
        recorder = Recorder(Store(place), run="r")
        Graph.somatize(node(abs)).forward(-1, watching=recorder)
        del recorder
        gc.collect()
        while list((place / "journals").iterdir()):  # the writer's, until it was ended
            assert len(runs(place)) == 1
