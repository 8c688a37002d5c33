"""The parts of a page that are words: headline numbers, tables, and what a run says of itself. All of it escaped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from somatize.figures import theme
from somatize.figures.theme import counted, share, took
from somatize.utils.units import scaled

from .columns import BROKE, INTERRUPTED, LOST, OPEN, STATES, Columns
from .digest import Digest
from .fleet import HERE, processors
from .node_totals import ENDINGS, Spent

_SAID_MOST = 400
_NODES, _TASKS, _ENDED_BADLY = 200, 200, 50
_BAD = frozenset({"broke", "interrupted", "lost", "failed", "ERROR", "CRITICAL"})


class Cell(NamedTuple):
    """What stands in a table: words, and whether they are a number, go wrong, or may be long."""

    words: str
    kind: str = ""


def text(words: object, most: int = _SAID_MOST) -> str:
    """Words as a page shows them: these very letters, and not endlessly many."""
    return escape(theme.cut(theme.plain(words), most))


def number(words: object) -> Cell:
    """A cell at whose right the digits stand."""
    return Cell("" if words is None else str(words), "number")


def table(titles: Sequence[str], rows: Iterable[Iterable[Cell | str]]) -> str:
    """Rows with their titles, without columns in which nothing stands; empty without rows."""
    made = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    shown = [place for place in range(len(titles)) if any(row[place].words for row in made)]
    if not shown:
        return ""
    right = [any("number" in row[place].kind for row in made) for place in shown]
    head = "".join(
        f'<th scope="col"{" class=number" * is_right}>{escape(titles[place])}</th>'
        for place, is_right in zip(shown, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(row[place]) for place in shown)}</tr>" for row in made)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    kind = " ".join([cell.kind, "bad" * (cell.words in _BAD)]).strip()
    return f'<td class="{kind}">{text(cell.words)}</td>' if kind else f"<td>{text(cell.words)}</td>"


def when(seconds: float | None) -> str:
    """A moment, in the time of whoever makes the page."""
    return "" if not seconds else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def cards(run: Mapping[str, Any], columns: Columns, about: Mapping[str, Any]) -> str:
    """The headline numbers."""
    span = (run["last"] or 0.0) - (run["first"] or 0.0)
    rate = (run["forwards"] - 1) / span if span > 0 and run["forwards"] > 1 else 0.0
    speed = (f"{rate:,.0f} a second" if rate >= 100 else f"{rate:.3g} a second") if rate else ""
    if len(segments := columns.segments()) > 1:  # nobody knows how long nothing ran between them
        speed = f"by {len(segments)} writers"
    shown = [("forwards", f"{run['forwards']:,}", speed, "")]
    endings = [ending for ending in ("broke", "interrupted", "lost") if run[ending] or ending == "broke"]
    shown += [(ending, f"{run[ending]:,}", "", "bad" if run[ending] else "good") for ending in endings]
    shown.append(("took in all", took(run["took_us"]), f"over {took(span * 1e6)}" if span > 0 else "", ""))
    shown += [_last_said(columns, place) for place, series in enumerate(columns.series) if series.kinds.strip(b"\0")]
    first, last = when(run["first"]), when(run["last"])
    shown.append(("first", first[11:] or "never", first[:10], ""))
    shown.append(("last", last[11:] or "never", last[:10], ""))
    shown.append(("host", str(about.get("host", "")), f"process {about.get('pid', '?')}", ""))
    return f'<dl class="cards">{"".join(map(_card, shown))}</dl>'


def _card(shown: tuple[str, str, str, str]) -> str:
    title, words, beside, kind = shown
    small = f" <small>{text(beside)}</small>" if beside else ""
    return f'<div><dt>{text(title, 40)}</dt><dd class="{kind}">{text(words, 60)}{small}</dd></div>'


def _last_said(columns: Columns, place: int) -> tuple[str, str, str, str]:
    series = columns.series[place]
    row = next(row for row in range(len(columns) - 1, -1, -1) if series.kinds[row])
    value = series.values[row]
    words = f"{value:.6g}" if value == value else "no finite number"
    return series.name, words, f"said last, in forward {columns.forwards[row]:,}", ""


# -- tables


def nodes_table(spent: Sequence[Spent]) -> str:
    """What each node did."""
    whole = sum(one.us for one in spent) or 1
    rows: list[list[Cell | str]] = [
        [
            Cell(one.node, "wide"),
            number(took(one.us)),
            number(share(one.us / whole, 1)),
            number("" if one.mean_us is None else took(one.mean_us)),
            *(number(f"{one.count(ending):,}" if one.count(ending) else "") for ending in ENDINGS),
            ", ".join(dict.fromkeys(str(where) for where, _ in one.turns)),
        ]
        for one in spent[:_NODES]
    ]
    titles = ("node", "took", "share", "each", *ENDINGS, "where")
    return table(titles, rows) + _and_more(len(spent), _NODES, "nodes")


def hosts_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What each host did; empty where nothing went anywhere."""
    if len(rows) < 2:
        return ""
    return table(
        ("host", "slices", "there and back", "worked", "waited", "failed", "processors", "memory"),
        [
            [
                row["host"],
                number(f"{row['slices']:,}" if row["host"] != HERE else ""),
                number(took(row["trip"]) if row["host"] != HERE else ""),
                number(took(row["ran"])),
                number(took(row["waiting"]) if row["host"] != HERE else ""),
                number(f"{row['failures']:,}"),
                number(processors(row)),
                number("" if row["memory"] is None else share(row["memory"])),
            ]
            for row in rows
        ],
    )


