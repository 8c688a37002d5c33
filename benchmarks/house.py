"""Counts of the source tree, and hops between files on four paths, beside the limits they are steered by.

    python benchmarks/house.py                          # a table
    python benchmarks/house.py --list                   # and the names behind the counts
    python benchmarks/house.py --json > before.json
    python benchmarks/house.py --compare before.json    # before and after

A hop is a Python call between two files of the package. It is a report to steer by, no test.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "somatize"
LIMITS = {
    "packages at the top": 14,
    "modules at the top": 6,
    "modules": 150,
    "lines": 43_500,
    "circles of imports": 0,
    "docstrings that begin with What": 0,
    "files from forward to write()": 6,
    "hops: curve of a closed store": 25,
    "hops: mapped kept node at a worker, miss": 200,
    "hops: one look of watch": 120,
}
VERBS = re.compile(r"(^|_)\w+(ing|ed|ly)$|^(said|drawn|kept|foreseen|seen|told|held|gathered|byhand|lately)$")
NOUNS = {"encoding", "drawing", "graph_drawing", "logging", "node_tally"}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = path
    return found


def imports(name: str, path: Path, tree: ast.AST, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports, for types only or at run time."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                if path.with_name(f"{alias.name}.pyi").exists():
                    continue  # compiled
                whole = f"{base}.{alias.name}"
                found |= {whole} if whole in known else {base} & known.keys()
    return found - {name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def passes_on(node: ast.AST) -> bool:
    """Whether a function only calls another one with its own arguments."""
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return False
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], (ast.Return, ast.Expr)) or not isinstance(body[0].value, ast.Call):
        return False
    names = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
    given = [argument.id for argument in body[0].value.args if isinstance(argument, ast.Name)]
    return bool(names) and given == names and len(body[0].value.args) == len(names)


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Docstrings of modules, classes, functions and assigned names."""
    for node in ast.walk(tree):
        for one in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.value.value


def comments(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type == tokenize.COMMENT and token.line.strip().startswith("#") for token in tokens)


def private_uses(test: str) -> int:
    """How often a test uses private attributes, but for those of its own classes and documented ones of Python."""
    own = {*re.findall(r"\b(?:self|cls)\.(_[a-z]\w*)", test), "_asdict", "_replace", "_exit", "_current_frames"}
    return sum(name not in own for name in re.findall(r"(?<!self)(?<!cls)(?<=[\w)\]])\.(_[a-z]\w*)", test))


def counted() -> tuple[dict[str, float], dict[str, list[str]]]:
    """The counts, and the names behind them."""
    known = modules()
    sources = {name: path.read_text("utf-8") for name, path in known.items()}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    graph = {name: imports(name, known[name], tree, known) for name, tree in trees.items()}
    importers = collections.Counter(other for found in graph.values() for other in found)
    plain = [name for name, path in known.items() if not path.name.startswith("__")]
    lines = {name: source.count("\n") for name, source in sources.items()}
    classes = collections.defaultdict(list)
    small, through = [], []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                if len(methods) == 1 and not node.bases:
                    small.append(f"{name}.{node.name}")
            elif passes_on(node):
                through.append(f"{name}.{getattr(node, 'name', '')}")
        for node in getattr(tree, "body", []):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
    leaves = collections.Counter(name.rpartition(".")[2] for name in plain)
    names = {
        "modules with one importer": [name for name in plain if importers[name] == 1],
        "modules under 100 lines": [name for name in plain if lines[name] < 100],
        "modules of one function": [
            name
            for name in plain
            if sum(isinstance(one, (ast.FunctionDef, ast.ClassDef)) for one in getattr(trees[name], "body", [])) == 1
            and any(isinstance(one, ast.FunctionDef) for one in getattr(trees[name], "body", []))
        ],
        "module names that are no nouns": [
            name for name in plain if VERBS.search(leaf := name.rpartition(".")[2]) and leaf not in NOUNS
        ],
        "module names that stand twice": [leaf for leaf, times in leaves.items() if times > 1],
        "class names in several modules": [name for name, where in classes.items() if len(where) > 1],
        "classes of one method": small,
        "functions that only pass on": through,
        "circles of imports": [" ".join(part) for part in circles(graph)],
        "docstrings that begin with What": [
            f"{name}: {text[:60]}"
            for name, tree in trees.items()
            for text in docstrings(tree)
            if text.startswith("What ")
        ],
    }
    tests = [path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))]
    counts: dict[str, float] = {
        "packages at the top": sum((path / "__init__.py").exists() for path in PACKAGE.iterdir()),
        "modules at the top": sum(path.suffix == ".py" for path in PACKAGE.iterdir()),
        "modules": len(known),
        "lines": sum(lines.values()),
        "comment lines, percent": round(100 * sum(map(comments, sources.values())) / sum(lines.values()), 2),
        **{what: len(found) for what, found in names.items()},
        "private attributes used in tests": sum(map(private_uses, tests)),
        "attributes replaced in tests": sum(test.count("monkeypatch.setattr") for test in tests),
    }
    return counts, names


