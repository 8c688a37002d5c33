"""The `somatize` command: its subcommands, each imported when it is called, and shell completion."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
    get_completion_class,
)

from .arguments import ReadingCommand
from .exit_codes import BUG, CLOSED, CODES, INTERRUPTED, refusals, say

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Reading": {
        "runs": ("run_commands", "The runs of a store."),
        "forwards": ("run_commands", "The forwards of a run: how each ended, and what it took."),
        "curve": ("view_commands", "A number that was said, over the forwards of a run."),
        "facts": ("fact_commands", "The facts of one forward."),
        "nodes": ("fact_commands", "The time that each node of a run took."),
        "about": ("run_commands", "The metadata of a run: command, commit, versions, how it ended."),
        "best": ("run_commands", "The run with the largest or smallest value of a number."),
        "compare": ("run_commands", "The differences between runs."),
        "logs": ("fact_commands", "The log records of a run."),
        "tasks": ("fact_commands", "The tasks of a run: open, finished, failed, lost."),
        "throughput": ("fact_commands", "The throughput of the streams of a run."),
        "fleet": ("fact_commands", "The work of each host for a run."),
        "kept": ("store_commands", "The results that a store keeps."),
    },
    "Looking": {
        "watch": ("view_commands", "A live view of a run that is being recorded."),
        "page": ("view_commands", "A run as one page that opens in any browser."),
        "graph": ("view_commands", "The graph of a run, with the time and the ends of each node."),
        "sweep": ("view_commands", "A number of many runs over the configuration keys that differ."),
        "demo": ("demo", "A small run from start to end, to see what there is."),
    },
    "To other tools": {
        "export": ("view_commands", "A run as CSV, Parquet or a trace, or to TensorBoard or MLflow."),
    },
    "Keeping house": {
        "check": ("store_commands", "Check that a store is undamaged."),
        "forget": ("store_commands", "Take runs away, with all that was recorded in them."),
        "rename": ("store_commands", "Give a run another name."),
        "tag": ("store_commands", "Put tags on a run, or take them off."),
        "note": ("store_commands", "Write a note about a run."),
        "prune": ("store_commands", "Take kept results away; records stay."),
        "copy": ("store_commands", "Copy a store, also while it is written to."),
        "compact": ("store_commands", "Give the space of what went back to the disk."),
    },
    "This command": {
        "completion": ("command", "A script for shell completion."),
    },
}
"""The subcommands as `--help` lists them, each with its module and its line there."""

_ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Commands(click.Group):
    """A group that imports a subcommand when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Every name, in the order of the sections."""
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The subcommand of a name; imported here."""
        entry = _ENTRIES.get(cmd_name)
        if entry is None:
            return None
        found = getattr(import_module(f".{entry[0]}", __package__), cmd_name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that the first word names; the error for an unknown one suggests the most similar."""
        if args and args[0] not in _ENTRIES and not args[0].startswith("-") and not ctx.resilient_parsing:
            close = get_close_matches(args[0], _ENTRIES, n=1, cutoff=0.5)
            near = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the subcommands by section, without importing them."""
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, says) for name, (_, says) in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The subcommands that begin with `incomplete`, without importing them; otherwise options."""
        found = [CompletionItem(name, help=says) for name, (_, says) in _ENTRIES.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; an error ends it with a sentence and an exit code."""
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            with refusals():
                answer = super().invoke(ctx)
                sys.stdout.flush()
                return answer
        except BrokenPipeError:
            _let_go_of_output()
            ctx.exit(CLOSED)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit):
            try:
                sys.stdout.flush()
            except OSError:  # reported already
                _let_go_of_output()
            raise
        except Exception:
            traceback.print_exc()
            say("this is a mistake of somatize itself; please report it with the lines above")
            ctx.exit(BUG)


def _let_go_of_output() -> None:
    """Discard buffered output: writing it at the end of the process would fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:<4} {says}" for code, says in CODES)


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="somatize", message="somatize %(version)s")
def somatize() -> None:
    """Read, watch and maintain what somatize recorded.

    PATH is the directory that was given to Store(...). RUN is the name of a run in it, and may be left out where
    there is only one; -- goes before a name that begins with a dash.

    Every answer is a table that fits the terminal, or with --json or --csv the values as the readers give them. What
    only reads changes nothing in PATH. To begin with, try somatize demo.
    """


VARIABLE = "_SOMATIZE_COMPLETE"
"""The environment variable by which a shell requests completions instead of running the command."""

_SHELLS = ("bash", "zsh", "fish")

# Click's script for bash fails for names of runs: bash splits words at each "=" and ":", and inserts a completion
# without quoting it. This one passes the line as typed, and returns the quoted rest after the last such character.
_BASH = r"""%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} cur=${COMP_WORDS[COMP_CWORD]} answer type value word before
    answer=$(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
    while IFS=$'\x1f' read -r type word value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                if [[ $cur != [\"\']* ]]; then
                    value=$(printf %%q "$value")
                    before=${word%%"${word##*[=:]}"}
                    [[ $before ]] && value=${value#"$(printf %%q "$before")"}
                fi
                COMPREPLY+=("$value") ;;
        esac
    done <<< "$answer"
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completion for bash, from the line as typed."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The complete words before the one that is being typed, and that one."""
        from click.shell_completion import split_arg_string  # type: ignore[attr-defined,unused-ignore]

        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        begun = words.pop() if not line[-1:].isspace() or line.endswith("\\ ") else ""
        self._begun = begun
        return words[1:], begun

    def format_completion(self, item: click.shell_completion.CompletionItem) -> str:  # type: ignore[type-arg,unused-ignore]
        """A line: the type, the word as far as it was typed, the completed word."""
        return f"{item.type}\x1f{self._begun}\x1f{item.value}"


class Fish(FishComplete):
    """Completion for fish; click's script cuts a completion at its first comma, which names of runs may have."""

    source_template = FishComplete.source_template.replace('string split "," ', 'string split --max 1 "," ')


add_completion_class(Bash)
add_completion_class(Fish)


@click.command(
    cls=ReadingCommand,
    lines=(
        "echo 'eval \"$(somatize completion bash)\"' >> ~/.bashrc",
        "echo 'eval \"$(somatize completion zsh)\"' >> ~/.zshrc",
        "somatize completion fish > ~/.config/fish/completions/somatize.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script with which a shell completes commands, options, paths, and the names of runs.

    Bash needs to be 4.4 or newer. Open a new shell afterwards.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(somatize, {}, "somatize", VARIABLE).source())
