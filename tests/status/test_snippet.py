"""The snippet that says what a Status is for, run as written."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from somatize import Graph, Recorder, Store, node
from somatize.record import curve, throughput


def test_it_runs_as_written(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{number}" for number in range(3)]
    loader = [torch.ones(4, 8) for _ in range(5)]
    g = Graph.somatize(node(torch.nn.Linear(8, 2)).named("linear"))
    recorder = Recorder(Store(tmp_path / "store"), run="train")

    from somatize.status import EventKind, LogEvent, Status, TaskEvent

    status = Status(log_history=200, window=50, profile_flops=True)
    assert Status.of({"profile_flops": False}).logs == ()

    def follow(event: Any) -> None:
        if isinstance(event, TaskEvent) and event.kind is EventKind.FINISHED:
            print(event.task.name, event.task.elapsed)
        elif isinstance(event, LogEvent):
            print(event.entry.levelname, event.entry.message)

    unsubscribe = status.subscribe(follow)
    with status.task("Indexing shards", total=len(paths)) as task:
        for _ in paths:
            task.advance()
    for _ in status.track(paths, "Indexing shards"):
        logging.getLogger("somatize.x").warning("slow shard")
    stream = status.throughput("train")
    for batch in stream.iterate(loader):
        with stream.step(batch):
            g.forward(batch, watching=[recorder, status])
    stats = stream.stats()
    assert (stats.samples, stats.batches, stats.flops_exact) == (20, 5, True)
    assert stats.samples_per_s is not None
    assert stats.flops_per_s is not None
    unsubscribe()
    unsubscribe()
    written = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ")[0] for line in written].count("Indexing shards") == 2
    assert written.count("WARNING slow shard") == 3
    status.close()
    recorder.close()
    assert len(curve(tmp_path / "store", of="took_us")) == 5
    assert throughput(tmp_path / "store") == []
