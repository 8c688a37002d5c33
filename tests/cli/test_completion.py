"""A shell completes commands, options, paths and the names of runs: asked in a real bash, as it asks."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from somatize import Graph, Recorder, Store, node
from somatize.cli.command import somatize
from tests.cli.conftest import NAMES, call
from tests.cli.terminals import ENVIRONMENT
from tests.programs import program

ASKED = """
compopt() {{ echo "compopt $*"; }}
somatize() {{ {python} -m somatize "$@"; }}
{source}
complete -p somatize
for line in {lines}; do
    COMP_LINE=$line COMP_POINT=${{#line}} COMPREPLY=()
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _somatize_completion {program}
    echo "$line -> ${{COMPREPLY[*]}}"
done
"""


def completed(tmp_path: Path, *lines: str) -> dict[str, str]:
    command = tmp_path / "somatize"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m somatize "$@"\n')
    command.chmod(0o755)
    script = ASKED.format(
        python=sys.executable,
        source=call("completion", "bash").stdout,
        lines=" ".join(map(shlex.quote, lines)),
        program=command,
    )
    done = subprocess.run(
        [program("bash"), "-c", script], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, cwd="/"
    )
    assert done.stderr == ""
    first, *rest = done.stdout.splitlines()
    assert first == "complete -o nosort -F _somatize_completion somatize"
    return dict(line.split(" -> ") for line in rest if " -> " in line) | {
        "options": "; ".join(line for line in rest if " -> " not in line)
    }


def test_bash_completes_what_is_typed(recorded, tmp_path):
    lines = [
        "somatize forw",
        f"somatize forwards {recorded} st",
        f"somatize curve {recorded} sweep/l",
        f"somatize nodes {recorded} \\[b",
        f"somatize runs {str(recorded)[:-2]}",
    ]
    found = completed(tmp_path, *lines)
    assert [found[line] for line in lines] == [
        "forwards",
        "steady",
        "sweep/lr=0.1\\,wd=1e-4",
        "\\[bold\\]markup\\[/bold\\]",
        "",
    ]
    assert found["options"] == "compopt -o dirnames"


def test_bash_is_given_the_end_of_a_word_that_it_took_apart(recorded, tmp_path):
    line = f"somatize curve {recorded} sweep/lr=0"
    assert completed(tmp_path, line)[line] == "0.1\\,wd=1e-4"


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [
        (["forwards", "PATH"], "", NAMES[::-1]),
        (["kept", "PATH", "--run"], "s", ["sweep/lr=0.1,wd=1e-4", "steady"]),
        (["forwards"], "--st", ["--state"]),
        (["forwards", "PATH", "--state"], "b", ["broke"]),
        (["forwards", "/nothing/here"], "", []),
        ([], "c", ["curve", "compare", "check", "copy", "compact", "completion"]),
    ],
)
def test_what_is_completed(recorded, words, begun, found):
    kind = get_completion_class("zsh")
    typed = [str(recorded) if word == "PATH" else word for word in words]
    items = kind(somatize, {}, "somatize", "_SOMATIZE_COMPLETE").get_completions(typed, begun)
    assert [item.value for item in items] == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell):
    script = call("completion", shell).stdout
    assert f"_SOMATIZE_COMPLETE={shell}_complete" in script
    assert "Invalid value" in call("completion", "cmd", code=2).stderr


def test_a_name_that_no_line_can_hold_is_not_offered(tmp_path):
    graph = Graph.somatize(node(abs))
    with Store(tmp_path / "runs") as store:
        for name in ("plain", "new\nline", "tab\there", "a,b c"):
            with Recorder(store, run=name) as recorder:
                graph.forward(1, watching=recorder)
    kind = get_completion_class("fish")
    items = kind(somatize, {}, "somatize", "_SOMATIZE_COMPLETE").get_completions(["nodes", str(tmp_path / "runs")], "")
    assert [item.value for item in items] == ["a,b c", "plain"]


def test_fish_is_not_made_to_take_a_word_apart_at_its_commas():
    (split,) = (line for line in call("completion", "fish").stdout.splitlines() if "string split" in line)
    assert split.strip() == 'set -l metadata (string split --max 1 "," $completion);'
