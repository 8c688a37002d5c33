"""Figures of the README's run, as HTML; Live, its widget."""

import re
import sys
from pathlib import Path

from somatize import Live
from somatize.record import machines, progress, spent, timeline

readme = Path(sys.argv[1]).read_text(encoding="utf-8")
scope = {"__name__": "__main__"}
for snippet in re.findall(r"```python\n(.*?)```", readme, re.DOTALL):
    exec(compile(snippet, "README", "exec"), scope)

store = scope["store"]
for draw in (progress, spent, timeline):
    html = draw(store, run="tuesday").to_html()
    assert "tuesday" in html
    assert len(html) > 100_000
machines(store, run="tuesday").to_html()
live = Live(title="now")
scope["g"].forward(16, watching=live)
assert len(live.rows) == 1
assert live.widget() is live.widget()
assert progress(store, run="tuesday", widget=True) is not None
