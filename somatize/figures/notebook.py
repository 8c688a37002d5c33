"""The interface to notebooks, and the only module that imports IPython, ipywidgets and anywidget.

A `Canvas` is a figure in a cell whose parts are sent one by one: each redraw is one message that holds what changed.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from somatize.errors import ExtraMissing

_PIP = "pip install 'somatize[viz]'"
VIEW = "application/vnd.jupyter.widget-view+json"


class FigureMessage(NamedTuple):
    """A trace or a layout as it is sent: JSON, and the numbers it refers to, each list of them as bytes."""

    text: str
    numbers: list[bytes]

    @property
    def size(self) -> int:
        """Bytes, about, that it has on the wire."""
        return len(self.text) + sum(map(len, self.numbers))


Parts = Mapping[str, FigureMessage]
"""By name: ``layout``, ``trace_0``, ``trace_1`` and so on."""


class Canvas(Protocol):
    """A widget that shows a figure."""

    model_id: str

    def push(self, parts: Parts, traces: int) -> None:
        """Send what changed; `traces` is how many the figure has."""

    def ask(self, number: int) -> None:
        """Request a picture of the figure from the browser."""


def part_of(thing: Mapping[str, Any]) -> FigureMessage:
    """A trace or a layout, with its long lists of numbers taken out of the JSON."""
    numbers: list[bytes] = []
    slim = {key: _packed(value, numbers) for key, value in thing.items()}
    return FigureMessage(json.dumps(slim, separators=(",", ":")), numbers)


def _packed(value: Any, numbers: list[bytes]) -> Any:
    if not isinstance(value, list) or len(value) < 8:
        return value
    try:
        words = array("d", value)
    except TypeError:  # gaps in it, or a list of texts
        try:
            words = array("d", [_GAP if number is None else number for number in value])
        except TypeError:
            return value
    numbers.append(words.tobytes())
    return {"numbers": len(numbers) - 1}


_GAP = float("nan")


def kernel() -> Any:
    """The shell of the kernel this runs in, or None: in plain Python, and in IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def attended() -> bool:
    """Whether a person may be looking while a cell runs: not with nbconvert, papermill and the like."""
    shell = kernel()
    return shell is not None and bool(getattr(shell.kernel, "_allow_stdin", True))


def able() -> bool:
    """Whether the packages of a widget are installed, without importing them."""
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("plotly", "ipywidgets", "anywidget"))


def show(bundle: Mapping[str, Any], display: str, *, again: bool, metadata: Mapping[str, Any] | None = None) -> None:
    """Put an output into the cell that runs, or, if shown `again`, others in place of what it holds."""
    from IPython.display import display as displayed

    about = dict(metadata or {})
    displayed(dict(bundle), metadata=about, raw=True, display_id=display, update=again)


def at_cell_end(then: Callable[[], None]) -> Callable[[], None]:
    """Call `then` whenever a cell has ended; what it returns stops that."""
    events = kernel().events

    def ended(*_: Any) -> None:
        then()

    events.register("post_run_cell", ended)

    def stop() -> None:
        with suppress(ValueError):  # a kernel that ends lets go of all of them itself
            events.unregister("post_run_cell", ended)

    return stop


def view_of(canvas: Canvas) -> dict[str, Any]:
    """The content of a notebook output that shows a canvas."""
    return {"version_major": 2, "version_minor": 0, "model_id": canvas.model_id}


def about_view(canvas: Any) -> dict[str, Any]:
    """The metadata of a notebook output: in Colab, the source of the code of third-party widgets."""
    made = canvas._repr_mimebundle_()
    return dict(made[1]) if isinstance(made, tuple) else {}


def canvas(
    script: Callable[[], str],
    parts: Callable[[], tuple[Parts, int]],
    show: Callable[[], None],
    heard: Callable[[Mapping[str, Any]], None],
) -> Canvas:
    """A canvas: `parts` gives the whole figure to a page that opens or loads again, `show` puts it into a cell.

    `script` gives plotly's, once per process. `heard` is told what a page says: that it is ``here``, and its
    ``picture`` when it was asked for one.

    Raises `ExtraMissing` where plotly, ipywidgets or anywidget is not installed.
    """
    try:
        made = _classes()
    except ImportError as error:
        raise ExtraMissing(f"a live figure needs {error.name}, which is not installed: {_PIP}") from error
    shown: Canvas = made(script, parts, show, heard)
    return shown


def _state(parts: Parts, traces: int) -> dict[str, Any]:
    state: dict[str, Any] = {"traces": traces}
    for name, part in parts.items():
        state[f"{name}_text"] = part.text
        state[f"{name}_numbers"] = part.numbers
    return state


@lru_cache(maxsize=1)
def _classes() -> Any:
    import anywidget
    import ipywidgets
    import traitlets

    class Library(ipywidgets.Widget):  # type: ignore[misc]
        """Plotly's script, sent once to a page, however many canvases there are on it."""

        script = traitlets.Bytes().tag(sync=True)

    @lru_cache(maxsize=1)
    def library(script: Callable[[], str]) -> Library:
        return Library(script=zlib.compress(script().encode()))

    class FigureCanvas(anywidget.AnyWidget):
        _esm = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
        library = traitlets.Any().tag(sync=True, **ipywidgets.widget_serialization)
        canvas = traitlets.Unicode().tag(sync=True)

        def __init__(self, script: Any, parts: Any, show: Any, heard: Any) -> None:
            self._parts = parts
            self._show = show
            self._asked = 0
            self._pushed = 0
            own = uuid4().hex
            super().__init__(library=library(script), canvas=own, model_id=own)
            self.on_msg(lambda _widget, content, _buffers: heard(content))

        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            state = super().get_state(key=key, drop_defaults=drop_defaults)
            if key is None:
                state |= {**_state(*self._parts()), "asked": self._asked, "pushed": self._pushed}
            return state

        def _ipython_display_(self, **_: Any) -> None:
            self._show()

        def push(self, parts: Parts, traces: int) -> None:
            self._pushed += 1
            self._update({**_state(parts, traces), "pushed": self._pushed})

        def ask(self, number: int) -> None:
            self._asked = number
            self._update({"asked": number})

        def _update(self, state: dict[str, Any]) -> None:
            paths = [
                (name, place) for name, value in state.items() if type(value) is list for place in range(len(value))
            ]
            buffers = [memoryview(state[name][place]) for name, place in paths]
            slim = {name: [None] * len(value) if type(value) is list else value for name, value in state.items()}
            if self.comm is not None:
                self.comm.send(data={"method": "update", "state": slim, "buffer_paths": paths}, buffers=buffers)

    return FigureCanvas
