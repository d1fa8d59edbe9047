"""Build the API reference from the docstrings:  .ci/api_reference.py FOLDER

Ends with 1, and names what is missing, when a public name or method has no docstring.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PUBLIC = [name for name in ("nyala", "nyala.jobs", "nyala.partition", "nyala.spark") if importlib.util.find_spec(name)]
"""The modules that users import."""
FIRST = ("open", "connect", "Database", "Table", "Scan", "hash", "range", "ColumnOptions", "WriteResult", "RowErrors")
"""The names that a page begins with, where its module has them: a reader meets them in this order."""
DARK = """
:root { color-scheme: dark; --pdoc-background: #212529; }
.pdoc {
    --text: #f7f7f7; --muted: #9d9d9d; --link: #58a6ff; --link-hover: #3989ff; --code: #333; --active: #555;
    --accent: #343434; --accent2: #555; --nav-hover: rgba(0, 0, 0, 0.1);
    --name: #77c1ff; --def: #0cdd0c; --annotation: #00c037;
}
"""
"""The colours of a page for a reader whose system is dark."""
UP = """{% extends "default/module.html.jinja2" %}
{% block nav_title %}<a href="{{ "../" * module.modulename.count(".") }}../index.html">Documentation</a>{% endblock %}
"""
"""The way back to the site, which has the reference in its folder ``api/``."""


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers: its ``__all__``, else what it lists by ``dir``, lazily loaded names included."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=_place)
    names = [name for name in dir(module) if not name.startswith("_")]
    offered = [name for name in names if getattr(getattr(module, name), "__module__", "").startswith("nyala")]
    return sorted(offered, key=_place)


def _place(name: str) -> tuple[int, bool, str]:
    """Return the place of a name on its page: errors come last."""
    return FIRST.index(name) if name in FIRST else len(FIRST), name.endswith("Error"), name


def undocumented(module: ModuleType) -> Iterator[str]:
    """Yield the public names and methods of a module that have no docstring."""
    for name in public_names(module):
        value = getattr(module, name)
        if not inspect.getdoc(value):
            yield f"{module.__name__}.{name}"
        if inspect.isclass(value):
            yield from (f"{module.__name__}.{name}.{method}" for method in _undocumented_methods(value))


def _undocumented_methods(kind: type) -> Iterator[str]:
    for name, member in list(vars(kind).items()):  # documenting one may build it
        function = getattr(member, "func", getattr(kind, name))  # partialmethod and cached_property show their function
        is_method = callable(member) or hasattr(member, "__get__")
        if not name.startswith("_") and is_method and not inspect.getdoc(function):
            yield name


def build(folder: Path) -> None:
    """Write one HTML page for each public module, an index and a search index."""
    from pdoc import doc, render

    warnings.filterwarnings("ignore", module="pdoc")  # types that are imported for type checkers only appear as text
    modules: dict[str, Any] = {}
    for name in PUBLIC:
        module: Any = importlib.import_module(name)
        module.__all__ = public_names(module)  # pdoc sees lazily loaded names only when they are listed
        modules[name] = doc.Module(module)
        _drop_missing_defaults(modules[name])
    with tempfile.TemporaryDirectory() as templates:
        (Path(templates) / "custom.css").write_text(_dark_style())
        (Path(templates) / "module.html.jinja2").write_text(UP)
        render.configure(docformat="google", show_source=False, footer_text="Nyala", template_directory=Path(templates))
        for name, page in modules.items():
            file = folder / f"{name.replace('.', '/')}.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(render.html_module(page, modules))
        (folder / "index.html").write_text(render.html_index(modules))
        (folder / "search.js").write_text(render.search_index(modules))


def _drop_missing_defaults(namespace: Any) -> None:
    """Take out what pydantic calls the default of a field that has none."""
    from pdoc import doc
    from pydantic_core import PydanticUndefined

    for member in namespace.members.values():
        if isinstance(member, doc.Class):
            _drop_missing_defaults(member)
        elif isinstance(member, doc.Variable) and member.default_value is PydanticUndefined:
            member.default_value = inspect.Signature.empty


def _dark_style() -> str:
    from pygments.formatters import HtmlFormatter

    code = HtmlFormatter(style="github-dark").get_style_defs(".pdoc-code")
    return f"@media (prefers-color-scheme: dark) {{{DARK}{code}}}"


def main() -> None:
    missing = [name for module in PUBLIC for name in undocumented(importlib.import_module(module))]
    if missing:
        sys.exit("no docstring: " + ", ".join(missing))
    build(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
