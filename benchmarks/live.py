"""What a Live costs the forwards it watches, measured in a real kernel with the figure on display.

- a fact, told by the engine or said by hand, between two redraws;
- forwards of 1 ms, which keep Python busy all the time: what being told costs, in short turns with and without a Live
  that nobody sees, and what all other threads take while one is being drawn, since they keep the forwards waiting. Both
  are processor time, as the clock on the wall also counts what else the machine does;
- what a million forwards take of memory, and how long their figure takes to make.

    python benchmarks/live.py [forwards, 20000] [forwards the Live has already, 0] [facts,shown,million]
"""

from __future__ import annotations

import sys

from jupyter_client.manager import KernelManager

SETUP = """
import gc, os, statistics, time
from time import perf_counter as clock
from somatize import Graph, Live
from somatize.record import live_view
live_view.ANSWER = 1e6  # nobody looks here, and no picture is to be made in the middle of a measurement

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
"""

FACTS = """
nodes = 9
graph = Graph()
last = graph.node(lambda value: value)
for _ in range(nodes - 1):
    following = graph.node(lambda value: value)
    graph.edge(last, following)
    last = following

class Nobody:
    def opens(self, graph): return self
    def tell(self, fact): pass
    def closed(self): pass

def per_forward(watcher, forwards=400):
    began = clock()
    for number in range(forwards):
        graph.forward(number, watching=watcher)
    return (clock() - began) / forwards * 1e6

def per_said(live, forwards=2000):
    began = clock()
    for number in range(forwards):
        live({"fact": "loss", "value": 1 / (number + 1)})
    return (clock() - began) / forwards * 1e6

live, nobody = Live(), Nobody()
pairs = [(per_forward(live), per_forward(nobody), per_said(live)) for _ in range(60)]
told = min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)
print(f"a fact told by the engine {told / (nodes + 1):6.2f} us    (at most 3)")
print(f"a fact said by hand       {min(pair[2] for pair in pairs):6.2f} us    (at most 3)")
"""

SHOWN = """
from itertools import repeat

def spin(rounds):
    # Nothing is allocated: else the loop itself runs faster or slower by where in memory others left room.
    for _ in repeat(None, rounds):
        pass

def rounds_of(seconds):
    rounds = 1000
    while True:
        began = clock()
        spin(rounds)
        if clock() - began > seconds:
            return rounds
        rounds = rounds * 5 // 4

rounds = statistics.median(rounds_of(1e-3) for _ in range(9))
graph = Graph.somatize(spin)
live = Live()
display(live)

for number in range(ALREADY):
    sink = live.opens(None)
    sink.tell({"fact": "finished", "took_us": "1000"})
    sink.closed()
    live({"fact": "loss", "value": 1 / (number + 1)})

def block(watcher, forwards):
    began = time.process_time(), time.thread_time(), clock()
    for number in range(forwards):
        graph.forward(rounds, watching=watcher)
        if isinstance(watcher, Live):
            watcher({"fact": "loss", "value": 1 / (number + 1)})
    return time.process_time() - began[0], time.thread_time() - began[1], clock() - began[2]

# What it costs to be told, in short turns, as the machine changes its speed: nothing is drawn meanwhile.
unseen, nobody = Live(), lambda fact: None
turns = [(block(unseen, 50)[1], block(nobody, 50)[1]) for _ in range(120)]
told = statistics.median(with_ / without for with_, without in turns)
print(f"being told                {told:6.3f} times the work of forwards of 1 ms, in {len(turns)} turns of 50")

sent = []
push = live_view.LiveView.draw
def counting(view):
    began = time.thread_time()
    size = push(view)
    if size: sent.append((size, time.thread_time() - began))
    return size
live_view.LiveView.draw = counting
blocks = [block(live, 500) for _ in range(max(2, FORWARDS // 500))]
whole, own, passed = (sum(times) for times in zip(*blocks))
beside = whole / own
print(f"drawing and sending       {beside:6.3f} times the work: all other threads, over {len(live):,} forwards")
print(f"together                  {told * beside:6.3f}    (at most 1.05)")
sizes, spent = zip(*sent)
print(f"drawing alone             {sum(spent) / whole:6.1%} of the processor time, {1e3 * max(spent):.0f} ms at most")
rate, bytes_ = len(sent) / passed, sum(sizes) / passed / 1e3
print(f"redraws {len(sent)}, {rate:.1f} a second, of {max(sizes) / 1e3:.0f} kB at most, {bytes_:.0f} kB a second")
"""

MILLION = """
gc.collect()
before = resident()
live = Live()
for number in range(1_000_000):
    sink = live.opens(None)
    sink.tell({"fact": "ran", "node": "n", "began_us": "1", "took_us": "10"})
    sink.tell({"fact": "finished", "took_us": "12"})
    sink.closed()
    live({"fact": "loss", "value": 1 / (number + 1)})
gc.collect()
print(f"a million forwards        {resident() - before:6.1f} MB    (at most 150)")
began = clock()
live.picture()
print(f"their figure              {clock() - began:6.2f} s, {resident() - before:.1f} MB while and after it is made")
"""


def main(forwards: int, already: int, parts: str) -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        shown_code = SHOWN.replace("FORWARDS", str(forwards)).replace("ALREADY", str(already))
        asked = {"facts": FACTS, "shown": shown_code, "million": MILLION}
        for code in (SETUP, *(asked[part] for part in parts.split(","))):
            answer = client.execute_interactive(code, timeout=600, output_hook=shown)
            assert answer["content"]["status"] == "ok", answer["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def shown(message: dict[str, object]) -> None:
    if message["msg_type"] == "stream":
        print(message["content"]["text"], end="", flush=True)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(int(given.get(1, 20_000)), int(given.get(2, 0)), given.get(3, "facts,shown,million"))
