"""LoadRule: how much is loaded for the lists of one lane, and whether other lists need what is read for one of them."""

from __future__ import annotations

from typing import Any, Final

from ....store.numbering import UNLIMITED
from .load import Load


class LoadRule:
    """The rule of a lane whose messages no other lane has, such as that of a queue. It bounds nothing.

    SharedReading is the rule of a subscription, which has its messages in common with others of its topic. The state
    lock guards it.
    """

    __slots__ = ()

    @property
    def list_bytes_max(self) -> int:
        """Most bytes that a list over the lane should hold."""
        return UNLIMITED

    @property
    def reads_for_others(self) -> bool:
        """Whether lists of other lanes will soon need the messages that are read for one of this lane."""
        return False

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes a load from this sequence on may bring, for a list that has room for `list_bytes`.

        LoadChooser asks for each load.
        """
        return list_bytes

    def waits_for_takes(self, sequence: int, room_bytes: int) -> bool:
        """Return whether the first message from this sequence on is loaded only when a take asks for it.

        room_bytes: what its list has room for. False: the loader puts it into the list before a take.
        """
        return False

    def on_load_installed(self, load: Load[Any]) -> None:
        """Keep what lists of other lanes need of a load that was put into its list. Called by put_into_list."""


OWN_LOADS: Final = LoadRule()
"""The rule of all lanes whose messages no other lane has."""
