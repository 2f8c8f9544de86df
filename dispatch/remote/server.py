"""The thread that serves the admin socket of an open store."""

from __future__ import annotations

import threading
from functools import partial

from .admin_socket import AdminSocket
from .requests import RemoteStore, answer


class AdminServer:
    """One thread, from the open of a store to its close."""

    def __init__(self, admin_socket: AdminSocket, store: RemoteStore) -> None:
        self._socket = admin_socket
        serve = partial(admin_socket.serve, partial(answer, store))
        self._thread = threading.Thread(target=serve, name="forebay-admin", daemon=True)
        self._thread.start()

    @property
    def has_current_thread(self) -> bool:
        """Whether the caller is in a request: a close waits for it, so it must not wait for a close."""
        return self._thread is threading.current_thread()

    def stop(self) -> None:
        """Remove the socket, so that no new request comes. A second call does nothing."""
        self._socket.stop()

    def join(self, timeout: float | None) -> None:
        """Wait for the request that is being served.

        timeout: seconds, or None to wait until it is done.
        """
        if not self.has_current_thread:
            self._thread.join(timeout)
