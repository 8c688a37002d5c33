"""How the documentation's site is built: `make docs`, into build/site, which opens from the disk as it is."""

from __future__ import annotations

from typing import Any

import click
from docutils.nodes import Element, Node, literal_block, section, title
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

import somatize
from somatize.cli.command import somatize as command

project = "somatize"
author = copyright = "The somatize developers"
version = release = somatize.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["pictures"]
nitpicky = True
suppress_warnings = ["config.cache"]

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
toc_object_entries = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "somatize"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-sidebar-link-text--top-level": "#3d4450", "color-brand-content": "#2456c9"},
    "dark_css_variables": {"color-sidebar-link-text--top-level": "#b9bec8", "color-brand-content": "#7aa7ff"},
}
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_use_index = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

PLACES = ("", "somatize.", "somatize.record.", "somatize.status.", "somatize.errors.", "somatize.facts.")


def named_in_passing(app: Sphinx, env: BuildEnvironment, node: Element, shown: Element) -> Any:
    """Link what a docstring or an annotation names by its short name; what has no page stays as it is written.

    Docstrings name arguments, fields and builtins the same way, so that not every name has a page. What these
    pages name as a function or a method has to be there.
    """
    name = node["reftarget"]
    if node.get("refdomain") != "py" or node["reftype"] not in ("obj", "class", "exc", "data"):
        return None
    python = env.get_domain("py")
    for place in PLACES:
        at = place + name.rpartition(".")[2] if place else name
        if at in python.objects and at != node.get("py:class"):
            return python.resolve_xref(env, node["refdoc"], app.builder, "obj", at, node, shown)
    return shown


class Commands(SphinxDirective):
    """What ``--help`` says, of the command and of each subcommand."""

    def run(self) -> list[Node]:
        top = click.Context(command, info_name="somatize", terminal_width=80)
        found: list[Node] = [self._block(top.get_help())]
        for name in command.list_commands(top):
            sub = command.get_command(top, name)
            assert sub is not None
            shown = click.Context(sub, info_name=name, parent=top, terminal_width=80)
            found.append(section("", title(text=f"somatize {name}"), self._block(shown.get_help()), ids=[name]))
        return found

    def _block(self, words: str) -> Node:
        return literal_block(words, words, language="text")


def setup(app: Sphinx) -> None:
    app.add_directive("commands", Commands)
    app.connect("missing-reference", named_in_passing)
