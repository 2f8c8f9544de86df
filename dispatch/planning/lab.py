"""Plays recorded traffic under other rules about memory, and compares their costs with those of the library's own rule.

The measure is how much of what was delivered is read back from the journal, by charge. The *regret* of a rule beside
another is the difference: how many of a hundred delivered bytes it reads and the other would not. A hit ratio alone
would not show that a rule reads messages twice. A ratio of two rules' reads would be largest where both read next to
nothing.

Rules are played one after the other, each in a pass over the file, so that RAM holds the state of one rule at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...store.disk.disk import File
from ...store.environment.progress import OnProgress, tell_nobody
from ...store.format.trace import Event, TraceReader
from ..config.memory_plan import shares_of
from .clairvoyant import Clairvoyant
from .plan import opened_trace, settings_of, survey
from .player import TracePlayer
from .rules import RULES

EVENTS_BETWEEN_PROGRESS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class PlayedRule:
    """The result of a trace under one rule."""

    name: str
    hit_ratio: float
    """The part of the deliveries whose message had stayed in RAM since its arrival."""
    read_back_bytes: int
    """Charge of the messages that were read from the journal."""
    waits: int
    """The number of takes that found nothing in RAM and waited for a read."""
    held_back: int
    """The number of deliveries that the limit has no room for unless a consumer acknowledges first."""
    strays: int
    """The number of deliveries in another order than recorded. Beyond a few, do not trust the rest."""


@dataclass(frozen=True, slots=True)
class PlayedRules:
    """The results of a trace under one memory limit and each rule."""

    limit_bytes: int
    deliveries: int
    delivered_bytes: int
    """The charge of what was delivered."""
    rules: tuple[PlayedRule, ...]
    """The first is the library's own."""
    clairvoyant_hit_ratio: float
    clairvoyant_bytes: int
    """What even a rule that knew the future would have to read back."""

    @property
    def ours(self) -> PlayedRule:
        return self.rules[0]

    @property
    def best(self) -> PlayedRule:
        """The rule that reads least back, or the first of several such rules."""
        return min(self.rules, key=lambda rule: rule.read_back_bytes)

    @property
    def regret(self) -> float:
        """What the library's own rule reads and the best rule does not, as a part of what is delivered."""
        return self.regret_of(self.ours.read_back_bytes, self.best.read_back_bytes)

    @property
    def clairvoyant_regret(self) -> float:
        """What the library's own rule reads and a clairvoyant rule would not, as a part of what is delivered."""
        return self.regret_of(self.ours.read_back_bytes, self.clairvoyant_bytes)

    def regret_of(self, read_bytes: int, other_bytes: int) -> float:
        """Return the regret of a rule that reads `read_bytes` back beside one that reads `other_bytes`."""
        return (read_bytes - other_bytes) / self.delivered_bytes if self.delivered_bytes else 0.0


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """The results of a whole trace under each limit and rule, the smallest limit first."""

    recorded_limit_bytes: int
    seconds: float
    """The time that the trace covers."""
    events: int
    unread_bytes: int
    """Bytes at the end of the file that are no whole block: the process was killed, or still writes."""
    limits: tuple[PlayedRules, ...]


def play_rules(file: File, limits: Sequence[int] = (), on_progress: OnProgress = tell_nobody) -> RuleComparison:
    """Play a trace under each limit, or under the recorded one, and each rule.

    O(messages * limits * rules), and RAM holds the state of one rule at a time. SettingsError: it is no trace, or the
    index_cache_size that it was recorded with does not fit into a limit.

    on_progress: gets bytes of the trace, each as often as it is read.
    """
    reader = TraceReader(file)
    asked = sorted(set(limits or (reader.header.memory_limit_bytes,)))
    passes = _Passes(reader, file.size(), 1 + len(asked) * (1 + len(RULES)), on_progress)
    wanted, events, milliseconds = survey(passes.events())
    played_rules: list[PlayedRules] = []
    for limit_bytes in asked:
        shares = shares_of(settings_of(reader.header, limit_bytes))
        clairvoyant = Clairvoyant(shares.available_bytes)
        for event in passes.events():
            clairvoyant.play(event)
        clairvoyant.finish()
        rules: list[PlayedRule] = []
        for name, make in RULES.items():
            player = TracePlayer(shares, wanted, make())
            for event in passes.events():
                player.play(event)
            rules.append(_played(name, player))
        deliveries = clairvoyant.deliveries
        played_rules.append(
            PlayedRules(
                limit_bytes,
                deliveries,
                clairvoyant.delivered_bytes,
                tuple(rules),
                clairvoyant.hits / deliveries if deliveries else 1.0,
                clairvoyant.read_back_bytes,
            )
        )
    recorded_bytes = reader.header.memory_limit_bytes
    return RuleComparison(recorded_bytes, milliseconds / 1000, events, reader.unread_bytes, tuple(played_rules))


def play_rules_file(path: str, limits: Sequence[int] = (), on_progress: OnProgress = tell_nobody) -> RuleComparison:
    """Compare rules by the trace in a file. SettingsError with the file's name: it can't be read, or is no trace."""
    with opened_trace(path) as file:
        return play_rules(file, limits, on_progress)


def _played(name: str, player: TracePlayer) -> PlayedRule:
    hit_ratio = player.hits / player.deliveries if player.deliveries else 1.0
    return PlayedRule(name, hit_ratio, player.read_back_bytes, player.waits, player.held_back, player.strays)


class _Passes:
    """Reads a trace several times, and reports how much of all passes is done."""

    def __init__(self, reader: TraceReader, size_bytes: int, count: int, on_progress: OnProgress) -> None:
        self._reader = reader
        self._size_bytes = size_bytes
        self._count = count
        self._on_progress = on_progress
        self._done = 0
        # The events of a whole pass, or 0 until there was one.
        self._events = 0

    def events(self) -> Iterator[Event]:
        """Yield all events in order, in another pass over the file."""
        count = 0
        for count, event in enumerate(self._reader.events(), 1):
            if not count % EVENTS_BETWEEN_PROGRESS:
                part = min(count / self._events, 1.0) if self._events else 0.0
                self._on_progress(int((self._done + part) * self._size_bytes), self._count * self._size_bytes)
            yield event
        self._events = count
        self._done += 1
