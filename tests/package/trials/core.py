"""With no extra: the README's tour but for its figures, the demo, and errors that say which extra is missing."""

import re
import subprocess
import sys
from pathlib import Path

from somatize.errors import ExtraMissing

readme = Path(sys.argv[1]).read_text(encoding="utf-8")
scope = {"__name__": "__main__"}
missing = []
for snippet in re.findall(r"```python\n(.*?)```", readme, re.DOTALL):
    try:
        exec(compile(snippet, "README", "exec"), scope)
    except ExtraMissing as error:
        missing.append(str(error))
assert len(missing) == 1, missing
assert "pip install 'somatize[viz]'" in missing[0]

command = Path(sys.executable).with_name("somatize")
demo = subprocess.run([command, "demo"], capture_output=True, text=True, check=True, timeout=120)
print(demo.stdout)
for arguments in (["--help"], ["--version"]):
    subprocess.run([command, *arguments], capture_output=True, text=True, check=True, timeout=60)
