"""Reading a load: read its messages from the disk and ask the selector which are wanted. No lock is held meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from ...store.errors import ForebayError, StoreFailed, TooManyFiles
from ...store.format.record import RecordDamaged
from ...store.stored_message import StoredMessage, sequence_of
from ..core.lists.load import Load
from ..core.model.destination import TargetList


def read_load(load: Load[TargetList]) -> None:
    """Read the missing messages and evaluate the selector. Requires: no lock."""
    selector_group, lane = load.target.selector_group, load.target.lane
    if load.brings_all:
        load.messages, load.unreadable = lane.backing_store.read(load.regions)
        return
    if load.needs_matching and (selector_group.selector is not None or selector_group.notes_message_groups):
        gathered = _scan(load)
    else:
        gathered = []
        for region in load.regions:
            messages, unreadable = lane.backing_store.read((region,))
            load.unreadable += unreadable
            gathered += messages
        if selector_group.notes_message_groups:
            _judge(load, [message for message in (*load.held.values(), *gathered) if message[2] is None])
    load.held.update(zip(map(sequence_of, gathered), gathered, strict=True))


def _scan(load: Load[TargetList]) -> list[StoredMessage]:
    """Read the missing messages and find out which are unwanted; return those read, without what surely is unwanted."""
    selector_group, lane = load.target.selector_group, load.target.lane
    held = list(load.held.values())
    gathered: list[StoredMessage] = []
    judge = selector_group.scan_judge(load.survey, names_all=lane.unmatched is not None)
    for region in load.regions:
        messages, unreadable = lane.backing_store.read((region,), None if judge is None else judge.judge)
        load.unreadable += unreadable
        gathered += messages
    if judge is not None:
        undecided = judge.sort_out(held) + judge.undecided(gathered)
        load.unwanted = judge.unwanted
    else:
        undecided = held + gathered
        selector_group.decode(undecided, load.survey)
    _judge(load, undecided)
    return gathered


def _judge(load: Load[TargetList], messages: Iterable[StoredMessage]) -> None:
    """Find out which of these messages the list wants, and which group each lazy one has. Requires: no lock.

    A message that can't be read or judged is unwanted and unreadable. If it was settled meanwhile, put_into_list finds
    that out.
    """
    selector_group, lane = load.target.selector_group, load.target.lane
    for message in messages:
        sequence = message[0]
        try:
            whole = message if message[2] is not None else lane.read_headers(sequence)
        except TooManyFiles:
            raise
        except ForebayError as error:
            load.unreadable.append((sequence, error.reason if isinstance(error, StoreFailed) else str(error)))
            load.unwanted.add(sequence)
            continue
        if message[2] is None and selector_group.notes_message_groups:
            selector_group.note_message_group(lane, whole)
        try:
            is_wanted = selector_group.examine(lane, whole, load.survey)
        except RecordDamaged as damage:
            load.unreadable.append((sequence, str(damage)))
            is_wanted = False
        if not is_wanted:
            load.unwanted.add(sequence)
