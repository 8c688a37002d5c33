"""``somatize completion``: what a shell needs to complete commands, options, paths and the names of runs."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, FishComplete, add_completion_class, get_completion_class

from .arguments import ReadingCommand

VARIABLE = "_SOMATIZE_COMPLETE"
"""The variable by which a shell asks for completions; the command then does nothing else."""

_SHELLS = ("bash", "zsh", "fish")

# Bash takes a word apart at each "=" and ":", of which names of runs are full, and gives back an answer unquoted. So
# it is told the line, and answers with what comes after the last of these letters, quoted.
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
    """Bash, told the line as it was typed."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the one that is being typed, and that."""
        from click.shell_completion import split_arg_string  # type: ignore[attr-defined,unused-ignore]

        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        begun = words.pop() if not line[-1:].isspace() or line.endswith("\\ ") else ""
        self._begun = begun
        return words[1:], begun

    def format_completion(self, item: click.shell_completion.CompletionItem) -> str:  # type: ignore[type-arg,unused-ignore]
        """A line: its type, the word as far as it was typed, the word."""
        return f"{item.type}\x1f{self._begun}\x1f{item.value}"


class Fish(FishComplete):
    """Fish, told the whole of a word that has a comma in it, as names of runs have."""

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
    """Print what makes a shell complete commands, options, paths, and the names of the runs of PATH.

    Bash needs to be 4.4 or newer. Open a new shell afterwards.
    """
    from .command import somatize

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(somatize, {}, "somatize", VARIABLE).source())
