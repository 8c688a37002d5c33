"""Handwritten digits, and a graph that learns to read them in plain Python: what `somatize demo` runs.

``SOURCE.txt`` says where the images come from and under which licence they are here.
"""

from __future__ import annotations

import zlib
from importlib.resources import files
from typing import NamedTuple

PIXELS = 64
IMAGES = 1797
TESTED = 360
"""The number of images, the last ones, that are kept from training."""


class Digits(NamedTuple):
    """Images as rows of 64 pixels from 0 to 16, and the digit that each shows."""

    images: list[list[float]]
    labels: list[int]


def load() -> Digits:
    """All images, in the order of their source."""
    held = zlib.decompress((files(__package__) / "digits.zlib").read_bytes())
    labels, pixels = held[:IMAGES], held[IMAGES:]
    images = [list(map(float, pixels[at : at + PIXELS])) for at in range(0, len(pixels), PIXELS)]
    return Digits(images, list(labels))
