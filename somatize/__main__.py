"""``python -m somatize``: the `somatize` command."""

from .cli import main

main()
