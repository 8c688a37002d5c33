"""What a module counts by: its code where it is the project's, else the version of the distribution that lists it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import sys
import sysconfig
import threading

import pytest
import rich.console

from somatize.dag.pieces import Cached, Frozen, Marks
from somatize.errors import Unnameable
from somatize.naming import Namer, difference, module_origin


def install(site, name="somelib", version="1.0", source="def f(x):\n    return x\nK = 1\n", **more):
    """Put a distribution of one module where a tool would."""
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}.py,sha256={abs(hash(source))},{len(source)}\n{info.name}/METADATA,,\n")
    for file, text in more.items():
        (info / f"{file}.json").write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory of libraries, and no memory of what was found in one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget():
        importlib.invalidate_caches()
        sys.modules.pop("somelib", None)
        for known in (module_origin._lists, module_origin._files_of, module_origin._listed):
            known.cache_clear()
        module_origin._KNOWN.pop("somelib", None)

    forget()
    yield tmp_path, forget
    forget()


USES = {
    "at the top": "import somelib\ndef step(x):\n    return somelib.f(x)\n",
    "its name": "from somelib import f\ndef step(x):\n    return f(x)\n",
    "inside": "def step(x):\n    import somelib\n    return somelib.f(x)\n",
    "of a helper": "from somelib import f\ndef helper(x):\n    return f(x)\ndef step(x):\n    return helper(x)\n",
    "in a table": "import somelib\nTABLE = {'f': somelib.f}\ndef step(x):\n    return TABLE['f'](x)\n",
}


@pytest.mark.parametrize("use", USES)
def test_an_installed_library_counts_by_its_version(use, site, lab, name_of):
    place, forget = site
    install(place)
    first = name_of(lab.module(USES[use], "nodes").step)
    assert first.parts["libraries"] == {"somelib": "1.0"}
    assert not any(key.startswith("somelib") for key in first.parts["code"])
    (place / "somelib.py").write_text("def f(x):\n    return -x\n")  # which nobody should do
    forget()
    assert name_of(lab.module(USES[use], "nodes").step).digest == first.digest
    (place / "somelib-1.0.dist-info").rename(place / "gone")
    install(place, version="2.0")
    forget()
    second = name_of(lab.module(USES[use], "nodes").step)
    assert difference(first.parts, second.parts) == ["somelib 2.0 was 1.0"]


def test_one_installed_from_a_directory_counts_by_its_record(site, lab, name_of):
    place, forget = site
    url = json.dumps({"url": "file:///somewhere", "dir_info": {}})
    install(place, direct_url=url)
    first = name_of(lab.module(USES["at the top"], "nodes").step)
    record = place / "somelib-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("sha256=", "sha256=0"))
    forget()
    assert name_of(lab.module(USES["at the top"], "nodes").step).digest != first.digest


@pytest.mark.parametrize("metadata", ["none", "an egg beside the source", "an editable installation"])
def test_what_no_installed_distribution_lists_is_the_projects(metadata, site, lab, name_of):
    place, forget = site
    source = "def f(x):\n    return x\n"
    (place / "somelib.py").write_text(source)
    if metadata == "an egg beside the source":
        (place / "somelib.egg-info").mkdir()
        (place / "somelib.egg-info" / "PKG-INFO").write_text("Name: somelib\nVersion: 1\n")
        (place / "somelib.egg-info" / "top_level.txt").write_text("somelib\n")
    if metadata == "an editable installation":
        info = place / "elsewhere" / "somelib-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somelib\nVersion: 1.0\n")
        (info / "RECORD").write_text("__editable__.somelib-1.0.pth,,\n")
    first = name_of(lab.module(USES["at the top"], "nodes").step)
    (place / "somelib.py").write_text(source.replace("return x", "return -x"))
    forget()
    assert "code of `f`" in difference(first.parts, name_of(lab.module(USES["at the top"], "nodes").step).parts)


def test_a_module_named_like_one_of_pythons_is_the_projects(site):
    place, _ = site
    spec = importlib.util.spec_from_file_location("secrets", place / "secrets.py")
    assert module_origin.origin_of_file("secrets", str(spec.origin)) is None
    assert module_origin.origin("secrets") == module_origin.PYTHON


def test_a_compiled_module_of_the_project_counts_by_its_file(tmp_path):
    file = tmp_path / f"fast{sysconfig.get_config_var('EXT_SUFFIX')}"
    file.write_bytes(b"one")
    first = module_origin.origin_of_file("fast", str(file))
    file.write_bytes(b"two")
    assert first.name == "fast" != module_origin.origin_of_file("fast", str(file)).version != first.version


def test_what_is_put_into_a_library_is_seen(site, lab, name_of):
    place, _ = site
    install(place)
    namer = Namer()
    step = lab.module(USES["at the top"] + "\ndef also(x):\n    return somelib.K\n", "nodes").step
    names = [name_of(step, namer=namer).digest]
    somelib = sys.modules["somelib"]
    lab.module("def f(x):\n    return 100\n", "patches")
    somelib.f = sys.modules["patches"].f
    names.append(name_of(step, namer=namer).digest)
    somelib.f = lambda x: 200
    names.append(name_of(step, namer=namer).digest)
    somelib.f = abs
    names.append(name_of(step, namer=namer).digest)
    also = [name_of(sys.modules["nodes"].also, namer=namer).digest]
    somelib.K = 2
    also.append(name_of(sys.modules["nodes"].also, namer=namer).digest)
    assert len(set(names)) == 4
    assert len(set(also)) == 2


def test_neutral_kinds_do_not_count(lab, name_of, capsys):
    source = """
        import io, logging, sys, threading
        import rich.console
        LOG = logging.getLogger("one")
        ADAPTER = logging.LoggerAdapter(LOG, {})
        LOCK = threading.Lock()
        CONSOLE = rich.console.Console()
        OUT = sys.stdout
        NOTHING = object()
        def step(x):
            with LOCK:
                return LOG, ADAPTER, CONSOLE, OUT, NOTHING, sys.stderr
    """
    module, namer = lab.module(source), Namer()
    first = name_of(module.step, namer=namer).digest
    module.LOG, module.LOCK, module.NOTHING = logging.getLogger("two"), threading.RLock(), object()
    module.CONSOLE, module.OUT = rich.console.Console(stderr=True), sys.stderr
    assert name_of(module.step, namer=namer).digest == first


def test_a_refusal_names_the_way_to_what_is_refused(lab, name_of, tmp_path):
    lab.module("import types\nCLIENT = types.SimpleNamespace(session={'open': [(n for n in ())]})\n", "lab_settings")
    module = lab.module(
        "import lab_settings\ndef helper(x):\n    return lab_settings.CLIENT\ndef step(x):\n    return helper(x)\n"
    )
    with pytest.raises(Unnameable) as refused:
        name_of(module.step)
    said = str(refused.value)
    assert said.startswith("`helper` -> `lab_settings.CLIENT` -> `.session['open'][0]` is a generator")
    assert ".cached(ignoring=['lab_settings.CLIENT'])" in said
    name_of(module.step, Marks(frozen=Frozen(), cached=Cached(None, ("lab_settings.CLIENT",))))


def test_the_origin_of_what_is_installed_here():
    import numpy as np

    assert module_origin.origin("numpy.linalg") == ("numpy", np.__version__)
    assert module_origin.origin("json") == module_origin.origin("_io") == module_origin.PYTHON
    assert module_origin.origin("somatize.graph") == ("somatize", "")
    assert module_origin.origin(__name__) is None
