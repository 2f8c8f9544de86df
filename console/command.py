"""The command `forebay console`: the console of a store that another process has open, served on this machine."""

from __future__ import annotations

import os
import secrets
import socket
from argparse import Namespace
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import uvicorn

from ..dispatch.store_directories import only_store
from ..store.errors import SettingsError, StateError
from .guard import Access
from .pages import console
from .sources import StatusSource

CONNECTIONS_MAX: Final = 64


def console_command(arguments: Namespace, print_line: Callable[[str], object]) -> int:
    """Run `forebay console DIR` until it is interrupted."""
    store = only_store(arguments.directory)
    if not 0 <= arguments.port <= 65_535:
        raise SettingsError(f"port={arguments.port} must be from 0 to 65535")
    if "" in arguments.name:
        raise SettingsError("name='' must be a name by which a proxy reaches the console")
    token = _token_of(arguments.token_file)
    is_alone = _is_loopback(arguments.host) and not arguments.name
    access = Access(token, (arguments.host, *arguments.name), open_reading=is_alone)
    app = console(StatusSource(store.root), access, arguments.bodies)
    with _listening(arguments.host, arguments.port) as listener:
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        print_line(f"http://{host}:{listener.getsockname()[1]}/")
        what = "to read messages and to change anything" if is_alone else "to read and to change anything"
        given = f"in {arguments.token_file}" if arguments.token_file is not None else token
        print_line(f"token {what}: {given}")
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def _token_of(file: str | None) -> str:
    if file is None:
        return secrets.token_urlsafe(24)
    try:
        with Path(file).open(encoding="utf-8") as opened:
            return opened.readline().strip()
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is no text") from None
    except OSError as error:
        raise SettingsError(f"token file {file} can't be read ({error.strerror})") from None


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except (socket.gaierror, UnicodeError):
        raise SettingsError(f"host={host} is neither an address of this machine nor a name of it") from None
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        advice = "--port 0 takes one that is free, and --host an address of this machine"
        raise StateError(f"the console can't listen on {host}, port {port} ({reason}): {advice}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
