"""``somatize demo``: a small run from start to end, with a softmax regression in plain Python."""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Sequence
from operator import mul
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from somatize import Ctx, Graph, Node

from . import answers
from .answers import TextColumn, print_table
from .arguments import ReadingCommand
from .digits import PIXELS, Digits

if TYPE_CHECKING:
    from somatize.store.store import Store


Batch = tuple[list[list[float]], list[int]]
"""Images and their digits."""
_CLASSES = 10
_BRIGHTEST = 16.0


class Pick(Node):
    """Maps numbers of images to the images and their digits."""

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
    """Scales pixels to 0..1, and appends a constant one for the bias."""

    def forward(self, batch: Batch, ctx: Ctx) -> Batch:  # noqa: ARG002
        """The same batch, scaled."""
        images, labels = batch
        return [[*(pixel / _BRIGHTEST for pixel in image), 1.0] for image in images], labels


class Learn(Node):
    """A step of softmax regression; returns the predictions of before the step."""

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
    """The share of a batch that was predicted correctly."""

    def forward(self, read: tuple[list[int], list[int]], ctx: Ctx) -> float:
        """The accuracy of the batch, also told as the fact `accuracy`."""
        right = sum(map(int.__eq__, *read)) / len(read[1])
        ctx.tell({"fact": "accuracy", "value": right})
        return right


def reader(digits: Digits, learn: Learn) -> Graph:
    """The graph of the demo: pick images, scale them, learn from them, score the predictions."""
    return Graph.somatize(
        Pick(digits).named("pick") >> ScalePixels().named("scale") >> learn.named("learn") >> Score().named("score")
    )


_BATCH = 60
_RATE = 0.5


@click.command(cls=ReadingCommand, examples=("demo", "demo --to runs/", "demo --to runs/ --epochs 500"))
@click.option("--to", type=click.Path(path_type=Path), help="The store to record to, instead of a temporary one.")
@click.option(
    "--epochs", type=click.IntRange(min=1), default=20, show_default=True, help="How often all is gone through."
)
def demo(to: Path | None, epochs: int) -> None:
    """Learn to read 1,797 handwritten digits, in plain Python: watched here, recorded, and read back.

    It takes a few seconds and needs no extra. What it recorded stays, and it says where; with more --epochs there is
    time for a look at `somatize watch` in another terminal.
    """
    from somatize.store.store import Store

    place = to if to is not None else Path(tempfile.mkdtemp(prefix="somatize-")) / "runs"
    with Store(place) as store:
        run = _free_name(store)
        click.echo(f"Learning to read handwritten digits: 1,437 of them, {epochs} times over.")
        click.echo(f"Recorded in {place} as run {run!r}.")
        if sys.stdout.isatty():
            click.echo(f"In another terminal: somatize watch {quote(str(place))}")
        click.echo("")
        right, of = _learn(store, run, epochs)
        _tell(store, run, right / of, of)
        _name_next(place, run)


def _free_name(store: Store) -> str:
    from .arguments import names_of

    taken = set(names_of(store))
    return next(name for name in ("digits", *(f"digits-{n}" for n in range(2, len(taken) + 3))) if name not in taken)


def _learn(store: Store, run: str, epochs: int) -> tuple[int, int]:
    """Record the run; return how many images of the test set it predicts correctly, and how many there are."""
    from somatize.record import Recorder
    from somatize.status import Status

    from . import digits

    known = digits.load()
    learn = Learn(_RATE)
    graph = reader(known, learn)
    numbers = list(range(digits.IMAGES - digits.TESTED))
    chance = random.Random(0)  # noqa: S311  the order of images, the same each time
    about = {"rate": _RATE, "batch": _BATCH, "epochs": epochs}
    with Recorder(store, run, summarising=["loss", "accuracy"], config=about) as recorder:
        with Status(watching=[recorder]) as status, status.display():
            for _ in status.track(range(epochs), "epochs"):
                chance.shuffle(numbers)
                for first in range(0, len(numbers), _BATCH):
                    graph.forward(numbers[first : first + _BATCH], watching=recorder)
        _fail(graph, recorder)
    return _tested(known, learn), digits.TESTED


def _fail(graph: Any, recorder: Any) -> None:
    """Run a forward that breaks on purpose, to have an error on record."""
    from . import digits

    try:
        graph.forward([0, 1, digits.IMAGES], watching=recorder)
    except IndexError:
        return


def _tested(known: Any, learn: Learn) -> int:
    from . import digits

    rest = zip(known.images[-digits.TESTED :], known.labels[-digits.TESTED :], strict=True)
    return sum(learn.reads([*(pixel / 16 for pixel in image), 1.0]) == label for image, label in rest)


def _tell(store: Store, run: str, right: float, of: int) -> None:
    """Print a summary of the run from the readers."""
    from somatize import record

    (row,) = [row for row in record.runs(store) if row["run"] == run]
    points = record.curve(store, run)
    broke = record.facts(store, run)[-1]["why"]
    click.echo(f"{row['forwards']:,} forwards in {answers.took(row['took_us'])}.")
    click.echo(f"The loss fell from {points[0][1]:.2f} to {points[-1][1]:.2f}.")
    click.echo(f"Of {of} digits it had never seen, it reads {answers.share(right)}.")
    click.echo(f"The last forward was given an image that is not there, and broke:\n  {broke}")
    click.echo("\nWhere the time went:\n")
    columns = [
        TextColumn("node", lambda node: node["node"], 0, right=False),
        TextColumn("took", lambda node: answers.took(node["took_us"]), 1),
        TextColumn("mean", lambda node: answers.took(node["mean_us"]), 2),
        TextColumn("ran", lambda node: answers.count(node["ran"]), 3),
        TextColumn("failed", lambda node: answers.count(node["failed"]), 4),
    ]
    print_table(record.nodes(store, run), columns)


def _name_next(place: Path, run: str) -> None:
    there = quote(str(place))
    click.echo("\nWhat to look at next:\n")
    for command, says in (
        (f"runs {there}", "what there is"),
        (f"forwards {there} {run}", "how each forward ended, the broken one last"),
        (f"curve {there} {run}", "the loss, drawn"),
        (f"facts {there} {run}", "all that was told of the one that broke"),
        (f"watch {there}", f"a run while it goes on; begin one: somatize demo --to {there} --epochs 500"),
        (f"page {there} {run} -o page.html", "the run as a page for a browser"),
    ):
        click.echo(f"  somatize {command}\n      {says}")
