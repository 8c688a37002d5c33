"""A Live in a real kernel: what goes over the wire while a cell runs, when it ends, and after it is closed."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from typing import Any

import pytest

from tests.programs import program

VIEW = "application/vnd.jupyter.widget-view+json"
MOST_BYTES = 200_000

SETUP = """
import threading, time
from somatize import Graph, Live
from somatize.record import live_view
live_view.ANSWER = 600
def step(value):
    if isinstance(value, Exception):
        raise value
    time.sleep(pause)
    return value
pause = 0.005
graph = Graph.somatize(step)
def run(live, count, first=0):
    for number in range(first, first + count):
        graph.forward(number, watching=live)
        live({"fact": "loss", "value": 1 / (number + 1)})
"""


def redraws(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages by which a figure in the page changes."""
    return [
        message
        for message in messages
        if message["msg_type"] == "comm_msg" and "pushed" in message["content"]["data"].get("state", {})
    ]


def size(message: dict[str, Any]) -> int:
    """Bytes of a message on the wire, about."""
    buffers = sum(len(bytes(buffer)) for buffer in message.get("buffers", []))
    return len(json.dumps(message["content"])) + buffers


def outputs(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message["msg_type"] in ("display_data", "update_display_data")]


def counted(message: dict[str, Any]) -> int:
    """How many forwards a redraw says there are."""
    layout = json.loads(message["content"]["data"]["state"]["layout_text"])
    return int(layout["title"]["subtitle"]["text"].split()[0].replace(",", ""))


@pytest.fixture(autouse=True)
def ready(kernel: Any) -> None:
    kernel.run(SETUP)


def test_it_is_redrawn_while_the_cell_runs(kernel: Any) -> None:
    began = time.monotonic()
    messages = kernel.run("live = Live('a run')\ndisplay(live)\nrun(live, 300)")
    took = time.monotonic() - began
    drawn = redraws(messages)
    assert 3 <= len(drawn) <= took * 10 + 2
    assert all(size(message) <= MOST_BYTES for message in drawn)
    assert counted(drawn[0]) < 300
    assert counted(drawn[-1]) == 300
    assert [message["msg_type"] for message in outputs(messages)][:1] == ["display_data"]


def test_only_what_changed_is_sent(kernel: Any) -> None:
    kernel.run("live = Live()\ndisplay(live)\nrun(live, 10)")
    (drawn,) = redraws(kernel.run("live({'fact': 'loss', 'value': 7.5})"))[-1:]
    sent = {name for name in drawn["content"]["data"]["state"] if name.endswith("_text")}
    assert "trace_0_text" in sent
    assert "trace_2_text" not in sent  # how long forwards took has not changed
    assert not redraws(kernel.run("live({'fact': 'other', 'value': 1})\nlive({'fact': 'loss', 'value': 7.5})"))


def test_the_last_state_is_drawn_after_an_exception(kernel: Any) -> None:
    kernel.run("live = Live()\ndisplay(live)")
    messages = list(kernel.start("run(live, 50)\ngraph.forward(ValueError('no'), watching=live)"))
    assert any(message["msg_type"] == "error" for message in messages)
    assert counted(redraws(messages)[-1]) == 51


def test_one_output_however_often_the_cell_is_run_again(kernel: Any) -> None:
    kernel.run("live = Live()")
    first = outputs(kernel.run("run(live, 3)\nlive"))
    again = outputs(kernel.run("run(live, 3)\nlive"))
    models = {message["content"]["data"][VIEW]["model_id"] for message in first + again}
    displays = {message["content"]["transient"]["display_id"] for message in first + again}
    assert len(models) == len(displays) == 1
    assert [message["msg_type"] for message in again].count("display_data") == 1


def test_a_second_one_does_not_send_plotly_again(kernel: Any) -> None:
    kernel.run("one = Live()\ndisplay(one)")
    opened = [m for m in kernel.run("two = Live()\ndisplay(two)") if m["msg_type"] == "comm_open"]
    assert opened
    assert sum(map(size, opened)) <= MOST_BYTES


