"""The wheel as its users meet it: in venvs of its own, with each extra alone, at the oldest and the newest versions.

    python tests/package/try_it.py [--python PYTHON] [--oldest] [--pure] [core viz ...]

Needs the registry, some minutes and some disk, so it is run by name. Each trial is a script in `trials/`, which asserts
what it shows. With ``--oldest`` every library that pyproject names is installed at the lowest version it allows,
with ``--pure`` the wheel is the one without the part in C. The wheel is made by the Python that runs this.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRIALS = {path.stem.removeprefix("with_"): path for path in sorted((HERE / "trials").glob("*.py"))}
TOO_LARGE = {"torch": "2.13.0"}  # any other build of it takes gigabytes: this one is what is tried


def lowest(requirement: str) -> tuple[str, str]:
    """A library and the lowest version that pyproject allows of it."""
    found = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+).*", requirement)
    if found is None:
        raise ValueError(f"{requirement!r} names no lowest version")
    return found[1], found[2]


def constraints(oldest: bool) -> list[str]:
    wanted = [*PROJECT["dependencies"], *(one for these in PROJECT["optional-dependencies"].values() for one in these)]
    versions = dict(lowest(one) for one in wanted if not one.startswith("somatize")) if oldest else {}
    return [f"{name}=={version}" for name, version in (versions | TOO_LARGE).items()]


def tried(name: str, python: str, wheel: Path, oldest: bool, pure: bool) -> bool:
    """Whether a trial went through in an empty venv; prints what was installed and what went wrong."""
    with tempfile.TemporaryDirectory(prefix="somatize-trial-") as place:
        inside = Path(place) / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "venv", inside.parents[1]], check=True)
        held = Path(place) / "constraints.txt"
        held.write_text("\n".join(constraints(oldest)))
        thing = f"{wheel}" if name == "core" else f"{wheel}[{name}]"
        asked = [inside, "-m", "pip", "install", "--quiet", "--constraint", held, thing]
        made = subprocess.run(asked, capture_output=True, text=True, check=False)
        if made.returncode:
            print(f"{name}: NOT INSTALLED\n{made.stderr[-3000:]}")
            return False
        if in_c(inside, Path(place)) == pure:
            print(f"{name}: FAILED  the part in C is {'used' if pure else 'not used'}, of {wheel.name}")
            return False
        done = subprocess.run(
            [inside, "-W", "error::DeprecationWarning:somatize", TRIALS[name], ROOT / "README.md"],
            capture_output=True,
            text=True,
            cwd=place,
            timeout=300,
            check=False,
        )
        print(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}  {' '.join(installed(inside, name))}", flush=True)
        if done.returncode or done.stderr:
            print(done.stdout[-1500:], done.stderr[-3000:], sep="\n")
        return done.returncode == 0


def in_c(python: Path, place: Path) -> bool:
    """Whether what is installed there records in C."""
    asked = [python, "-c", "from somatize.store import speedups; print(speedups.MODULE is not None)"]
    return subprocess.run(asked, capture_output=True, text=True, cwd=place, check=True).stdout.strip() == "True"


def installed(python: Path, name: str) -> list[str]:
    """The versions that the core and this extra brought."""
    wanted = [*PROJECT["dependencies"], *([] if name == "core" else PROJECT["optional-dependencies"][name])]
    ours = {plain(lowest(one)[0]) for one in wanted}
    asked = [python, "-m", "pip", "list", "--format=freeze"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return [line for line in listed if plain(line.partition("==")[0]) in ours]


def plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("trials", nargs="*", default=[*TRIALS], help=", ".join(TRIALS))
    asked.add_argument("--python", default=sys.executable)
    asked.add_argument("--oldest", action="store_true")
    asked.add_argument("--pure", action="store_true")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="somatize-wheel-") as place:
        asked_for = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", place, ROOT]
        around = {**os.environ, "SOMATIZE_PURE": str(int(given.pure))}
        subprocess.run(asked_for, check=True, capture_output=True, env=around)
        (wheel,) = Path(place).iterdir()
        went = [tried(name, given.python, wheel, given.oldest, given.pure) for name in given.trials]
    return 0 if all(went) else 1


if __name__ == "__main__":
    sys.exit(main())
