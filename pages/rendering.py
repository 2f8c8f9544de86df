"""Templates: an environment of Jinja2 in which every text is escaped and no name may be missing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..dispatch.screen.view import printable

STYLE_SHEET: Final = Path(__file__).parent / "static" / "pages.css"
"""The style sheet of every page; self-contained ones have it within."""

_SHARED: Final = Path(__file__).parent / "templates"


def environment(folder: Path, filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Return an environment with the templates of a folder, which may extend and import those that all pages share.

    filters: beside `clean`, which takes out what steers a terminal or a line of text. Reads the style sheet once.
    """
    made = Environment(
        loader=FileSystemLoader([folder, _SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"clean": printable, **filters}
    style = STYLE_SHEET.read_text(encoding="utf-8")
    made.globals |= {"style": Markup(style), "policy": file_policy(style)}
    return made


def file_policy(style: str) -> str:
    """Return what a browser may do with a self-contained page: apply this style, and nothing else.

    The style is named by its hash, so that markup which slipped through the escaping could neither run nor restyle.
    """
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; form-action 'none'; base-uri 'none'"
