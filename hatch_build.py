"""Compiles `somatize/store/native/` into a wheel where that can be done; where it cannot, the wheel is made without it.

Hatchling asks `CompiledPart`, in the process of the build. The compiling is this file run as a script, so that what a
compiler says can be told in one line: ``python hatch_build.py FOLDER`` leaves the module in FOLDER.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

PLACE = "somatize/store/_speedups.abi3.so"
# They come after the interpreter's own and win. Nothing that depends on the folder of the build is left in the module.
COMPILE = ["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-g0", "-fno-lto"]
LINK = ["-s", "-fno-lto"]


class CompiledPart(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel gets the module and names the machine it is for; an editable one leaves the module in the tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the wheel is put together."""
        root, editable = Path(self.root), version == "editable"
        within = root / "build" if editable else None  # on the tree's disk, where one step moves a file into its place
        if within:
            within.mkdir(exist_ok=True)
        self.held = tempfile.TemporaryDirectory(prefix="somatize-native-", dir=within)
        module = compiled(root, Path(self.held.name))
        if editable:
            settle(module, root / PLACE)
        elif module:
            build_data["force_include"][str(module)] = PLACE
            build_data["pure_python"] = False
            build_data["tag"] = tag()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Let go of what was compiled: it is in the wheel or in its place."""
        self.held.cleanup()


def compiled(root: Path, folder: Path) -> Path | None:
    """The module, made in `folder`; None, and a line on stderr that says why, where it cannot be made."""
    if os.environ.get("SOMATIZE_PURE", "0") not in ("", "0"):
        return None
    trouble = unfit()
    if not trouble:
        asked = [sys.executable, "-P", str(root / "hatch_build.py"), str(folder)]
        done = subprocess.run(asked, cwd=root, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            sys.stderr.write(done.stderr)  # warnings of the compiler
            return folder / PLACE
        lines = done.stderr.strip().splitlines() or [f"the compiling ended with {done.returncode}"]
        trouble = next((line for line in lines if " error: " in line), lines[-1]).strip()
    sys.stderr.write(f"somatize: built without its part in C, so recording takes longer: {trouble}\n")
    return None


def unfit() -> str:
    """Why this interpreter cannot take the module, or nothing."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} is not CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no GIL"
    return ""


def settle(module: Path | None, place: Path) -> None:
    """Put the module there in one step; without one, what an earlier build left there goes."""
    if module:
        module.replace(place)
    elif place.exists():
        place.unlink()


def tag() -> str:
    """This Python and those after it, on this platform.

    Not those before it, though the sources ask for no more than 3.11 has: newer headers may turn a call into one that
    an older Python answers otherwise. The platform is the one without what a manylinux wheel's builder vouches for.
    """
    platform = next(name for name in platform_tags() if not name.startswith(("manylinux", "musllinux")))
    return f"cp{sys.version_info.major}{sys.version_info.minor}-abi3-{platform}"


def compile_into(folder: Path) -> None:
    """Compile the sources of the current directory; relative and sorted, so that each folder gives the same bytes."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    class Build(build_ext):  # type: ignore[misc]
        def build_extensions(self) -> None:
            linker = self.compiler.linker_so
            self.compiler.linker_so = [part for part in linker if not part.startswith("-Wl,-rpath")]
            super().build_extensions()

    sources = sorted(path.as_posix() for path in Path("somatize/store/native").glob("*.c"))
    name = PLACE.partition(".")[0].replace("/", ".")
    part = Extension(name, sources, py_limited_api=True, extra_compile_args=COMPILE, extra_link_args=LINK)
    build = Build(Distribution({"name": "somatize", "ext_modules": [part]}))
    build.build_lib = str(folder)
    build.build_temp = str(folder / "objects")
    build.ensure_finalized()
    build.run()


def told(error: Exception) -> str:
    """What went wrong, without the whole command of a compiler."""
    below = error.__cause__ or error.__context__
    if isinstance(below, subprocess.CalledProcessError):
        return f"{below.cmd[0]} ended with {below.returncode}"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    try:
        compile_into(Path(sys.argv[1]))
    except Exception as error:
        sys.exit(told(error))
