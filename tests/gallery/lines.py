"""Cases of progress: common ones, odd ones, long ones, several runs."""

from __future__ import annotations

import math
import random

from somatize.record.progress_figure import progress_picture
from somatize.record.run_columns import BROKE, INTERRUPTED, LOST, OK, OPEN, Columns, Outside


def columns(count, said, run="tuesday", names=("loss",), states=(), writer_from=(), took=lambda n: 900):
    made = Columns.of(run, names)
    for n in range(count):
        made.forwards.append(n)
        made.states.append(dict(states).get(n, OK))
        us = took(n)
        made.took_us.append(us if made.states[-1] not in (LOST, OPEN) else math.nan)
        made.writers.append(sum(n >= start for start in writer_from))
        for place, series in enumerate(made.series):
            series.append(said(n, place) if made.states[-1] == OK else None)
    return made


def falling(seed=0, rate=0.97):
    rng = random.Random(seed)
    return lambda n, place: repr(2 * rate**n + 0.1 + 0.15 * rng.random() if place == 0 else 1 - rate**n * rng.random())


def jitter(seed=1, first=900):
    rng = random.Random(seed)
    return lambda n: (30_000 if n == 0 and first else 900) * (1 + rng.random() * 0.4)


def progress_common():
    broken = columns(
        250, falling(), states={57: BROKE, 90: LOST, 150: INTERRUPTED, 249: OPEN}, writer_from=(130,), took=jitter()
    )
    broken.whys = {
        57: "ValueError: expected [/s], got <b>red</b> in a long sentence that goes on and on, further than fits"
    }
    for row, text in ((30, "nan"), (33, "inf"), (40, None), (41, "<Tensor shape=(3,)>")):
        if text:
            broken.series[0].put(row, text)
    several = [
        columns(n, falling(n, 0.98), run, ("loss", "accuracy"), {n // 2: BROKE}, took=jitter(n))
        for n, run in ((200, "a"), (140, "b <i>x</i>"), (90, "a run with quite a long name/2026-01-01"))
    ]
    noisy = falling(3, 0.98)
    steps = columns(
        350,
        lambda n, place: [noisy(n, 0), "0.1" if n < 150 else "0.01", str(n // 40)][place],
        names=("loss", "lr", "epoch"),
    )
    return {
        "live, and steps": progress_picture([steps], title="run tuesday", live=True),
        "the tour": progress_picture([columns(40, lambda n, _: repr(2.0 * 0.93**n + 0.1))], title="run tuesday"),
        "broken, resumed, odd": progress_picture([broken], title="run <b>tuesday</b> $x$ %{y}"),
        "three runs": progress_picture(several, title="runs a, b <i>x</i>, a run with quite a long name"),
        "two series": progress_picture([several[0]], title="run a"),
    }


def progress_odd():
    def of(values, **more):
        return progress_picture([columns(len(values), lambda n, _: values[n], **more)], title="run odd")

    spike = columns(
        100_000, falling(rate=0.9999), states=[(n, BROKE) for n in range(500, 90_000, 9_000)], took=jitter()
    )
    spike.series[0].put(77_777, "40.5")
    sparse = [repr(0.5 + n / 400) if n % 10 == 0 else None for n in range(200)]
    empty = Columns.of("empty", ["loss"])
    return {
        "condensed": progress_picture([spike], title="run long"),
        "every tenth": of(sparse),
        "nan 1 nan": of(["nan", "1.0", "nan"]),
        "one": of(["0.25"]),
        "constant": of(["3.0"] * 50),
        "all NaN": of(["nan"] * 20),
        "text": of(["well", "better"] * 5),
        "far apart": of(["1e-300", "1e300"]),
        "huge": of(["-1.7e308", "1.7e308", "0.0"]),
        "all broke": of([None] * 30, states=[(n, BROKE) for n in range(30)]),
        "empty": progress_picture([empty], title="run empty"),
    }


def progress_long():
    """What a run of days looks like, or one that goes badly."""
    rng = random.Random(3)
    million = columns(
        1_000_000,
        lambda n, _: repr(math.exp(-n / 2e5) + rng.random() / 8) if n != 777_777 else "40.0",
        states={n: BROKE if n % 40_000 else LOST for n in range(20_000, 1_000_000, 20_000)},
        took=lambda n: 900 + 200 * rng.random(),
    )
    million.series[0].put(5, "nan")
    lost = columns(60, falling(), states={n: LOST for n in range(60) if n % 7 == 3}, writer_from=range(4, 60, 7))
    before = columns(4, lambda n, _: None, states=dict.fromkeys(range(4), BROKE), took=lambda n: 300.0)
    before.whys = dict.fromkeys(range(4), "RuntimeError: CUDA out of memory")
    at_once = columns(120, falling(4, 0.98), took=jitter(first=0))
    for n in range(60, 120):
        at_once.writers[n] = n % 2
    spread = columns(240, falling(2, 0.98), took=lambda n: 10 ** (n / 25))
    hours = columns(30, falling(2, 0.9), took=lambda n: 3.6e9 * (1 + 0.3 * rng.random()))
    minutes = columns(30, falling(2, 0.9), took=lambda n: 9e7 * (1 + 0.3 * rng.random()))
    brief = columns(30, falling(2, 0.9), took=lambda n: rng.randrange(1, 4))
    return {
        "a million": progress_picture([million], title="run long"),
        "lost forwards": progress_picture([lost], title="run that was killed a few times"),
        "broken before the first loss": progress_picture([before], title="run no luck"),
        "two writers at once": progress_picture([at_once], title="run shared"),
        "took from 1 µs to 1 h": progress_picture([spread], title="run slower and slower"),
        "hours": progress_picture([hours], title="run of hours"),
        "minutes": progress_picture([minutes], title="run of minutes"),
        "microseconds": progress_picture([brief], title="run of microseconds"),
    }


NAMES = (
    "a run with a name that somebody's script made of everything it knew: lr=0.001,batch=64,seed=3,host=node-17",
    "<img src=x onerror=alert(1)> & $\\frac{a}{b}$ %{y}",
    "🚀 Überlauf 実験 三",
    "ריצה אחת",
    "c",
    "d",
    "e",
    "f",
)


def progress_names():
    """Several runs, several facts, and what people call them."""
    names = ("loss", "lr", "throughput.samples_per_s", "eval/accuracy.top<sub>5</sub>", "grad_norm")
    facts = columns(300, falling(), names=())
    facts.series = Columns.of("", names).series
    rng = random.Random(8)
    for n in range(300):
        loss = 2 * 0.98**n + 0.1 * rng.random()
        for series, value in zip(
            facts.series,
            (loss, 1e-3 * 0.99**n, 12_000 + 900 * rng.random(), 1 - loss / 3, 10 ** rng.gauss(0, 2)),
            strict=True,
        ):
            series.append(repr(value) if series.name != "eval/accuracy.top<sub>5</sub>" or n % 25 == 24 else None)
    eight = [
        columns(60 + 40 * n, falling(n, 0.97 + n / 400), name, states={50: BROKE} if n == 2 else (), took=jitter(n))
        for n, name in enumerate(NAMES)
    ]
    odd = columns(80, falling(3), NAMES[1], names=(NAMES[1], "ה" * 9, "😀 " + "x" * 70), took=jitter())
    odd.whys = {}
    unlike = [columns(1, falling(), "short"), columns(90, falling(), "long"), columns(0, falling(), "empty")]
    return {
        "several facts": progress_picture([facts], title="run tuesday"),
        "eight runs": progress_picture(eight, title="runs " + ", ".join(NAMES[:4]) + " and 4 more"),
        "odd names": progress_picture([odd], title=f"run {NAMES[1]}"),
        "long name": progress_picture([columns(40, falling(), NAMES[0])], title=f"run {NAMES[0]}"),
        "right to left": progress_picture([columns(40, falling(), NAMES[3])], title=f"run {NAMES[3]}"),
        "runs of unlike length": progress_picture(unlike, title="runs short, long, empty"),
        "nothing anywhere": progress_picture(
            [columns(0, falling(), "a"), columns(0, falling(), "b")], title="runs a, b"
        ),
    }


def progress_many():
    """Streams outside of forwards, and more runs than there are colours."""
    rate = "throughput.samples_per_s"
    rng = random.Random(9)
    outside = Outside([rate])
    for writer in range(2):
        for stream, size in (("load", 40), ("<b>valid</b>", 15)):
            for batches in range(5, 5 * size, 5):
                said = {"fact": "throughput", "stream": stream, "batches": str(batches)}
                outside.take(writer, said | {"samples_per_s": repr(9000 + 900 * size * rng.random())})
    alone, beside = columns(0, falling(), names=()), columns(200, falling(5, 0.98), took=jitter(5))
    for one in (alone, beside):
        outside.fill(one)
    sweep = [columns(80, falling(n, 0.9 + n / 700), f"run {n}", took=jitter(n)) for n in range(60)]
    return {
        "streams alone": progress_picture([alone], title="run without a forward"),
        "streams beside forwards": progress_picture([beside], title="run with both"),
        "sixty runs": progress_picture(sweep, title="runs 0, 1, 2, 3 and 56 more"),
    }


def progress_values():
    """Numbers that test an axis."""
    rng = random.Random(6)

    def of(values, **more):
        return progress_picture([columns(len(values), lambda n, _: values[n], **more)], title="run odd")

    near = [repr(1e9 + rng.random()) for _ in range(60)]
    alone = [repr(1 + n / 50) if n % 3 != 1 else None for n in range(30)] + [None, "3.5", None] + ["nan", "4", "inf"]
    outlier = [repr(0.5 + rng.random() / 5) if n != 20 else "9000.0" for n in range(60)]
    return {
        "near 1e9": of(near),
        "alone between gaps": of(alone),
        "an outlier": of(outlier),
        "negative": of([repr(-(2.0**n)) for n in range(20)]),
        "both signs": of([repr(rng.gauss(0, 1e-7)) for _ in range(80)]),
        "subnormal": of(["5e-324"] * 5 + ["1e-320"] * 5),
        "a huge int": of([str(10**30 + n * 10**28) for n in range(20)]),
        "true and false": of(["True", "False"] * 10),
        "whole numbers": of([str(n % 5) for n in range(40)]),
        "zero": of(["0.0"] * 12),
        "one, broken": of([None], states={0: BROKE}),
        "two": of(["1.0", "0.5"]),
        "inf only": of(["inf", "-inf", "nan"]),
    }
