"""The documentation: every snippet runs and prints what stands under it, and what the pages name is there."""

from __future__ import annotations

import inspect
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from somatize import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SLOW = {"howto/ray.md"}  # it starts a Ray of its own
SITE = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
PAGES = {path.relative_to(DOCS).as_posix(): path for path in SITE[:-1]}
MARKED = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PAGES]

REFERENCE = "\n".join(path.read_text() for path in sorted((DOCS / "reference").glob("*.md")))
PUBLIC = ["somatize", "somatize.record", "somatize.record.export", "somatize.status", "somatize.ui", "somatize.worker"]


@pytest.mark.parametrize("name", MARKED)
def test_every_snippet_runs_and_prints_what_stands_under_it(page, name):
    page(PAGES[name])


@pytest.mark.parametrize("path", SITE, ids=lambda path: path.name)
def test_every_file_that_is_named_is_there(path):
    named = re.findall(r"`(?:python )?((?:tests|benchmarks|examples|notebooks)/[\w./-]*)", path.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", SITE, ids=lambda path: path.name)
def test_every_target_and_extra_that_is_named_is_there(path):
    text = path.read_text()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make (\w+)", text, re.MULTILINE)) <= targets
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"pip install '(?:somatize|\.)\[(\w+)\]'", text)) <= set(extras)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_every_public_name(module):
    documented = set(re.findall(r"^\.\. (?:auto(?:class|function)|py:data):: (\S+)", REFERENCE, re.MULTILINE))
    shown = {identity(name) for name in documented}
    offered = import_module(module)
    lacking = [
        name
        for name in offered.__all__
        if f"{module}.{name}" not in documented and id(getattr(offered, name)) not in shown
    ]
    assert lacking == []


def identity(path: str) -> int:
    """That of what a dotted name names, so that a thing offered in two places needs one entry."""
    module, _, name = path.rpartition(".")
    return id(getattr(import_module(module), name))


def test_every_error_says_what_to_do():
    said = re.findall(r"^(`\w+`(?:, `\w+`)*)\n: \S", PAGES["troubles.md"].read_text(), re.MULTILINE)
    explained = sorted(name for line in said for name in re.findall(r"\w+", line))
    ours = [name for name, thing in vars(errors).items() if inspect.isclass(thing)]
    assert explained == sorted(set(ours) - {"SomatizeError"})


def test_every_fact_and_field_is_in_the_vocabulary():
    from somatize import facts

    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \| ([^|]*)\|$", PAGES["vocabulary.md"].read_text(), re.MULTILINE
    )
    told = {kind: set(re.findall(r"\w+", always + may)) for kind, always, may in rows}
    kinds = {name.lower(): thing for name, thing in vars(facts).items() if name.lower() in facts.KINDS}
    assert told == {kind: set(thing.__annotations__) - {"fact"} for kind, thing in kinds.items()}


def commands() -> list[tuple[str, str]]:
    found = []
    for path in SITE:
        for fence in re.findall(r"^```(?:sh|console)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            for line in fence.replace("\\\n", " ").splitlines():
                if (words := line.removeprefix("$ ").partition("#")[0].strip()).startswith("somatize "):
                    found.append((path.name, words))
    return found


@pytest.mark.parametrize(("where", "line"), commands())
def test_every_command_is_one_there_is(where, line):
    from somatize.cli.command import somatize as group

    name, sub, rest = group.resolve_command(group.context_class(group), shlex.split(line)[1:])
    sub.make_context(name, rest)


def test_the_architecture_names_every_module() -> None:
    """By its name in backquotes, so that a new module finds its line, and one that went leaves it."""
    package = ROOT / "somatize"
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    assert len(text.splitlines()) < 200
    modules = {path.stem for path in package.rglob("*.py")} - {"__init__", "__main__"}
    named = set(re.findall(r"`([a-z_]+)`", text))
    assert modules - named == set()
