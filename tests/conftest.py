"""What holds for every test: the facts its forwards tell are held to the vocabulary, and nothing waits for nothing."""

from __future__ import annotations

import functools
import gc
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import hypothesis
import pytest

from somatize import facts
from somatize.engine import loops as engine
from somatize.errors import FactError
from tests.programs import absent

# jsonschema, and so all that reads notebooks, builds the 38 parsers of this one when it is imported: four seconds for
# formats that no notebook has. It does without where it is not installed.
sys.modules.setdefault("rfc3987_syntax", None)

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would each program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")


@pytest.fixture(scope="module", autouse=True)
def heap_set_aside() -> None:
    """What lives by now is not looked through again: with torch and the others loaded a collection takes half a second.

    A forked child that collects would have to copy it all, too.
    """
    gc.collect()
    gc.freeze()


def hold(fact: Any) -> None:
    """Raises `FactError` if `fact` is none of the eight as documented, nor a text-to-text dict of another kind."""
    if type(fact) is not dict:
        raise FactError(f"no dict: {fact!r}")
    if fact.get("fact") in facts.KINDS:
        facts.check(fact)
    elif not fact.get("fact") or any(type(word) is not str for pair in fact.items() for word in pair):
        raise FactError(f"not text to text, with a kind: {fact!r}")


def held(tell: Callable[[Any], object], wrong: list[str]) -> Callable[[Any], object]:
    """`tell`, keeping in `wrong` what is no fact, and what comes after the last one."""
    ended: list[Any] = []

    @functools.wraps(tell)
    def told(fact: Mapping[str, str]) -> object:
        try:
            hold(fact)
        except FactError as error:
            wrong.append(str(error))
        if ended:
            wrong.append(f"{fact!r} was told after {ended[0]!r}")
        if fact.get("fact") in ("finished", "broke"):
            ended.append(dict(fact))
        return tell(fact)

    return told


def holding(walk: Callable[..., Any], wrong: list[str]) -> Callable[..., Any]:
    """A loop of the engine's, with its watchers held."""

    def observing(program: Any, given: Any, forward: Any, *rest: Any) -> Any:
        forward.tell = held(forward.tell, wrong)
        return walk(program, given, forward, *rest)

    return observing


@pytest.fixture(autouse=True)
def wrong_facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What any forward told during this test that no forward may tell; nothing, when the test ends."""
    wrong: list[str] = []
    loops = [name for name in vars(engine) if name.startswith("_observe")]
    assert len(loops) == 2
    for name in loops:
        # Every loop of the engine is held, whoever watches; a watcher would change what is measured.
        monkeypatch.setattr(engine, name, holding(getattr(engine, name), wrong))
    yield wrong
    assert wrong == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape text that is not UTF-8 in what a test printed and logged: xdist ends a worker that reports it."""
    report = yield
    report.sections = [(title, escaped(text)) for title, text in report.sections]
    return report


def escaped(text: str) -> str:
    """The text with what UTF-8 cannot encode (lone surrogates) as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Name, after all else, each program for whose absence a test was skipped, and how to get it."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    lines = absent(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple))
    if lines:
        terminalreporter.section("absent programs")
        for line in lines:
            terminalreporter.line(line)
