"""Cases of spent, timeline and machines."""

from __future__ import annotations

import random

from somatize.record.figures import spent_picture, timeline_picture
from somatize.record.hosts import machines_picture
from somatize.record.node_turns import OneForward, Total, turns_of
from somatize.store.node_tally import Spent, Where


def told(fact, **fields):
    return {"fact": fact, **{name: str(value) for name, value in fields.items()}}


def where_time_went():
    cpu, w1, gpu = Where(), Where("w1", ""), Where("w1", "cuda:0")
    rows = [
        Spent("encode <b>", {(gpu, "ran"): (200, 4_100_000), (gpu, "failed"): (2, 90_000)}),
        Spent("load", {(cpu, "ran"): (180, 1_300_000), (cpu, "recalled"): (20, 40_000)}),
        Spent("a_node_with_a_really_long_name_here", {(w1, "ran"): (200, 700_000), (cpu, "ran"): (10, 300_000)}),
        Spent("score", {(cpu, "ran"): (198, 1_200)}),
    ]
    many = [Spent(f"step_{n}", {(cpu, "ran"): (1, 90_000 // (n + 1))}) for n in range(1000)]
    slices = turns_of(
        [
            told("ran", node="load", began_us=0, took_us=1200, device="cpu"),
            told("ran", node="enc", began_us=10, took_us=3000, host="w1", device="cuda:0"),
            told("recalled", node="dec", took_us=400, bytes=10, host="w1"),
            told("failed", node="head", began_us=3500, took_us=900, host="w1", why="ValueError: <b>"),
            told("left", host="w1", began_us=1300, took_us=7000),
            told("ran", node="<b>score</b> with a very long name", began_us=1250, took_us=6000),
        ]
    )
    rng = random.Random(5)
    packed = turns_of([told("ran", node=f"n{n}", began_us=n * 30, took_us=rng.randrange(20, 900)) for n in range(300)])
    return {
        "spent": spent_picture(Total("tuesday", 200, 6_600_000, rows)),
        "a thousand nodes": spent_picture(Total("wide", 1, 700_000, many), last=1),
        "nothing spent": spent_picture(Total("empty", 0, 0, [])),
        "slices": timeline_picture(OneForward("x", 3, "broke", 8400.0, "ValueError: <b>", slices)),
        "packed": timeline_picture(OneForward("x", 12, "ok", 9900.0, "", packed)),
        "no turns": timeline_picture(OneForward("x", 0, "lost", None, "", [])),
    }


def time_more():
    """Spent, timeline and machines at their ends."""
    cpu = Where()
    one = [Spent("only", {(cpu, "ran"): (1, 12)})]
    same = [Spent(f"worker_{n}", {(Where(f"host-{n % 8}", ""), "ran"): (10, 5_000 + n)}) for n in range(12)]
    slow = [Spent("train", {(cpu, "ran"): (3, 4 * 3_600_000_000)}), Spent("save", {(cpu, "ran"): (3, 900)})]
    long = "a_node_whose_name_says_all_there_is_to_know_<b>about</b>_it"
    wide = [Spent(long, {(Where("gpu-node-17.cluster", "cuda:3"), "ran"): (1_234_567, 9_876_543_210)})]
    only_failed = [Spent("load", {(cpu, "failed"): (20, 4_000)})]
    everything = [
        Spent(
            f"{word}_node_of_mixed_fate",
            {(cpu, "ran"): (1200, 900_000), (cpu, "recalled"): (300, 40_000), (cpu, "failed"): (17, 90_000)},
        )
        for word in ("first", "second")
    ]
    hosts = [
        {"host": host, "slices": n * 12, "trip": n * 900_000, "ran": 700_000 * (n + 1), "waiting": n * 150_000}
        | {
            "failures": n,
            "workers": n,
            "busy": 0.8 * n or None,
            "memory": 0.42 if n else None,
            "cores": 16 if n else None,
        }
        for n, host in enumerate(["here", "w1", "a-host-with-a-really-long-name.example", "<b>w3</b>"])
    ]
    alone = [hosts[0]]
    broke = turns_of(
        [
            told("ran", node="load", began_us=0, took_us=90_000),
            told("ran", node="left", began_us=90_000, took_us=500_000),
            told("ran", node="right", began_us=90_500, took_us=300_000),
            told("failed", node="join", began_us=600_000, took_us=10, why="ZeroDivisionError: division by zero"),
        ]
    )
    short = turns_of([told("ran", node="a", began_us=0, took_us=0), told("ran", node="b", began_us=1, took_us=1)])
    cached = turns_of([told("recalled", node=f"n{n}", bytes=9, took_us=30) for n in range(4)])
    mapped = turns_of(
        [
            told("ran", node="load", began_us=0, took_us=2_000),
            told("items", node="encode", items=900, ran=30, recalled=869, failed=1),
            told("ran", node="encode", began_us=2_000, took_us=60_000_000),
        ]
    )
    sixty = turns_of([told("ran", node=f"layer_{n:02}", began_us=n * 30, took_us=30) for n in range(60)])
    return {
        "one node": spent_picture(Total("tuesday", 1, 20, one)),
        "places beyond hues": spent_picture(Total("tuesday", 10, 90_000, same)),
        "hours": spent_picture(Total("tuesday", 3, 4 * 3_600_000_000, slow)),
        "wide words": spent_picture(Total("a run " * 12, 1_234_567, 9_999_999_999, wide)),
        "only failed": spent_picture(Total("tuesday", 20, 9_000, only_failed)),
        "every fate": spent_picture(Total("tuesday", 1517, 2_400_000, everything), last=1517),
        "machines": machines_picture("tuesday", hosts),
        "no machines": machines_picture("tuesday", alone),
        "machines, nothing ran": machines_picture("t", [dict(hosts[0], ran=0)]),
        "broke": timeline_picture(OneForward("x", 3, "broke", 600_500.0, "ZeroDivisionError: division by zero", broke)),
        "no time": timeline_picture(OneForward("x", 0, "ok", 2.0, "", short)),
        "recalled": timeline_picture(OneForward("x", 0, "ok", 400.0, "", cached)),
        "still going": timeline_picture(OneForward("x", 0, "open", None, "", broke[:2])),
        "interrupted": timeline_picture(OneForward("x", 0, "interrupted", 9e5, "KeyboardInterrupt: ", broke[:2])),
        "mapped": timeline_picture(OneForward("x", 0, "ok", 60_100_000.0, "", mapped)),
        "sixty rows": timeline_picture(OneForward("x", 0, "ok", 1900.0, "", sixty)),
    }
