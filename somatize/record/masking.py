"""Command lines as they are shown: without the values of what is secret by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
