"""Hooks of MkDocs for the documentation site: ``make docs``. What they add is in ``docsite/``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from docsite import hosts, llms
from docsite.pages import MOVED, PICTURES, ROOT, markdown, pages, slug, urls
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files


def on_config(config: Any) -> Any:
    """Take the address of the site from the project's URLs, and make anchors as the repository's host does."""
    config.site_url = urls()["Documentation"]
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of other folders, the pictures of these, and the API reference."""
    for origin, place in MOVED.items():
        if (file := files.get_file_from_path(origin.removeprefix("docs/"))) and origin.startswith("docs/"):
            files.remove(file)
        files.append(File.generated(config, place, content=(ROOT / origin).read_text()))
    for picture in sorted((ROOT / PICTURES).glob("*.png")):
        path = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, path, abs_src_path=str(picture)))
    shim = ROOT / ".ci" / "docsite" / "iframe-worker.js"
    files.append(File.generated(config, f"assets/{shim.name}", content=shim.read_text()))
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, ROOT / ".ci" / "api_reference.py", scratch], check=True)
        for page in sorted(Path(scratch).rglob("*.*")):
            place = f"api/{page.relative_to(scratch).as_posix()}"
            files.append(File.generated(config, place, content=page.read_bytes()))
    return files


def on_page_markdown(_text: str, page: Any, **_: Any) -> str:
    """Turn links to files that are not in the site into the repository's URLs."""
    place = page.file.src_uri
    return markdown(place, pages()[place])


def on_post_build(config: Any) -> None:
    """Write ``llms.txt``, and refuse a site that loads something from another host."""
    site = Path(config.site_dir)
    llms.write(config.nav, site)
    if outside := hosts.offenders(site):
        raise PluginError(f"these files of the site load something from another host: {', '.join(outside)}")