def test_closing_it_in_mid_run_stops_the_drawing_and_nothing_else(kernel: Any) -> None:
    kernel.run("live = Live()")
    messages = kernel.run(
        "display(live)\nrun(live, 60)\nlive.close()\nprint('closed')\nrun(live, 100, 60)\nprint(len(live))"
    )
    said = [place for place, message in enumerate(messages) if "closed" in str(message["content"].get("text", ""))]
    assert counted(redraws(messages)[-1]) == 60
    assert not redraws(messages[said[0] :])
    assert any("160" in str(message["content"].get("text", "")) for message in messages)


def test_it_is_redrawn_from_a_background_thread(kernel: Any) -> None:
    kernel.run("live = Live()\ndisplay(live)")
    kernel.run("thread = threading.Thread(target=run, args=(live, 80))\nthread.start()")
    kernel.later(lambda message: bool(redraws([message])) and counted(message) == 80)
    kernel.run("thread.join()")


def test_the_widget_is_the_same_each_time_and_shows_the_live(kernel: Any) -> None:
    kernel.run("live = Live()\nassert live.widget() is live.widget()")
    (shown,) = [m for m in outputs(kernel.run("live.widget()")) if m["msg_type"] == "display_data"]
    assert VIEW in shown["content"]["data"]


def test_the_output_holds_the_picture_that_the_page_made(kernel: Any) -> None:
    messages = kernel.run("live = Live()\ndisplay(live)\nrun(live, 5)")
    model = outputs(messages)[0]["content"]["data"][VIEW]["model_id"]
    asked = max(
        message["content"]["data"]["state"]["asked"]
        for message in messages
        if message["msg_type"] == "comm_msg" and "asked" in message["content"]["data"].get("state", {})
    )
    # Until a page answers the output is HTML: whoever saves now has that.
    assert {VIEW, "text/html"} <= outputs(messages)[-1]["content"]["data"].keys()
    kernel.say(model, said="picture", asked=asked, png="aGVsbG8=")
    kept = kernel.later(lambda message: message["msg_type"] == "update_display_data")
    assert kept["content"]["data"]["image/png"] == "aGVsbG8="
    assert VIEW in kept["content"]["data"]
    assert "text/html" not in kept["content"]["data"]


def test_without_a_page_kaleido_makes_the_picture(kernel: Any) -> None:
    program("Chromium")
    kernel.run("live_view.ANSWER = 0.1\nlive = Live()\ndisplay(live)\nrun(live, 5)")
    kept = kernel.later(
        lambda message: message["msg_type"] == "update_display_data" and "image/png" in message["content"]["data"]
    )
    assert base64.b64decode(kept["content"]["data"]["image/png"]).startswith(b"\x89PNG")


def test_many_forwards_and_many_facts_make_few_messages(kernel: Any) -> None:
    kernel.run("live = Live()\ndisplay(live)\npause = 0")
    began = time.monotonic()
    messages = kernel.run(
        "run(live, 20_000)\n"
        "sink = live.opens(graph)\n"
        "for number in range(200_000):\n"
        "    sink.tell({'fact': 'ran', 'node': 'n', 'began_us': '0', 'took_us': '1'})\n"
        "sink.closed()"
    )
    drawn = redraws(messages)
    assert len(drawn) <= (time.monotonic() - began) * 10 + 2
    assert all(size(message) <= MOST_BYTES for message in drawn)
    assert counted(drawn[-1]) == 20_001


def test_breaks_without_end_do_not_make_a_redraw_large(kernel: Any) -> None:
    kernel.run("live = Live(of=['loss', 'a', 'b', 'c', 'd'])\ndisplay(live)")
    messages = kernel.run("""
for number in range(5000):
    try:
        graph.forward(ValueError("x" * 300), watching=live)
    except ValueError:
        pass
    for name in ("loss", "a", "b", "c", "d"):
        live({"fact": name, "value": number / 7})
""")
    drawn = redraws(messages)
    assert drawn
    assert max(map(size, drawn)) <= MOST_BYTES


