"""forebay.console: pages for a browser about a store, and buttons for who has the token. Needs forebay[console].

`forebay console DIR` serves it beside the process that has the store open. A host that has an ASGI application of its
own mounts it there:

>>> import forebay.console
>>> routes = [Mount("/forebay", app=forebay.console.app(bay, token=secret, hosts=["ops.example.com"]))]

It shows what it is shown and keeps nothing: a crash of it costs nobody anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..dispatch.forebay import Forebay
from ..store.errors import ArgumentError, SettingsError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["app"]


def app(
    bay: Forebay, *, token: str, hosts: Iterable[str] = (), open_reading: bool = False, bodies: bool = False
) -> ASGIApp:
    """Return an ASGI application with the pages of a store that this process has open, to be mounted or served.

    token: whoever sends it may change the store; at least 16 characters. hosts: names under which it is reached, apart
    from localhost and addresses; any other name in a request is refused. open_reading: whether pages are for everybody
    who reaches them, because who mounts them asks whom they let in; else a browser asks for the token as a password.
    bodies: whether the beginnings of message bodies are shown. Costs nothing until somebody looks; a look costs what
    `bay.statistics()` costs, once a second at most. SettingsError: a short token, or forebay[console] is not installed.
    """
    if not isinstance(bay, Forebay):
        raise ArgumentError(f"an open Forebay is expected, not {type(bay).__name__}: of forebay.aio, .synchronous")
    try:
        from .guard import Access
        from .pages import console
        from .sources import BaySource
    except ImportError as missing:
        raise missing_extra(missing) from None
    access = Access(token, tuple(hosts), open_reading=open_reading, open_messages=open_reading)
    return console(BaySource(bay), access, bodies)


def missing_extra(missing: ImportError) -> SettingsError:
    """Return what to say where a package of the extra is not installed."""
    return SettingsError(f"{missing.name} is not installed: pip install 'forebay[console]'")
