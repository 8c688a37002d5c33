"""The `somatize` command, which reads, watches, exports and maintains stores.

`command` is the group; the module of a subcommand is imported when it is called. They share `arguments` (the PATH of a
store, a RUN), `answers` (rows as a table, JSON or CSV) and `exit_codes` (errors as sentences).
"""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    import os
    import sys

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started this process
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115

    from .command import somatize

    somatize(prog_name="somatize")
