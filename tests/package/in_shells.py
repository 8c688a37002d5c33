"""Completion in the shells that a test cannot count on, where zsh and fish are: python tests/package/in_shells.py.

Each is a real shell that is asked to complete a line, and shows what it would put there. A test asks bash.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

from somatize import Graph, Recorder, Store, node

NAMES = ["sweep/lr=0.1,wd=1e-4", "colon:a", "with space", "quo'te", "dol$lar", "訓練", "new\nline"]
TYPED = {  # what is typed, and what stands there once it is completed: fish shows words, zsh quotes them
    "somatize forw": ("forwards", "forwards"),
    "somatize nodes runs sw": ("sweep/lr=0.1,wd=1e-4", "sweep/lr=0.1,wd=1e-4"),
    "somatize nodes runs col": ("colon:a", "colon:a"),
    "somatize nodes runs wi": ("with space", "with\\ space"),
    "somatize nodes runs quo": ("quo'te", "quo\\'te"),
    "somatize nodes runs dol": ("dol$lar", "dol\\$lar"),
    "somatize nodes runs new": ("", "new"),
    "somatize runs ru": ("runs/", "runs/"),
    "somatize forwards runs colon:a --sta": ("--state", "--state"),
}


def recorded(place: Path) -> None:
    graph = Graph.somatize(node(abs))
    with Store(place / "runs") as store:
        for name in NAMES:
            with Recorder(store, run=name) as recorder:
                graph.forward(1, watching=recorder)


def in_fish(place: Path, environment: dict[str, str]) -> None:
    completions = place / "fish" / "completions"
    completions.mkdir(parents=True)
    asked = [sys.executable, "-m", "somatize", "completion", "fish"]
    script = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    (completions / "somatize.fish").write_text(script)
    for line, (word, _) in TYPED.items():
        done = subprocess.run(
            ["fish", "-c", "complete -C $argv[1]", line],
            capture_output=True,
            text=True,
            cwd=place,
            env={**environment, "XDG_CONFIG_HOME": str(place)},
            check=True,
        )
        found = [answer.partition("\t")[0] for answer in done.stdout.splitlines()]
        assert found == [word] * bool(word), (line, done.stdout, done.stderr)


def in_zsh(place: Path, environment: dict[str, str]) -> None:
    (place / ".zshrc").write_text(
        "unsetopt prompt_sp; PS1='> '; autoload -Uz compinit && compinit -u -D\n"
        'eval "$(somatize completion zsh)"\n'
        "show() { print -r -- \"<<$BUFFER>>\"; BUFFER=; zle accept-line }\nzle -N show\nbindkey '^X' show\n"
    )
    shell, master = pty.fork()
    if shell == 0:
        os.chdir(place)
        os.execvpe("zsh", ["zsh", "-i"], {**environment, "ZDOTDIR": str(place), "TERM": "dumb"})
    for line, (_, word) in TYPED.items():
        os.write(master, f"{line}\t\x18".encode())
        seen = ""
        while ">>" not in seen:
            seen += os.read(master, 65536).decode("utf-8", "replace")
        shown = seen.rpartition("<<")[2].partition(">>")[0].rstrip()
        assert shown == line[: line.rindex(" ") + 1] + word, (line, seen)
    os.write(master, b"exit\n")
    os.waitpid(shell, 0)


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        recorded(place)
        bin_ = place / "bin"
        bin_.mkdir()
        (bin_ / "somatize").write_text(f'#!/bin/sh\nexec {sys.executable} -m somatize "$@"\n')
        (bin_ / "somatize").chmod(0o755)
        environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        in_fish(place, environment)
        print("fish: ok")
        in_zsh(place, environment)
        print("zsh: ok")


if __name__ == "__main__":
    main()
