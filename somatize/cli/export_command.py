"""``somatize export``: a run in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .answers import Answer, answering
from .arguments import ReadingCommand, last_option, path_argument, reading, run_argument, run_named, since_option
from .exit_codes import say

if TYPE_CHECKING:
    from somatize.record.export import Exported

_BY_END = {".csv": "csv", ".parquet": "parquet", ".json": "trace", ".json.gz": "trace"}
_TABLES = ("forwards", "facts", "nodes", "logs", "tasks", "throughput", "runs")


def _csv(store: Any, run: str | None, to: str, options: Mapping[str, Any]) -> Exported:
    from somatize.record.export import to_csv

    return to_csv(store, run, to, options["of"] or "forwards", last=options["last"], since=options["since"])


def _parquet(store: Any, run: str | None, to: str, options: Mapping[str, Any]) -> Exported:
    from somatize.record.export import to_parquet

    return to_parquet(store, run, to, options["of"] or "forwards", last=options["last"], since=options["since"])


def _trace(store: Any, run: str | None, to: str, options: Mapping[str, Any]) -> Exported:
    from somatize.record.export import to_trace

    return to_trace(store, run, to, forward=options["forward"] or None, last=options["last"])


def _tensorboard(store: Any, run: str | None, to: str, options: Mapping[str, Any]) -> Exported:
    from somatize.record.export import to_tensorboard

    return to_tensorboard(store, run, to, last=options["last"], since=options["since"])


def _mlflow(store: Any, run: str | None, to: str, options: Mapping[str, Any]) -> Exported:
    from somatize.record.export import to_mlflow

    return to_mlflow(store, run, to, last=options["last"], since=options["since"])


_TAKES: dict[str, tuple[Callable[..., Exported], frozenset[str]]] = {
    "csv": (_csv, frozenset({"of", "last", "since"})),
    "parquet": (_parquet, frozenset({"of", "last", "since"})),
    "trace": (_trace, frozenset({"forward", "last"})),
    "tensorboard": (_tensorboard, frozenset({"last", "since"})),
    "mlflow": (_mlflow, frozenset({"last", "since"})),
}
"""Each format, and which options it takes."""


@click.command(
    cls=ReadingCommand,
    examples=(
        "export runs/ tuesday -o tuesday.csv",
        "export runs/ tuesday --of facts -o facts.parquet",
        "export runs/ tuesday --last 20 -o trace.json",
        "export runs/ tuesday --to tensorboard -o logs/",
        "export runs/ tuesday --to mlflow -o http://127.0.0.1:5000",
    ),
)
@path_argument
@run_argument
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to; a directory or an address for some.")
@click.option("--to", "form", type=click.Choice(list(_TAKES)), help="The format, where FILE's ending does not say it.")
@click.option("--of", type=click.Choice(_TABLES), help="csv, parquet: which table; forwards if it is left out.")
@click.option("--forward", type=int, multiple=True, metavar="N", help="trace: this one, -1 the last; may be repeated.")
@last_option("forwards")
@since_option
@answering
def export(path: Path, run: str | None, output: str, form: str | None, answer: Answer, **options: Any) -> None:
    """Write a run as a table, as a trace for Perfetto, or to TensorBoard or MLflow.

    What the format cannot hold is said on standard error. FILE is replaced, and only when the new one is whole.

    Price: what the reader of that name reads, for csv and parquet twice, in bounded memory; a trace of the last
    forward, if nothing else is asked for.
    """
    form = form or _format_of(output)
    write, takes = _TAKES[form]
    for option, value in options.items():
        if value not in (None, ()) and option not in takes:
            known = ", ".join(f"--{one}" for one in sorted(takes))
            raise click.UsageError(f"--{option} is not for {form}; it takes {known}")
    with reading(path) as store:
        name = None if options["of"] == "runs" else run_named(store, run)
        done = write(store, name, output, options)
    for sentence in done.left_out:
        say(f"left out: {sentence}")
    answer.done({"path": output, **done.wrote, "left_out": list(done.left_out)}, f"{done.words} to {output}")


def _format_of(output: str) -> str:
    found = next((form for end, form in _BY_END.items() if output.lower().endswith(end)), None)
    if found is None:
        known = ", ".join(f"{end} is {form}" for end, form in _BY_END.items())
        raise click.UsageError(f"the ending of {output} says no format ({known}); say --to")
    return found
