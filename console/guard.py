"""The checks of every request to the console: the host name that it asks for, its origin, and whether it may read.

A page of another site can make a browser send requests here. Such a page cannot read the answers, because the name in
the Host header must be one of ours, and DNS rebinding needs a name of the attacker. It cannot change anything either,
because each change requires a token that no browser adds by itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from secrets import compare_digest
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..store.errors import SettingsError

TOKEN_CHARACTERS_MIN: Final = 16
POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
CHALLENGE: Final = 'Basic realm="forebay console", charset="UTF-8"'
PASSWORD: Final = "The password is the token; the name does not matter."
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Not no-referrer: with that, a browser would hide the origin of our own forms too.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""The headers of every answer, including refusals."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rules about who may read and who may change the store."""

    token: str
    """A client that sends this token may change the store."""
    hosts: tuple[str, ...] = ()
    """Names under which the console is reached, apart from localhost and addresses."""
    open_reading: bool = False
    """Whether pages are shown to clients without the token."""
    open_messages: bool = False
    """Whether pages with headers and bodies of messages are shown to them too."""

    def __post_init__(self) -> None:
        if not isinstance(self.token, str) or len(self.token) < TOKEN_CHARACTERS_MIN:
            raise SettingsError(f"a token has at least {TOKEN_CHARACTERS_MIN} characters that nobody can guess")

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token, in a time that does not depend on how similar it is."""
        return compare_digest(given.encode(errors="replace"), self.token.encode(errors="replace"))

    def has_bearer(self, request: Request) -> bool:
        """Return whether a request has the token in a bearer header, which no browser sends by itself."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given.strip())

    def may_read(self, request: Request) -> bool:
        return self.open_reading or self.has_bearer(request) or self._has_password(request)

    def may_read_messages(self, request: Request) -> bool:
        return self.open_messages or self.has_bearer(request) or self._has_password(request)

    def is_ours(self, host: str) -> bool:
        """Return whether a Host header names this console, by a name that nobody else can point here."""
        name = urlsplit(f"//{host}").hostname if host.isprintable() and "@" not in host and "/" not in host else None
        if name is None:
            return False
        return name == "localhost" or _is_address(name) or name in (known.lower() for known in self.hosts)

    def _has_password(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            _, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return kind.lower() == "basic" and self.is_token(password)


class Guard:
    """An ASGI application around another one. It refuses bad requests and adds the security headers to all answers."""

    def __init__(self, app: ASGIApp, access: Access, refuse: Callable[[Request, int, str, str], Response]) -> None:
        """Wrap an application. refuse: makes the page of a refusal from request, status, sentence and advice."""
        self._app = app
        self._access = access
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = [name for name, _ in HEADERS]
                others = [header for header in message.get("headers", ()) if header[0].lower() not in names]
                message = {**message, "headers": [*others, *HEADERS]}
            await send(message)

        answering: ASGIApp = self._refusal(Request(scope)) or self._app
        await answering(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        try:
            is_ours = self._access.is_ours(host)
        except ValueError:  # brackets that do not match
            is_ours = False
        if not is_ours:
            advice = "Use localhost or an address, or name it: --name NAME, or hosts=[...] of forebay.console.app."
            return self._refuse(request, 421, "The console is not known by the name in this request.", advice)
        if request.method == "POST":
            is_foreign = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
            if is_foreign or not _is_from(host, request.headers.get("origin")):
                advice = "Send it from a page of the console, or without a browser."
                return self._refuse(request, 403, "This request comes from a page of another site.", advice)
            return None  # a request that changes anything checks the token itself
        if not self._access.may_read(request):
            refusal = self._refuse(request, 401, "This console shows its pages to who has the token.", PASSWORD)
            refusal.headers["www-authenticate"] = CHALLENGE
            return refusal
        return None


def _is_from(host: str, origin: str | None) -> bool:
    """Return whether an Origin header names the requested host. origin: None: no browser sent the request."""
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # brackets that do not match
        return False


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
