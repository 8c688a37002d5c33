"""Per process: pickled or forked it is a copy that works and that nobody sees; and it ends as it began."""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from somatize.status import Status

log = logging.getLogger("somatize.test")


@pytest.mark.parametrize("way", [lambda s: pickle.loads(pickle.dumps(s)), copy.copy, copy.deepcopy])
def test_a_copy_has_no_listeners_no_handlers_and_records_nothing(way: Any, state: Any) -> None:
    told: list[Any] = []
    heard: list[Any] = []
    with Status(watching=told.append, log_history=7, window=3, profile_flops=False, loggers=("", "x")) as status:
        status.subscribe(heard.append)
        handlers = state()
        other = way(status)
        assert state() == handlers
        with other.task("x", 3) as task:
            task.advance()
            log.warning("not of the copy")
        for _ in other.track([1]):
            pass
        with other.throughput("t").step([1]):
            pass
        assert other.throughput("t").stats().batches == 1
        assert [fact["fact"] for fact in told] == ["log"]  # of the one that was there before, whose handler it still is
        assert (len(heard), other.logs, other.tasks) == (1, (), ())
        assert pickle.dumps(other) == pickle.dumps(status)  # which holds the options
        other.close()
    del other


def in_child(work: Any) -> int:
    """The exit status of a forked child that does `work`."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_tells_nobody_and_the_parent_goes_on() -> None:
    told: list[Any] = []
    heard: list[Any] = []
    status = Status(watching=told.append, loggers=("", "somatize"))
    status.subscribe(heard.append)
    with status.task("around", total=2) as around:
        count = len(heard)

        def work() -> None:
            assert logging.getLogger("somatize").handlers == []
            log.warning("in the child")
            with status.task("in the child") as task:
                task.advance()
            around.advance()
            around.finish()
            assert (len(heard), told, status.tasks) == (count, [], ())
            status.close()

        assert in_child(work) == 0
        log.warning("in the parent")
        around.advance()
    assert around.done == 1
    assert next(entry.message for entry in status.logs) == "in the parent"
    assert [fact["fact"] for fact in told] == ["log", "task"]
    status.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("way", [lambda s: s, copy.copy], ids=["itself", "a copy"])
def test_a_forked_copy_holds_nothing_of_its_parent_s(way: Any) -> None:
    with Status(log_history=7, window=3, loggers=("", "somatize")) as made:
        status = way(made)
        meter = status.throughput("train")
        with status.task("around", 2) as around:
            log.warning("in the parent")
            for batch in meter.iterate([[1, 2], [3, 4]]):
                with meter.step(batch):
                    pass

            def work() -> None:
                pickled = pickle.loads(pickle.dumps(status))
                for one in (status, pickled):
                    assert (one.logs, one.tasks, one.current, one.throughputs, one.closed) == ((), (), None, (), True)
                assert pickle.dumps(status) == pickle.dumps(pickled)  # which holds the options
                assert meter.stats().batches == 0
                with meter.step([5]):
                    around.advance()
                assert (meter.stats().samples, meter.stats().batches) == (1, 1)
                with status.task("its own") as task:
                    assert (task.parent, status.current) == (None, task)
                assert in_child(lambda: None) == 0

            assert in_child(work) == 0
        assert (meter.stats().batches, around.done) == (2, 0)
        assert len(made.logs) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_at_any_moment_does_not_hang() -> None:
    # Handlers that write files have locks of their own, which a fork can find held, with a Status or without.
    somatize, nowhere = logging.getLogger("somatize"), logging.NullHandler()
    somatize.propagate = False
    log.addHandler(nowhere)
    status = Status(watching=[].append)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with status.task("x") as task:
                task.advance()
                log.warning("busy")
                status.throughput("t").stats()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()

    def work() -> None:
        with status.task("x") as task:
            task.advance()
            log.warning("in the child")
            status.throughput("t").stats()
            status.subscribe(print)()

    try:
        assert [in_child(work) for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        status.close()
        somatize.propagate = True
        log.removeHandler(nowhere)


def of_a_spawned_process(status: Status, queue: Any) -> None:
    with status.task("x") as task:
        task.advance()
    queue.put((task.done, status.tasks, logging.getLogger("somatize").handlers))


def test_it_travels_to_a_spawned_process() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with Status() as status:
        process = context.Process(target=of_a_spawned_process, args=(status, queue))
        process.start()
        assert queue.get(timeout=60) == (1, (), [])
        process.join(60)
    assert process.exitcode == 0


def run(script: str, timeout: float = 100, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environ},
    )


LOADER = """
    import io, logging, os, sys, warnings
    import torch
    from torch.utils.data import DataLoader, Dataset
    from somatize.status import Status

    class Terminal(io.StringIO):
        def isatty(self): return True

    class Logs(Dataset):
        def __init__(self, status): self.status = status
        def __len__(self): return 4
        def __getitem__(self, i):
            logging.getLogger("somatize.data").warning("item %d", i)
            print("item", i)
            with self.status.task("item") as task: task.advance()
            return torch.ones(2) * i

    os.environ["TERM"] = "xterm"
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with Status(loggers=("", "somatize")) as status:
        with status.display(file=Terminal(), live=True):
            for _ in status.track(range(rounds), "rounds"):
                total = sum(batch.sum().item() for batch in DataLoader(Logs(status), batch_size=2, num_workers=1))
                assert total == 12, total
    print("ended", rounds)
"""


def test_a_loader_whose_dataset_logs_beside_a_view_ends() -> None:
    done = run(LOADER.replace("ROUNDS", "10"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("ended 10\n")
    assert done.stdout.count("item") == 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_rounds_of_it_end() -> None:
    done = run(LOADER.replace("ROUNDS", "200"), timeout=500)
    assert done.stdout.endswith("ended 200\n"), done.stderr[-2000:]


def test_leaving_the_interpreter_with_all_of_it_open_ends_quietly() -> None:
    done = run(
        """
        import logging
        from somatize.status import Status
        status = Status(watching=[print], loggers=("", "somatize"), warnings=True)
        status.display(live=True)
        status.subscribe(lambda event: None)
        task = status.task("open", 9)
        iterator = iter(status.track(range(9)))
        next(iterator)
        task.advance(); task.advance()
        logging.warning("bye")
        """,
        TERM="xterm",
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
