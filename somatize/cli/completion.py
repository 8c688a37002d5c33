"""``somatize completion``: what a shell needs to complete commands, options, paths and the names of runs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .arguments import Reader

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Reader,
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
    click.echo(kind(somatize, {}, "somatize", "_SOMATIZE_COMPLETE").source())
