"""Logs: each record once, and `logging` left as it was. Case C024."""

from __future__ import annotations

import gc
import io
import itertools
import logging
import logging.config
import pickle
import subprocess
import sys
import textwrap
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from somatize import Graph
from somatize.errors import BadOption
from somatize.status import LogEvent, Status, configure_logging

from .conftest import close_those_left

log = logging.getLogger("somatize.test")


BARE_ROOT = True


@pytest.fixture(autouse=True)
def loggers_as_configured() -> Iterator[None]:
    """What a test configures is undone."""
    yield
    for name in ("myproject", "myproject.part"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate, logger.level, logger.disabled = [], True, 0, False
    for known in logging.root.manager.loggerDict.values():
        if isinstance(known, logging.Logger):
            known.disabled = False


def messages(status: Status) -> list[str]:
    return [entry.message for entry in status.logs]


def handled_by(logger: str = "") -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger(logger).addHandler(handler)
    return stream


def test_a_record_arrives_with_its_task_and_goes_on_once() -> None:
    stream = handled_by()
    events: list[Any] = []
    with Status() as status:
        status.subscribe(lambda event: events.append(event) if isinstance(event, LogEvent) else None)
        with status.task("Indexing") as task:
            log.warning("open %s", "[/usr/bin/x] [bold")
        log.error("outside")
    assert stream.getvalue() == "open [/usr/bin/x] [bold\noutside\n"
    assert [event.entry for event in events] == list(status.logs)
    first, second = status.logs
    assert (first.levelname, first.level, first.logger) == ("WARNING", 30, "somatize.test")
    assert (first.message, first.task, second.task) == ("open [/usr/bin/x] [bold", task, None)


def test_the_last_ones_are_kept() -> None:
    with Status(log_history=3) as status:
        for number in range(9):
            log.warning("%d", number)
        assert messages(status) == ["6", "7", "8"]
    with Status(log_history=0) as status:
        log.warning("x")
        assert status.logs == ()


def test_handlers_do_not_pile_up(state: Any) -> None:
    stream = handled_by()
    before = state()

    def logs(value: Any) -> Any:
        log.warning("in a node")
        return value

    graph = Graph.somatize(logs)
    for _ in range(5):
        with Status() as status:
            log.warning("once")
            graph.forward(1, watching=status)
        assert messages(status) == ["once", "in a node"]
        assert status.logs[1].task is not None
        assert status.logs[1].task.name == "logs"
        assert state() == before
    assert stream.getvalue().splitlines() == ["once", "in a node"] * 5
    with Status() as a, Status() as b:
        log.warning("nested")
    assert messages(a) == messages(b) == ["nested"]
    with pytest.raises(ValueError), Status() as status:
        log.warning("before")
        raise ValueError
    assert state() == before


def test_a_cell_run_again_drops_the_one_before(state: Any) -> None:
    before = state()
    for _ in range(5):
        status = Status()
        with status.task("x"):
            log.warning("once")
        assert messages(status) == ["once"]
    assert len(logging.getLogger("somatize").handlers) == 1
    del status
    assert state() == before
    status = Status()
    status.task("left open")
    reference = weakref.ref(status)
    del status
    gc.collect()
    assert reference() is None
    assert state() == before


@pytest.mark.parametrize("shown", [False, True])
def test_one_whose_listener_knows_it_is_dropped_too(shown: bool, state: Any) -> None:
    class Dashboard:
        def __init__(self) -> None:
            self.status = Status(watching=told.append)
            self.unsubscribe = self.status.subscribe(self.follow)
            if shown:
                self.status.display(file=io.StringIO(), live=True)

        def follow(self, event: Any) -> None:
            heard.append(type(event).__name__)

    before, told, heard = state(), [], []
    dashboard = Dashboard()
    for _ in dashboard.status.track([1, 2], "loop"):
        pass
    with dashboard.status.throughput("t").step([1]):
        pass
    reference = weakref.ref(dashboard.status)
    del dashboard
    gc.collect()
    assert reference() is None
    assert state() == before
    assert [fact["fact"] for fact in told] == ["task", "throughput"]
    assert heard


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("loggers", [("somatize",), ("",), ("", "somatize", "somatize.test")])
def test_any_order_of_closing(order: tuple[int, ...], loggers: tuple[str, ...], state: Any) -> None:
    before = state()
    statuses = [Status(loggers=loggers) for _ in range(3)]
    open_ = set(order)
    for closing in order:
        log.warning("to %d", len(open_))
        for number in open_:
            assert messages(statuses[number])[-1] == f"to {len(open_)}"
        statuses[closing].close()
        statuses[closing].close()
        open_.remove(closing)
    assert state() == before


def test_a_record_that_passes_several_of_its_loggers_arrives_once() -> None:
    with Status(loggers=("", "myproject", "myproject.part", "myproject")) as status:
        logging.getLogger("myproject.part").warning("one")
        logging.getLogger("myproject").warning("two")
        logging.getLogger("elsewhere").warning("three")
    assert messages(status) == ["one", "two", "three"]


def test_one_that_is_logged_while_another_is_handled_does_not_make_it_arrive_again() -> None:
    class Echoes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.WARNING:
                logging.getLogger("myproject.part").info("echo of %s", record.getMessage())

    logging.getLogger("myproject.part").setLevel(logging.INFO)
    with Status(loggers=("", "myproject", "myproject.part")) as status:
        logging.getLogger("myproject.part").addHandler(Echoes())
        logging.getLogger("myproject.part").warning("one")
        assert messages(status) == ["one", "echo of one"]


@pytest.mark.parametrize("logger", ["", "myproject"])
def test_a_record_reaches_the_status_before_the_handlers_of_its_logger(logger: str, state: Any) -> None:
    seen: list[Any] = []

    class Spoils(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(messages(status))
            record.msg, record.args = "spoiled", ()
            if record.levelno == logging.ERROR:
                raise RuntimeError("torn handler")

    first, found = Spoils(), logging.getLogger(logger)
    found.addHandler(first)
    before = state()
    with Status(loggers=(logger,)) as status:
        logging.getLogger("myproject.part").warning("as it was said")
        with pytest.raises(RuntimeError, match="torn handler"):
            logging.getLogger("myproject.part").error("and this")
        assert messages(status) == ["as it was said", "and this"]
        logging.basicConfig(force=True, handlers=[logging.NullHandler()])
        with status.task("x"):
            if first not in found.handlers:
                found.addHandler(first)
            logging.getLogger("myproject.part").warning("configured anew")
        logging.root.handlers = [] if logger else [first]
    assert seen == [["as it was said"], ["as it was said", "and this"], messages(status)[:3]]
    assert list(found.handlers) == [first]
    assert state() == before
    found.handlers = []


def test_the_first_handler_of_the_root_is_the_one_that_was_configured() -> None:
    stream = handled_by()
    with Status(loggers=("",)):
        assert len(logging.root.handlers) == 1
        logging.root.handlers[0].setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        log.warning("hot")
        for handler in logging.root.handlers[:]:
            logging.root.removeHandler(handler)
        assert not logging.root.handlers
    assert stream.getvalue() == "WARNING hot\n"


# -- configured in one call


def test_level_console_and_routing_in_one_call_and_undone(capsys: pytest.CaptureFixture[str], state: Any) -> None:
    file = io.StringIO()
    logging.root.addHandler(logging.StreamHandler(sys.stderr))
    logging.root.addHandler(logging.StreamHandler(file))
    before = state()
    with Status(loggers=("somatize",)) as status:
        with status.configure_logging(level="debug") as configured:
            logging.getLogger("elsewhere").debug("fine print")
            log.debug("of ours")
        assert configured.closed
        logging.getLogger("elsewhere").debug("under the level again")
        logging.getLogger("elsewhere").warning("as before")
    assert messages(status) == ["fine print", "of ours"]
    assert file.getvalue() == "fine print\nof ours\nas before\n"
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("DEBUG")[-1].strip() for line in lines] == ["fine print", "of ours", "as before"]
    assert state() == before


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_it_ends_with_its_status(how: str, capsys: pytest.CaptureFixture[str], state: Any) -> None:
    before = state()
    for _ in range(3):  # a cell that is run again
        status = Status()
        status.configure_logging("INFO")
        log.info("once")
    assert capsys.readouterr().err.count("once") == 3
    if how == "closed":
        status.close()
    del status
    gc.collect()
    close_those_left()
    assert state() == before


def test_the_last_configuration_counts_whichever_is_undone_first(
    capsys: pytest.CaptureFixture[str], state: Any
) -> None:
    logging.root.addHandler(logging.StreamHandler(sys.stderr))
    before = state()
    for order in itertools.permutations(range(3)):
        made = [configure_logging(level) for level in ("DEBUG", "ERROR", "INFO")]
        open_ = [0, 1, 2]
        for number in order:
            made[number].close()
            made[number].close()
            open_.remove(number)
            capsys.readouterr()
            log.warning("warned")
            last = max(open_, default=None)
            assert capsys.readouterr().err.count("warned") == (last != 1)
            assert logging.root.level == ([10, 40, 20][last] if last is not None else before[2])  # type: ignore[index]
        assert state() == before


def test_what_others_configure_meanwhile_stays(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.NullHandler()
    configured = configure_logging("DEBUG")
    logging.root.setLevel("ERROR")
    logging.root.addHandler(handler)
    configured.close()
    assert (logging.root.level, logging.root.handlers) == (logging.ERROR, [handler])
    logging.root.addHandler(logging.StreamHandler(sys.stderr))
    configured = configure_logging("DEBUG")
    logging.basicConfig(force=True, handlers=[handler], level="INFO")
    configured.close()
    assert (logging.root.level, logging.root.handlers) == (logging.INFO, [handler])
    assert capsys.readouterr().err == ""


def test_any_console_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    own, stream = Console(file=io.StringIO(), width=60), io.StringIO()
    with configure_logging("INFO", own), Status() as status:
        log.info("[/usr/bin/x] [bold")
        with status.configure_logging("INFO", False):
            logging.getLogger("elsewhere").info("nowhere else")
        with configure_logging(logging.INFO, stream):
            log.info("to a stream")
    assert "[/usr/bin/x] [bold" in own.file.getvalue()  # type: ignore[attr-defined]
    assert "nowhere else" in own.file.getvalue(), "another's console is left alone"  # type: ignore[attr-defined]
    assert "to a stream" in stream.getvalue()
    assert "nowhere else" in messages(status)
    assert capsys.readouterr().err == ""


def test_a_record_is_one_line_in_a_file_and_as_rich_writes_it_on_a_terminal(state: Any) -> None:
    from rich.console import Console

    before, file, terminal = state(), io.StringIO(), io.StringIO()
    words = "[bold]a message[/] of more than eighty letters, " + "x" * 80 + " and its end"
    with configure_logging("INFO", file):
        log.info("%s", words)
        log.info(object)
        try:
            raise ValueError("torn")
        except ValueError:
            log.exception("reading")
    lines = file.getvalue().splitlines()
    assert lines[0].endswith(f"INFO     {words}")
    assert lines[-1] == "ValueError: torn"
    with configure_logging("INFO", Console(file=terminal, force_terminal=True, width=60)):
        log.info("%s", words)
    assert len(terminal.getvalue().splitlines()) > 1
    assert state() == before


def test_what_cannot_be_configured_is_refused_and_nothing_is_touched(state: Any) -> None:
    before = state()
    with Status() as status:
        with pytest.raises(BadOption, match=r"level='inof' is no level of logging; did you mean 'INFO'\?"):
            status.configure_logging("inof")
        with pytest.raises(BadOption, match="level=True"):
            status.configure_logging(True)
        with pytest.raises(BadOption, match="console=3"):
            status.configure_logging("INFO", 3)
    assert state() == before


@pytest.mark.parametrize("logger", ["", "somatize"])
def test_a_handler_that_others_put_back_after_its_status_closed_does_nothing(logger: str, state: Any) -> None:
    before, found = state(), logging.getLogger(logger)
    status = Status(loggers=(logger,))
    copied = found.handlers[:]
    status.close()
    found.handlers, own = copied, found.handlers
    stream = handled_by(logger)
    log.warning("afterwards")
    assert (messages(status), stream.getvalue()) == ([], "afterwards\n")
    found.handlers = own
    assert state() == before


def test_no_level_and_no_propagation_is_changed() -> None:
    with Status(loggers=("myproject",)) as status:
        logging.getLogger("myproject").info("under the root's level")
        assert status.logs == ()
        logging.getLogger("myproject").setLevel("INFO")
        logging.getLogger("myproject").info("now")
        logging.getLogger("myproject").propagate = False
        logging.getLogger("myproject").info("and now")
    assert messages(status) == ["now", "and now"]


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("loggers", [("somatize",), ("",)])
def test_basic_config_inside_takes_effect_and_stays(force: bool, loggers: tuple[str, ...]) -> None:
    stream = io.StringIO()
    with Status(loggers=loggers) as status:
        log.warning("before")
        logging.basicConfig(stream=stream, format="%(message)s", level="INFO", force=force)
        with status.task("x"):
            log.info("after")
    assert messages(status) == ["before", "after", *messages(status)[2:]]
    log.info("outside")
    assert [line for line in stream.getvalue().splitlines() if "finished" not in line] == ["after", "outside"]
    assert len(logging.root.handlers) == 1
    assert logging.root.level == logging.INFO


def test_basic_config_inside_keeps_what_was_configured_before() -> None:
    stream = handled_by()
    with Status(loggers=("",)):
        logging.basicConfig(stream=io.StringIO())
        log.warning("x")
    assert stream.getvalue() == "x\n"
    assert len(logging.root.handlers) == 1


@pytest.mark.parametrize("loggers", [("myproject",), ("",)])
def test_dict_config_inside_takes_effect_and_the_handler_is_put_back(loggers: tuple[str, ...]) -> None:
    stream = io.StringIO()
    status = Status(loggers=loggers)
    handler = {"class": "logging.StreamHandler", "stream": stream}
    logging.config.dictConfig(
        {
            "version": 1,
            "handlers": {"h": handler},
            "root": {"handlers": ["h"], "level": "INFO"},
            "loggers": {"myproject": {"level": "DEBUG"}},
        }
    )
    graph = Graph.somatize(lambda value: logging.getLogger("myproject").debug("in a node") or value)
    graph.forward(1, watching=status)
    with status.task("x"):
        logging.getLogger("myproject").debug("in a task")
    assert messages(status)[:2] == ["in a node", "in a task"]
    status.close()
    assert stream.getvalue().splitlines()[:2] == ["in a node", "in a task"]
    assert [type(handler) for handler in logging.root.handlers] == [logging.StreamHandler]
    assert not logging.getLogger("myproject").handlers


def test_with_no_other_handler_the_last_resort_still_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    last = logging.StreamHandler(stream)
    last.setLevel("WARNING")
    # It is a variable of logging that programs set.
    monkeypatch.setattr(logging, "lastResort", last)
    with Status(loggers=("", "somatize")), Status(), Status(loggers=("",)):
        log.warning("written once")
        log.info("under its level")
        logging.getLogger("other").error("also once")
        silent = logging.getLogger("myproject")
        silent.addHandler(logging.NullHandler())
        silent.warning("handled by whoever asked for silence")
    log.warning("after")
    assert stream.getvalue() == "written once\nalso once\nafter\n"
    monkeypatch.setattr(logging, "lastResort", None)
    with Status(loggers=("",)) as status:
        log.warning("nobody")
    assert messages(status) == ["nobody"]


def test_a_script_without_configuration_prints_as_it_did() -> None:
    script = """
        import logging
        from somatize.status import Status
        with Status(loggers=("",)) as status:
            logging.warning("a")
            logging.basicConfig(format="%(levelname)s %(message)s")
            logging.warning("b")
            logging.warning("c")
        assert len(logging.root.handlers) == 1
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert run.stderr == "WARNING:root:a\nWARNING:root:b\nWARNING:root:c\n" or run.stderr.endswith(
        "WARNING b\nWARNING c\n"
    )
    assert "Traceback" not in run.stderr


def test_warnings_are_routed_where_asked() -> None:
    stream = handled_by()
    showing = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with Status(warnings=True) as a, Status(warnings=True) as b:
            warnings.warn("look here", UserWarning, stacklevel=1)
            a.close()
            warnings.warn("and here", UserWarning, stacklevel=1)
        assert "look here" in messages(a)[0]
        assert "and here" in messages(b)[1]
        assert len(a.logs) == 1
    assert warnings.showwarning is showing
    assert stream.getvalue().count("UserWarning: look here") == 1


def test_warnings_captured_before_stay_captured() -> None:
    showing = warnings.showwarning
    logging.captureWarnings(True)
    try:
        captured = warnings.showwarning
        with Status(warnings=True):
            pass
        assert warnings.showwarning is captured
    finally:
        logging.captureWarnings(False)
    assert warnings.showwarning is showing


def test_warnings_captured_inside_stay_captured() -> None:
    showing = warnings.showwarning
    status = Status(warnings=True)
    logging.captureWarnings(True)
    status.close()
    try:
        assert warnings.showwarning is logging._showwarning  # type: ignore[attr-defined]
    finally:
        logging.captureWarnings(False)
    assert warnings.showwarning is showing


def test_who_shows_warnings_in_a_way_of_its_own_inside_keeps_it() -> None:
    shown: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "showwarning", lambda message, *_: shown.append(f"before {message}"))
        status = Status(warnings=True)
        route = warnings.showwarning
        warnings.showwarning = lambda *given: (shown.append("inside"), route(*given))
        warnings.showwarning(UserWarning("one"), UserWarning, "f.py", 1)
        assert "one" in messages(status)[0]
        status.close()
        warnings.showwarning(UserWarning("two"), UserWarning, "f.py", 1)
        with Status(warnings=True) as again:
            warnings.showwarning(UserWarning("three"), UserWarning, "f.py", 1)
            assert "three" in messages(again)[0]
        warnings.showwarning(UserWarning("four"), UserWarning, "f.py", 1, io.StringIO())
    assert shown == ["inside", "inside", "before two", "inside", "before four"]


def test_what_cannot_be_formatted_is_shown_still(capsys: pytest.CaptureFixture[str]) -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    handled_by()
    with Status() as status:
        log.warning("%d shards", "three")
        log.warning(Bad())
        try:
            raise ValueError("torn")
        except ValueError:
            log.exception("reading")
    assert "'%d shards' with ('three',)" in status.logs[0].message
    assert status.logs[2].traceback is not None
    assert status.logs[2].traceback.endswith("ValueError: torn")
    assert "Traceback" in capsys.readouterr().err  # the other handler complained, as it does without a Status


def test_a_record_keeps_nothing_alive() -> None:
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)
    with Status(loggers=("", "somatize")) as status:
        log.warning("%s", thing)
        del thing
        gc.collect()
        assert reference() is None
        assert len(status.logs) == 1


@pytest.mark.parametrize("make", [lambda options: Status(**options), Status.of])
def test_an_empty_slot_gives_the_default(make: Any) -> None:
    empty = dict.fromkeys(["log_history", "window", "profile_flops", "loggers", "warnings", "watching", "clock"])
    with Status() as plain, make(empty) as status:
        assert pickle.dumps(status) == pickle.dumps(plain)  # which holds the options
        log.warning("taken")
        assert messages(status) == ["taken"]
    with Status.of(None) as status:
        assert pickle.dumps(status) == pickle.dumps(plain)  # which holds the options


def test_options_are_checked_before_anything_is_touched(state: Any) -> None:
    before = state()
    for wrong in (
        {"log_history": -1},
        {"log_history": 2.5},
        {"window": 0},
        {"window": True},
        {"profile_flops": 1},
        {"loggers": "myproject"},
        {"loggers": (3,)},
        {"log_facts": "LOUD"},
        {"clock": 3},
    ):
        with pytest.raises(BadOption, match=next(iter(wrong))):
            Status(**wrong)  # type: ignore[arg-type]
        with pytest.raises(BadOption, match=next(iter(wrong))):
            Status.of(wrong)
    with pytest.raises(BadOption, match=r"no option 'log_histroy'; did you mean 'log_history'\?"):
        Status(log_histroy=3)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match=r"did you mean 'profile_flops'\?"):
        Status.of({"profile_flop": False})
    with pytest.raises(BadOption, match="there are log_history, window"):
        Status.of({"zzzz": False})
    with pytest.raises(BadOption, match="a mapping"):
        Status.of([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="watching="):
        Status(watching=3)  # type: ignore[arg-type]
    assert state() == before
    with Status.of({"profile_flops": False, "log_history": 2}) as status:
        for number in range(3):
            log.warning("%d", number)
        assert messages(status) == ["1", "2"]


def test_many_at_once_from_threads() -> None:
    import threading

    with ExitStack() as stack:
        statuses = [stack.enter_context(Status(loggers=("", "somatize"), log_history=10_000)) for _ in range(2)]
        threads = [threading.Thread(target=lambda: [log.warning("x") for _ in range(500)]) for _ in range(4)]
        handled_by()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(status.logs) for status in statuses] == [2000, 2000]


def test_a_record_that_came_back_from_a_worker_keeps_its_host() -> None:
    facts: list[dict[str, str]] = []
    with Status(watching=facts.append, log_facts="INFO") as status:
        logging.getLogger("somatize.far").warning("warm", extra={"host": "w1", "elsewhere": ("n", None)})
        for extra in ({"host": "db1"}, {"elsewhere": "there"}, {"host": 1, "task": 2, "node": 3, "level": 4}):
            logging.getLogger("somatize.here").warning("its own words for it", extra=extra)
        assert [entry.host for entry in status.logs] == ["w1", None, None, None]
    assert [fact.get("host") for fact in facts] == ["w1", None, None, None]
    assert {fact["level"] for fact in facts} == {"WARNING"}