def test_many_series_share_messages_of_bounded_size_and_all_arrive(kernel: Any) -> None:
    code = "names = [f'k{n}' for n in range(60)]\nlive = Live(of=names, summarising=())\ndisplay(live)\npause = 0\n"
    code += "for n in range(400):\n    graph.forward(n, watching=live)\n"
    code += "    for name in names:\n        live({'fact': name, 'value': n + 0.5})"
    messages = redraws(kernel.run(code))
    assert max(map(size, messages)) <= MOST_BYTES
    sent: dict[str, Any] = {}
    for message in messages:
        sent |= message["content"]["data"]["state"]
    assert json.loads(sent["layout_text"])["title"]["subtitle"]["text"].startswith("400 forwards")
    lasts = [
        message["buffers"][at]
        for message in messages
        for at, path in enumerate(message["content"]["data"]["buffer_paths"])
        if path == ["trace_118_numbers", 1]
    ]
    assert memoryview(bytes(lasts[-1])).cast("d")[-1] == 399.5


def warned(messages: Iterable[dict[str, Any]]) -> str:
    return "".join(message["content"]["text"] for message in messages if message["msg_type"] == "stream")


def test_a_connection_that_is_gone_ends_the_drawing_and_nothing_else(kernel: Any) -> None:
    code = "live = Live('gone')\ndisplay(live)\nrun(live, 5)\nbroken = live.widget()\n"
    code += "def send(**_): raise ConnectionError('the pipe is gone')\nbroken.comm.send = send\n"
    code += "run(live, 60)\nprint(len(live))"
    messages = kernel.run(code)
    words = warned(messages)
    assert words.count("is drawn no more, as that raised ConnectionError: the pipe is gone") == 1
    assert words.strip().endswith("65")
    assert warned(kernel.run("run(live, 5)\nlive.close()\nprint(len(live))")).strip() == "70"


def test_packages_that_do_not_fit_each_other_leave_a_still_figure(kernel: Any) -> None:
    # Two packages that do not fit each other cannot both be installed here.
    code = "from somatize.figures import notebook\nmade = notebook._classes\n"
    code += "def refuses(): raise AttributeError('no such trait')\nnotebook._classes = refuses\n"
    code += "live = Live('still')\ndisplay(live)\nrun(live, 20)\nnotebook._classes = made"
    messages = kernel.run(code)
    assert warned(messages).count("is drawn no more, as that raised AttributeError: no such trait") == 1
    first, *_, last = outputs(messages)
    assert VIEW not in first["content"]["data"]
    assert "20 forwards" in str(last["content"]["data"]["application/vnd.plotly.v1+json"])


def test_in_colab_the_output_says_where_the_code_of_the_widget_comes_from(kernel: Any) -> None:
    code = "import sys, types\nfrom anywidget import _util\n_util.enable_custom_widget_manager_once.cache_clear()\n"
    code += "colab = types.ModuleType('google.colab.output')\nasked = []\n"
    code += "colab.enable_custom_widget_manager = lambda: asked.append(1)\n"
    code += "colab._widgets = types.SimpleNamespace(_installed_url='https://manager.invalid/manager.js')\n"
    code += "sys.modules['google.colab.output'] = colab\nlive = Live('colab')\ndisplay(live)\nrun(live, 5)\n"
    messages = kernel.run(code)
    printed = warned(kernel.run("del sys.modules['google.colab.output']\nprint(asked)"))
    assert printed.strip() == "[1]"
    where = {VIEW: {"colab": {"custom_widget_manager": {"url": "https://manager.invalid/manager.js"}}}}
    shown = [message["content"] for message in outputs(messages)]
    assert len(shown) >= 2, "as it began, and with its picture"
    assert [one["metadata"] for one in shown] == [where] * len(shown)
    assert all(VIEW in one["data"] for one in shown)