def forwards_table(columns: Columns, whys: Mapping[int, str], last: int = 20) -> str:
    """The last forwards."""
    return _forwards(columns, range(max(0, len(columns) - last), len(columns))[::-1], whys)


def broken_table(columns: Columns, whys: Mapping[int, str]) -> str:
    """The forwards that did not end well, the last first; empty if all did."""
    rows = [row for row, state in enumerate(columns.states) if state in (BROKE, INTERRUPTED, LOST, OPEN)]
    return _forwards(columns, rows[::-1][:_ENDED_BADLY], whys) + _and_more(len(rows), _ENDED_BADLY, "of them")


def _forwards(columns: Columns, rows: Iterable[int], whys: Mapping[int, str]) -> str:
    said = [series.name for series in columns.series]
    return table(
        ("forward", "state", "took", *said, "why"),
        [
            [
                number(f"{columns.forwards[row]:,}"),
                STATES[columns.states[row]],
                number(took(us) if (us := columns.took_us[row]) == us else ""),
                *(
                    number(f"{value:.6g}" if (value := series.values[row]) == value else "")
                    for series in columns.series
                ),
                Cell(columns.whys.get(row, "") or whys.get(columns.forwards[row], ""), "wide"),
            ]
            for row in rows
        ],
    )


def tasks_table(digest: Digest) -> str:
    """What was said of tasks, the last at the end."""
    tasks = digest.tasks
    return _and_more(len(tasks), _TASKS, "tasks before these") + table(
        ("task", "state", "took", "done", "of", "in", "why"),
        [
            [
                Cell(str(row["name"] or ""), "wide"),
                str(row["state"] or ""),
                number("" if row["took_us"] is None else took(row["took_us"])),
                number("" if row["done"] is None else f"{row['done']:,}"),
                number("" if row["total"] is None else f"{row['total']:,}"),
                ", ".join(str(row[field]) for field in ("parent", "node", "host") if row[field]),
                Cell(str(row["why"] or row["mark"] or ""), "wide"),
            ]
            for row in tasks[-_TASKS:]
        ],
    )


def logs_table(digest: Digest) -> str:
    """The last log records."""
    return _and_more(digest.said, len(digest.logs), "log records before these") + table(
        ("forward", "level", "logger", "message", "in"),
        [
            [
                number("" if row["forward"] is None else f"{row['forward']:,}"),
                str(row["level"] or ""),
                str(row["logger"] or ""),
                Cell(str(row["message"] or ""), "wide"),
                ", ".join(str(row[field]) for field in ("task", "node", "host") if row[field]),
            ]
            for row in digest.logs
        ],
    )


def streams_table(digest: Digest) -> str:
    """How each stream of batches went when it was said last."""
    fields = ("batches", "samples", "samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    return table(
        ("stream", *(field.replace("_per_s", " a second") for field in fields)),
        [
            [
                str(row["stream"]),
                *(number(_of_stream(row, field)) for field in fields),
            ]
            for row in digest.streams
        ],
    )


def _of_stream(row: Mapping[str, Any], field: str) -> str:
    value = row[field]
    if value is None:
        return ""
    if field == "waiting":
        return share(value)
    about = "about " if field == "flops_per_s" and not row["flops_exact"] else ""
    return about + (f"{value:,}" if isinstance(value, int) else scaled(value))


def _and_more(there: int, shown: int, what: str) -> str:
    return f'<p class="note">and {there - shown:,} more {escape(what)}</p>' if there > shown else ""


# -- about


def about_part(about: Mapping[str, Any]) -> str:
    """Where, when and with what a run was made."""
    git = about.get("git") or {}
    words = [git.get("commit", ""), f"on {git['branch']}" if git.get("branch") else ""]
    words += ["with changes"] * bool(git.get("dirty"))
    versions = about.get("versions") or {}
    said = [
        ("command", " ".join(map(str, about.get("argv", [])))),
        ("directory", about.get("cwd", "")),
        ("git", " ".join(word for word in words if word)),
        ("Python", f"{about.get('python', '')} at {about.get('executable', '')}" if about.get("python") else ""),
        ("platform", about.get("platform", "")),
        ("host", about.get("host", "")),
        ("user", about.get("user", "")),
        ("began", when(about.get("began"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("writers", counted(len(about["writers"]), "time") + " opened" if len(about["writers"]) > 1 else ""),
        *((str(name), _plainly(value)) for name, value in about.get("about", {}).items()),
        *((str(fact.get("fact")), _plainly(_without_kind(fact))) for fact in _own(about)),
    ]
    shown = "".join(f"<dt>{text(name, 60)}</dt><dd>{text(words, 4000)}</dd>" for name, words in said if words)
    diff = git.get("diff")
    more = f"<details><summary>changes since that commit</summary><pre>{escape(diff)}</pre></details>" if diff else ""
    return f'<dl class="about">{shown}</dl>{more}'


def _own(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What was said of the run itself that has no place of its own in the page."""
    kinds = ("log", "task", "throughput", "machine")
    return [fact for fact in about.get("facts", []) if fact.get("fact") not in kinds][:50]


def _without_kind(fact: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fact.items() if key != "fact"}


def _plainly(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_plainly(held)}" for key, held in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plainly, value))
    return str(value)
