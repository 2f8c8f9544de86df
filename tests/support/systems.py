"""Marks of tests that need something which only some systems have."""

from __future__ import annotations

import sys

import pytest

HAS_ADMIN_SOCKET = sys.platform == "linux"

needs_admin_socket = pytest.mark.skipif(
    not HAS_ADMIN_SOCKET, reason="admin=True is for Linux alone, which has SO_PEERCRED and O_PATH"
)
"""Skips a test that opens a store with admin=True, or expects the advice to do so, where that is refused."""
