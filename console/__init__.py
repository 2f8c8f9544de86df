"""forebay.console: web pages about a store, with actions for users who have the token. Needs forebay[console].

`forebay console DIR` serves it beside the process that has the store open. A host with an ASGI application of its
own can mount the console there:

>>> import forebay.console
>>> routes = [Mount("/forebay", app=forebay.console.app(bay, token=secret, hosts=["ops.example.com"]))]

The console keeps no state, so a crash of it loses nothing.
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

    token: at least 16 characters; a client that sends it may change the store. hosts: names under which the console is
    reached, apart from localhost and addresses; any other name in a request is refused. open_reading: whether pages are
    shown without the token, because the host checks clients itself; else a browser asks for the token as a password.
    bodies: whether the beginnings of message bodies are shown. The console costs nothing until somebody looks; a look
    costs as much as `bay.statistics()`, at most once a second. SettingsError: a short token, or forebay[console] is not
    installed.
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
    """Return the error for a package of the extra that is not installed."""
    return SettingsError(f"{missing.name} is not installed: pip install 'forebay[console]'")
