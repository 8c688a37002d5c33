"""A graph that learns to read digits, without any library: softmax regression, a batch of images per forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from somatize import Ctx, Graph, Node

from . import PIXELS, Digits

Batch = tuple[list[list[float]], list[int]]
"""Images, and the digit that each shows."""
_CLASSES = 10
_BRIGHTEST = 16.0


class Pick(Node):
    """Numbers of images to the images themselves."""

    def __init__(self, digits: Digits) -> None:
        self._digits = digits

    def forward(self, numbers: Sequence[int], ctx: Ctx) -> Batch:  # noqa: ARG002
        """The images of these numbers."""
        images, labels = self._digits
        last = len(images) - 1
        for number in numbers:
            if not 0 <= number <= last:
                raise IndexError(f"there is no image {number}; the last one is {last}")
        return [images[number] for number in numbers], [labels[number] for number in numbers]


class ScalePixels(Node):
    """Pixels from 0 to 1, and a one beside them for what is there of a digit before anything is seen."""

    def forward(self, batch: Batch, ctx: Ctx) -> Batch:  # noqa: ARG002
        """The same batch, scaled."""
        images, labels = batch
        return [[*(pixel / _BRIGHTEST for pixel in image), 1.0] for image in images], labels


class Learn(Node):
    """A step of softmax regression; it hands on what it held for right before the step."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._weights = [[0.0] * (PIXELS + 1) for _ in range(_CLASSES)]

    def forward(self, batch: Batch, ctx: Ctx) -> tuple[list[int], list[int]]:
        """The predicted and the true digit of each image."""
        images, labels = batch
        odds = [self._odds(image) for image in images]
        missed = -sum(math.log(one[label]) for one, label in zip(odds, labels, strict=True))
        ctx.tell({"fact": "loss", "value": missed / len(labels)})
        self._step(images, labels, odds)
        return [max(range(_CLASSES), key=one.__getitem__) for one in odds], labels

    def reads(self, image: list[float]) -> int:
        """The predicted digit of a scaled image."""
        odds = self._odds(image)
        return max(range(_CLASSES), key=odds.__getitem__)

    def _odds(self, image: list[float]) -> list[float]:
        scores = [sum(map(mul, weights, image)) for weights in self._weights]
        highest = max(scores)
        powers = [math.exp(score - highest) for score in scores]
        total = sum(powers)
        return [max(power / total, 1e-12) for power in powers]

    def _step(self, images: list[list[float]], labels: list[int], odds: list[list[float]]) -> None:
        columns = list(zip(*images, strict=True))
        size = self.rate / len(images)
        for digit, weights in enumerate(self._weights):
            wrong = [one[digit] - (label == digit) for one, label in zip(odds, labels, strict=True)]
            self._weights[digit] = [
                weight - size * sum(map(mul, wrong, column)) for weight, column in zip(weights, columns, strict=True)
            ]


class Score(Node):
    """The share of a batch that was read right."""

    def forward(self, read: tuple[list[int], list[int]], ctx: Ctx) -> float:
        """Said as `accuracy`, too."""
        right = sum(map(int.__eq__, *read)) / len(read[1])
        ctx.tell({"fact": "accuracy", "value": right})
        return right


def reader(digits: Digits, learn: Learn) -> Graph:
    """The graph: pick the images, scale them, learn of them, say how well they were read."""
    return Graph.somatize(
        Pick(digits).named("pick") >> ScalePixels().named("scale") >> learn.named("learn") >> Score().named("score")
    )