class Hops:
    """Counts calls between files while it is entered, and the files of the package that are passed through."""

    def __init__(self) -> None:
        self.hops = 0
        self.files: set[str] = set()

    def _event(self, frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_back is not None:
            here, before = frame.f_code.co_filename, frame.f_back.f_code.co_filename
            if here.startswith(str(PACKAGE)):
                self.hops += here != before and before.startswith(str(PACKAGE))
                self.files.add(here)

    def __enter__(self) -> Self:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def written(call: Callable[[], object]) -> int:
    """The files of the package that a call has passed through when it first calls `os.write` or a file's `write`."""
    files: set[str] = set()
    done = False

    def event(frame: Any, kind: str, thing: Any) -> None:
        nonlocal done
        if kind == "call" and not done and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(frame.f_code.co_filename)
        elif kind == "c_call" and getattr(thing, "__name__", "") in ("write", "writev", "record"):
            done = True

    sys.setprofile(event)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(files)


def double(value: int) -> int:
    return 2 * value


def measured() -> dict[str, float]:
    """Hops on four paths, each measured on its second or later call."""
    from somatize import Broker, Graph, Recorder, Store, Worker, node
    from somatize.record import Followed, curve

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        place = Path(folder) / "runs"
        graph = Graph.somatize(node(double).named("a") >> node(double).named("b"))
        with Store(place) as store, Recorder(store, run="r", summarising=["loss"]) as recorder:
            followed = stack.enter_context(Followed(place, "r"))
            for value in range(3):
                graph.forward(value, watching=recorder)
                recorder({"fact": "loss", "value": value})
            found["files from forward to write()"] = written(lambda: graph.forward(1, watching=recorder))
            curve(store, "r", of="loss")
            with Hops() as hops:
                curve(store, "r", of="loss")
            found["hops: curve of an open store"] = hops.hops
            followed.look()
            graph.forward(1, watching=recorder)
            with Hops() as hops:
                followed.look()
            found["hops: one look of watch"] = hops.hops
        curve(place, "r", of="loss")
        with Hops() as hops:
            curve(place, "r", of="loss")
        found["hops: curve of a closed store"] = hops.hops
        worker = Worker.spawn([sys.executable, "-m", "somatize.worker"])
        with Broker.embedded({"w1": worker}) as broker, Store(Path(folder) / "kept") as store:
            one = Graph.somatize(node(double).named("a").mapped().frozen().cached().at("w1"))
            for value in range(3):
                with Hops() as hops:
                    one.forward([value], store=store, broker=broker)
            found["hops: mapped kept node at a worker, miss"] = hops.hops
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the names behind the counts")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="print an earlier --json beside")
    options = parser.parse_args()
    counts, names = counted()
    counts |= measured()
    if "--pure" not in sys.argv and not os.environ.get("SOMATIZE_PURE"):
        pure = subprocess.run(
            [sys.executable, __file__, "--json"],
            env={**os.environ, "SOMATIZE_PURE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        counts["files from forward to write(), without C"] = json.loads(pure.stdout)["files from forward to write()"]
    if options.json:
        print(json.dumps(counts, indent=1))
        return
    before = json.loads(options.compare.read_text()) if options.compare else {}
    print(f"{'':44}{'before':>10}{'now':>10}{'limit':>10}" if before else f"{'':44}{'now':>10}{'limit':>10}")
    for what, count in counts.items():
        earlier = f"{before.get(what, ''):>10}" if before else ""
        print(f"{what:44}{earlier}{count:>10}{LIMITS.get(what, ''):>10}")
        if options.list:
            for name in names.get(what, []):
                print("    ", name)


if __name__ == "__main__":
    main()
