"""Provenance of a run: the process, its code and its graphs; command lines are shown without secrets."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from hashlib import blake2b
from typing import Any

import msgpack

from somatize.facts import encodable, text

MASK = "***"
_SECRET = frozenset({
    *("password", "passwd", "passphrase", "passcode", "pwd", "pass", "pw", "secret", "secrets", "token", "key"),
    *("apikey",),
    *("accesskey", "secretkey", "privatekey", "credential", "credentials", "cred", "creds"),
    *("auth", "authorization", "bearer", "cookie", "pat", "dsn"),
})  # fmt: skip
_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAMED = re.compile(r"""(?P<name>[\w.+-]*\w)(?P<between>["']?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s&;,"'})\]]+)""")
_IN_URL = re.compile(r"(?P<scheme>\b[\w+.-]+://)(?P<user>[^/\s:@?#]*):(?P<password>[^/\s?#]*)@")
_ALONE_IN_URL = re.compile(r"(?P<scheme>\bhttps?://)[^/\s:@?#]{12,}@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+")
_KNOWN = re.compile(r"\b(?:gh[opsu]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|eyJ)[\w.-]{12,}")


def masked(argv: Sequence[str]) -> list[str]:
    """The words of a command line, with the values of ``--password``, ``--token``, ``API_KEY=`` and their like hidden.

    A name is secret by its last word; a value is what follows its ``=`` or ``:`` or, of an option, the next word. So
    are passwords in URLs, and what looks like a token of a service.
    """
    made: list[str] = []
    hide = False
    for word in argv:
        if hide and not word.startswith("--"):
            made.append(MASK)
            hide = False
            continue
        hide = False
        name, equals, _ = word.partition("=")
        if equals and " " not in name and _is_secret(name):
            made.append(f"{name}={MASK}")
            continue
        hide = word.startswith("--") and not equals and _is_secret(word)
        made.append(_within(word))
    return made


def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    return bool(words) and (words[-1] in _SECRET or words[-1].endswith(_ENDS))


def _within(text: str) -> str:
    """A word that is a URL, a header, a program, or JSON, with what is secret in it hidden."""
    text = _IN_URL.sub(rf"\g<scheme>\g<user>:{MASK}@", text)
    text = _ALONE_IN_URL.sub(rf"\g<scheme>{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _NAMED.sub(_hidden, text)
    return _KNOWN.sub(MASK, text)


def _hidden(found: re.Match[str]) -> str:
    value = found["value"]
    if not _is_secret(found["name"]) or value.startswith("//") or MASK in value:
        return found[0]
    if value.lower() in ("bearer", "basic"):  # what follows is hidden already
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found['name']}{found['between']}{quote}{MASK}{quote}"


_MOST_DIFF = 1 << 20
_PATIENCE = 10.0
_known_code: dict[tuple[str, bool], dict[str, Any]] = {}


def of_process() -> dict[str, Any]:
    """The command line, directory, Python and platform of this process; cheap."""
    return {
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "cwd": _cwd(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "user": os.environ.get("USER", ""),
    }


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def of_code(*, diff: bool) -> dict[str, Any]:
    """The versions of the libraries that are loaded, and the git commit; takes a while, and is asked once."""
    key = (_cwd(), diff)
    if key not in _known_code:
        _known_code[key] = {"git": _git(diff=diff), "versions": _versions()}
    return _known_code[key]


def knows_code(*, diff: bool) -> bool:
    """Whether `of_code` answers at once."""
    return (_cwd(), diff) in _known_code


def _versions() -> dict[str, str]:
    found = {}
    for name, module in sorted(sys.modules.items()):
        if "." not in name and name not in sys.stdlib_module_names:
            # Asked of no module, as it might answer with a warning; and one that may not be imported stands as None.
            version = getattr(module, "__dict__", {}).get("__version__")
            if isinstance(version, str):
                found[name] = version
    return found


def _git(*, diff: bool) -> dict[str, Any] | None:
    commit = _asked("rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _asked("status", "--porcelain", "--untracked-files=no")
    found = {
        "commit": commit.strip(),
        "branch": (_asked("rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": None if changes is None else bool(changes.strip()),
    }
    if diff:
        whole = _asked("diff", "HEAD") or ""
        cut = f"\n… <cut: {len(whole)} characters in all>"
        found["diff"] = whole if len(whole) <= _MOST_DIFF else whole[:_MOST_DIFF] + cut
    return found


def _asked(*words: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "--no-optional-locks", *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None


def of_graph(graph: Any) -> tuple[str, dict[str, Any]]:
    """A graph as data, and a name for it by its content."""
    nodes = list(graph.nodes())
    described = {
        "nodes": [{"id": node, "class": _class_of(graph.implementation(node))} for node in nodes],
        "edges": [list(edge) for edge in graph.edges()],
        "marks": {
            mark: {
                node: asdict(said) if is_dataclass(said) and not isinstance(said, type) else said
                for node, said in told.items()
            }
            for mark, told in (
                ("hosts", graph.hosts()),
                ("devices", graph.devices()),
                ("cached", graph.cached()),
                ("frozen", dict.fromkeys(graph.frozen(), True)),
                ("mapped", graph.mapped_nodes()),
            )
            if told
        },
    }
    described = plain(described)
    return blake2b(msgpack.packb(described), digest_size=8).hexdigest(), described


def _class_of(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', type(thing).__name__)}"


def plain(value: Any, depth: int = 0) -> Any:
    """The same value of plain types: mappings, lists, text, numbers, None; what is neither becomes its text.

    What UTF-8 cannot write, as a command line may hold, stands as an escape.
    """
    if isinstance(value, Mapping) and depth < 20:
        return {encodable(str(key)): plain(held, depth + 1) for key, held in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < 20:
        return [plain(held, depth + 1) for held in value]
    if value is None or type(value) in (str, bool, float) or (type(value) is int and abs(value) < 2**63):
        return text(value) if type(value) is str else value
    return text(value)
