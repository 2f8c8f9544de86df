"""Lifecycle: whether a destination object is open, or how it has ended.

A destination object begins open and ends in one of three ways. A call that still has the object then does as follows:

    open ──> closed               its row in the store's table is left: the call opens it again by its number
         ──> deleted as inactive  nobody used it for long: the call makes a new one of its name
         ──> deleted              a caller deleted it: the call raises Closed

An object never becomes open again. A destination that is opened again gets a new object.
"""

from __future__ import annotations

from enum import Enum


class Lifecycle(Enum):
    """The states of a destination object; see the top of this module."""

    OPEN = "open"
    CLOSED = "closed"
    DELETED_AS_INACTIVE = "deleted as inactive"
    DELETED = "deleted"
