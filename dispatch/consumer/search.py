"""Search: a take that found nothing in RAM, which threads and event loops drive alike."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.lists.load import Load
from ..core.model import TargetList

LOAD_WAIT_SECONDS = 5.0


@dataclass(slots=True)
class Search:
    """A take that found nothing in RAM, and what came of its last round.

    Where `Consumer.retry_take` returns None, whoever drives the take does what these three say:

    load      is_coming  has_credit  what to do
    a load    True       True        finish the load, without the lock, and look again
    None      True       True        wait for the end of another's load, which is near
    None      False      True        wait for messages to arrive
    None      False      False       wait for credit: an ack, or memory that comes free

    When its time is up it waits for nothing but a load that is under way, and returns no deliveries.
    """

    max_messages: int
    max_bytes: int | None
    began_at: float
    is_timed_out: bool = False
    """Its timeout has passed."""
    is_scanned: bool = False
    """A part of what there is was examined with its selector already."""
    is_missed: bool = False
    """It had to wait for a load."""
    load: Load[TargetList] | None = None
    """Begun for it: to be finished without the lock."""
    is_coming: bool = False
    """A load is under way, this one or another's."""
    has_credit: bool = False
    """It waits for messages, not for room to hold any."""
