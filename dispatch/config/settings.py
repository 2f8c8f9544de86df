"""Settings: everything that can be chosen about a store, in one frozen dataclass.

A Settings object that exists is valid: its constructor checks each field and each pair of fields, and raises
SettingsError with name and value of the first that cannot be honoured. Nothing here is written to disk. A store may be
opened again with other settings; only broker_name, which names its directory, leads to another store.

Below each field, the first line gives its meaning and unit, the second the price of another choice. The tables in the
documentation are made from these lines.
"""

from __future__ import annotations

import dataclasses
import reprlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypedDict, get_args

from ...cache.process.process_memory import share_of_memory_bytes
from ...store.disk.layout import PathArgument, check_path, validate_broker_name
from ...store.errors import ArgumentError, SettingsError, argument_error
from ...store.numbering import BLOCK_MESSAGES
from .policy import DestinationPolicy, check_policies
from .sizes import GIB, KIB, MIB, format_size, parse_share, parse_size

SyncMode = Literal["always", "interval", "never"]

OnMissing = Literal["refuse", "report"]

MEMORY_LIMIT_BYTES_MIN: Final = 4 * MIB
"""The smallest memory limit. With less, write buffers and index blocks would leave no room for messages."""

AUTO: Final = "auto"
"""A memory limit that follows the free memory of the machine or container."""

MESSAGE_BYTES_MAX: Final = GIB
"""The largest message that any setting admits; readers refuse a greater length before they allocate."""

TEMP_LIMIT_BYTES_MIN: Final = MIB

_MIN_INTERVAL_SECONDS: Final = 0.001
_MAX_SECONDS: Final = 1_000_000.0  # eleven days, which threading can wait for on every system


class SettingsWarning(UserWarning):
    """A property of another broker's configuration cannot be honoured; the text names it and says why."""


class _FrozenPolicies(dict[str, DestinationPolicy]):
    """Policies by pattern, which nobody can change. A dict, because `dataclasses.asdict` and `json` know dicts."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("settings are frozen: make others with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The keywords of `forebay.open`, which also takes them as this one object.

    Sizes are bytes as an int, or a string such as "64MiB" or "1.5 GB". Durations are seconds. A size field keeps what
    was given; the number it stands for is in an attribute of that name with `_bytes`; that of `max_message_bytes` is
    `max_message_size_bytes`.
    """

    # Behaviour: promises and limits.

    broker_name: str = "localhost"
    """Name of the store's folder below the directory that is opened.
    Another name is another store, empty at first."""

    sync: SyncMode = "always"
    """When a confirmed call reaches the device: "always" before it returns, "interval" soon after, "never" unforced.
    Not "always": faster, and a kill still loses nothing; a power cut loses an interval, or all that was unwritten."""

    memory_limit: int | str | None = None
    """Bytes that all caches may hold, at least 4MiB, or a share of the machine's or container's RAM; None: "25%".
    More: fewer disk reads, a larger process. "auto": at most "25%", and less while machine or container run short."""

    max_message_bytes: int | str = "64MiB"
    """Bytes of the largest message accepted, from 1KiB to 1GiB.
    More: one message may push everything else out of RAM, and takes longer to write and to verify."""

    store_limit: int | str | None = None
    """Bytes of journal above which sends are refused, or a share such as "80%" of the free disk; None: the disk itself.
    More: a longer backlog before `StoreFull`, less disk for others."""

    on_missing_data_log: OnMissing = "refuse"
    """If durable bytes are missing or damaged: "refuse" to open, or open without them and "report" each place.
    "report": the store always opens; what is lost is named once, and a lost ack lets its message come again."""

    temp_limit: int | str = "50%"
    """Bytes of tmp-storage, at least 1MiB, or a share such as "50%" of the disk that is free when the store opens.
    More: a longer backlog of non-persistent messages before `StoreFull`, less disk for others."""

    lock_wait_seconds: float = 0.0
    """Seconds to wait for a directory that another process holds; 0: refuse at once.
    More: a take-over succeeds without retries, a mistaken second start is noticed later."""

    verify_on_open: bool = False
    """Whether opening reads the whole journal and raises JournalCorrupt if anything in it is damaged.
    True: opening takes as long as reading the journal. False: old damage is found when a message is loaded."""

    background: bool = True
    """Whether threads of the library load ahead, checkpoint and clean up.
    False: no thread is started; the host must call `step()`, which does this work."""

    policies: Mapping[str, DestinationPolicy] = field(default_factory=dict, hash=False)
    """Rules by pattern of destination names, such as {"orders.*": DestinationPolicy(prefetch=10)}.
    Of the patterns that match, the most specific one decides alone; where none matches, the defaults."""

    archive_data_logs: bool = False
    """Whether data logs that nothing needs are moved to the archive instead of being deleted.
    True: they can be looked at later; their disk is free again when somebody empties the archive."""

    archive_directory: PathArgument | None = None
    """Directory in which the archive is a folder of the broker's name; None: `archive/` in the store's folder.
    Another one may be of another file system: each data log is copied, not renamed."""

    record_trace: PathArgument | None = None
    """File in which traffic is recorded for `forebay plan`, without names, headers or bodies; None: it is not.
    A file: a message that passes alone writes 13 bytes and costs 5 µs of CPU; in batches a tenth. It ends at 4 GiB."""

    # Performance: the same promises at another price.

    sync_interval_seconds: float = 1.0
    """Seconds between two syncs with sync="interval".
    More: fewer syncs, more to lose in a power cut."""

    use_vectored_io: bool = True
    """Whether the messages of a batch are joined, up to 256 in one record and one write.
    False: a record and a write for each message, which is much slower; damage to a record costs one message."""

    map_journal: bool = True
    """Whether a small append is a copy into mapped memory instead of a system call, on ext4 and XFS under Linux.
    False, and with sync="always": 3 µs more a message; a file system that shuts down fails the store, no process."""

    max_file_length: int | str = "32MiB"
    """Bytes of a full data log, from 64KiB to 1GiB; a larger message gets a larger file.
    More: fewer files, and disk given back in larger pieces, later."""

    max_checkpoint_adds: int = 131_072
    """Messages added since the last checkpoint that force the next one, whatever the time.
    More: fewer index writes under load, a longer replay after a kill."""

    checkpoint_interval_seconds: float = 5.0
    """Seconds between two checkpoints.
    More: fewer index writes, a longer replay after a kill."""

    cleanup_interval_seconds: float = 30.0
    """Seconds between two searches for data logs that nothing needs any more.
    More: less work, disk given back later."""

    status_interval_seconds: float | None = 1.0
    """Seconds, at least 1, between two status files, which `forebay top`, `queues` and `health` read; None: no file.
    More: less work; these commands show older figures. None: they read the journal alone and show no consumer."""

    admin: bool = False
    """Whether a socket beside the journal lets other processes of this user explain, resize, pause, purge and move.
    True: one thread more, and whoever may open that socket may change the store."""

    persistent_index: bool = True
    """Whether the index is on disk. False: it takes an eighth of memory_limit, and each open replays the journal.
    False: less is written; opening takes longer; sends fail once the backlog needs more index than fits."""

    index_transaction_adds: int = 1_000_000
    """References that one transaction of a checkpoint brings into the index on disk, at least 512; a block has 512.
    Fewer: smaller transactions, and a kill between two of one checkpoint costs a replay of the whole journal."""

    index_page_size: int | str = "16KiB"
    """Bytes of a page of the index, a power of two from 512B to 64KiB.
    More: fewer and larger reads, more written for a small change."""

    index_cache_size: int | str | None = None
    """Bytes of index pages in RAM, a part of memory_limit, from 256KiB to half of it; None: an eighth, at most 32MiB.
    More: fewer index reads, less room for messages."""

    # The size fields as numbers.

    memory_limit_bytes: int = field(init=False, repr=False)
    max_message_size_bytes: int = field(init=False, repr=False)
    max_file_length_bytes: int = field(init=False, repr=False)
    index_page_size_bytes: int = field(init=False, repr=False)
    index_cache_size_bytes: int = field(init=False, repr=False)
    store_limit_bytes: int | None = field(init=False, repr=False)
    store_limit_share: float | None = field(init=False, repr=False)
    temp_limit_bytes: int | None = field(init=False, repr=False)
    temp_limit_share: float | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        validate_broker_name(self.broker_name)
        self._check_choices()
        for name in ("archive_directory", "record_trace"):
            object.__setattr__(self, name, _path(name, getattr(self, name)))  # frozen for everybody else
        self._check_intervals()
        if self.admin and not self.background:
            raise SettingsError("admin=True needs background=True: a thread serves its socket")
        _check_count("max_checkpoint_adds", self.max_checkpoint_adds)
        _check_count("index_transaction_adds", self.index_transaction_adds, minimum=BLOCK_MESSAGES)
        check_policies(self.policies)
        object.__setattr__(self, "policies", _FrozenPolicies(self.policies))
        for name, size_bytes in self._parsed_sizes().items():
            object.__setattr__(self, name, size_bytes)

    def _check_choices(self) -> None:
        _check_choice("sync", self.sync, get_args(SyncMode))
        _check_choice("on_missing_data_log", self.on_missing_data_log, get_args(OnMissing))
        for name in (
            "verify_on_open",
            "background",
            "use_vectored_io",
            "map_journal",
            "persistent_index",
            "archive_data_logs",
            "admin",
        ):
            _check_choice(name, getattr(self, name), (True, False))

    def _check_intervals(self) -> None:
        _check_seconds("lock_wait_seconds", self.lock_wait_seconds, minimum=0.0)
        _check_seconds("sync_interval_seconds", self.sync_interval_seconds, minimum=_MIN_INTERVAL_SECONDS)
        _check_seconds("checkpoint_interval_seconds", self.checkpoint_interval_seconds, minimum=_MIN_INTERVAL_SECONDS)
        _check_seconds("cleanup_interval_seconds", self.cleanup_interval_seconds, minimum=_MIN_INTERVAL_SECONDS)
        if self.status_interval_seconds is not None:
            _check_seconds("status_interval_seconds", self.status_interval_seconds, minimum=1.0, instead=", or None")

    def _parsed_sizes(self) -> dict[str, int | float | None]:
        """Return the values of the fields that are made from sizes and shares, by name."""
        memory_limit: object = "25%" if self.memory_limit in (None, AUTO) else self.memory_limit
        memory_share = parse_share("memory_limit", memory_limit)
        if memory_share is not None:
            memory_limit = share_of_memory_bytes(memory_share)
        memory_limit_bytes = parse_size("memory_limit", memory_limit, minimum=MEMORY_LIMIT_BYTES_MIN)
        share = parse_share("store_limit", self.store_limit)
        temp_share = parse_share("temp_limit", self.temp_limit)
        has_store_limit = self.store_limit is not None and share is None
        return {
            "store_limit_bytes": parse_size("store_limit", self.store_limit, minimum=MIB) if has_store_limit else None,
            "store_limit_share": share,
            "temp_limit_bytes": None
            if temp_share is not None
            else parse_size("temp_limit", self.temp_limit, minimum=TEMP_LIMIT_BYTES_MIN),
            "temp_limit_share": temp_share,
            "memory_limit_bytes": memory_limit_bytes,
            "max_message_size_bytes": parse_size(
                "max_message_bytes", self.max_message_bytes, minimum=KIB, maximum=MESSAGE_BYTES_MAX
            ),
            "max_file_length_bytes": parse_size("max_file_length", self.max_file_length, minimum=64 * KIB, maximum=GIB),
            "index_page_size_bytes": _index_page_size_bytes(self.index_page_size),
            "index_cache_size_bytes": index_cache_bytes(self.index_cache_size, memory_limit_bytes),
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Return how pickle and copy make the object again: from its fields, which are checked anew."""
        fields = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self) if entry.init}
        return _settings_of, (fields | {"policies": dict(self.policies)},)

    @classmethod
    def from_activemq(cls, path: PathArgument) -> Settings:
        """Return the settings that an `activemq.xml` asks for; warn of each property that can't be honoured.

        Reads that file alone and resolves no placeholder. A SettingsWarning names the property, its line and the
        reason; it also warns of a field that means something else than the property. SettingsError, with the line, if
        the file is no ActiveMQ configuration. `forebay settings FILE` prints the same.
        """
        # Imported late: only hosts that come from ActiveMQ need its parser and tables.
        from .activemq_importer import read_activemq

        fields, findings = read_activemq(path, Settings)
        for finding in findings:
            fate = "is not honoured" if finding.problem else f"becomes {finding.becomes}"
            if finding.problem or finding.warning:
                text = f'{path!s}, line {finding.line}: {finding.property}="{finding.value}" {fate}: '
                warnings.warn(text + (finding.problem or finding.warning), SettingsWarning, stacklevel=2)
        return Settings(**fields)

    @classmethod
    def from_toml(cls, path: PathArgument) -> Settings:
        """Return the settings of a TOML file: fields at its top, and a table `[policies."orders.>"]` for each policy.

        "none" stands for None in a field with another default. The file is at most 1 MiB. SettingsError, with the name
        of the file: it is no TOML, or has an unknown field or a value that Settings refuses.

            memory_limit = "256MiB"

            [policies."orders.>"]
            max_messages = 100_000
        """
        from .settings_file import read_toml  # imported late: only hosts with such a file need its parser

        fields = read_toml(path, cls)
        try:
            return cls(**fields)
        except SettingsError as error:
            raise SettingsError(f"{path!s}: {error}") from error

    @classmethod
    def from_env(cls, prefix: str = "FOREBAY_", environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings that variables of the environment give: FOREBAY_MEMORY_LIMIT=64MiB is memory_limit.

        "none" is None; true, yes, on and 1 are True. environment: instead of the process's own. Other variables with
        the prefix are ignored, such as those of another store with a longer prefix (FOREBAY_ORDERS_SYNC). SettingsError
        for a misspelt name (FOREBAY_MEM_LIMIT, FOREBAY_MEMORY), and for a value that Settings refuses.
        """
        from .settings_file import read_environment

        return cls(**read_environment(prefix, environment, cls))

    def __dir__(self) -> list[str]:
        """Return the settings, and the methods that read and write them. Other attributes are for the engine."""
        names = [field.name for field in dataclasses.fields(self) if field.init]
        return [*names, "from_activemq", "from_env", "from_toml", "to_toml"]

    def to_toml(self) -> str:
        """Return the text of a TOML file with all fields, from which `from_toml` makes equal settings."""
        from .settings_file import write_toml

        return write_toml(self)


class SettingsFields(TypedDict, total=False):
    """The keywords of `forebay.open`, for type checkers, which then find a wrong setting.

    The class repeats the fields of Settings, because a type checker reads the keys of a TypedDict from its source
    alone. A test compares the two.
    """

    broker_name: str
    sync: SyncMode
    memory_limit: int | str | None
    max_message_bytes: int | str
    store_limit: int | str | None
    on_missing_data_log: OnMissing
    temp_limit: int | str
    lock_wait_seconds: float
    verify_on_open: bool
    background: bool
    policies: Mapping[str, DestinationPolicy]
    archive_data_logs: bool
    archive_directory: PathArgument | None
    record_trace: PathArgument | None
    sync_interval_seconds: float
    use_vectored_io: bool
    map_journal: bool
    max_file_length: int | str
    max_checkpoint_adds: int
    checkpoint_interval_seconds: float
    cleanup_interval_seconds: float
    status_interval_seconds: float | None
    admin: bool
    persistent_index: bool
    index_transaction_adds: int
    index_page_size: int | str
    index_cache_size: int | str | None


def _settings_of(fields: dict[str, Any]) -> Settings:
    return Settings(**fields)


def settings_from(settings: Settings | None, fields: Mapping[str, Any]) -> Settings:
    """Return the given settings, or the defaults, with some fields replaced.

    SettingsError for an unknown name, with the closest field, and for a value that Settings refuses.
    """
    known = [entry.name for entry in dataclasses.fields(Settings) if entry.init]
    for name in fields:
        if name not in known:
            raise SettingsError(f"there is no setting {name!r}: {_advice(name, known)}")
    if settings is None:
        return Settings(**fields)
    if not isinstance(settings, Settings):
        raise ArgumentError(f"settings must be a Settings object, not {type(settings).__name__}: give fields by name")
    return dataclasses.replace(settings, **fields)


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    # By type too, because 1 == True.
    if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
        allowed = " or ".join(_written(choice) for choice in choices)
        raise argument_error(f"{name}={reprlib.repr(value)} must be {allowed}", value, *map(type, choices))


def _path(name: str, value: Any) -> str | None:
    """Return a path as text."""
    return None if value is None else check_path(name, value)


def _check_seconds(name: str, value: object, *, minimum: float, instead: str = "") -> None:
    """Raise SettingsError unless this is a number of seconds from a minimum on. instead: what else is valid."""
    # The chained comparison refuses NaN as well.
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= _MAX_SECONDS:
        problem = (
            f"{name}={reprlib.repr(value)} must be seconds as a number such as 2.5, "
            f"from {minimum:g} to {_MAX_SECONDS:,.0f}{instead}"
        )
        raise argument_error(problem, value, int, float)


def _check_count(name: str, value: object, *, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        problem = f"{name}={reprlib.repr(value)} must be a whole number such as 1000, at least {minimum}"
        raise argument_error(problem, value, int)


def _index_page_size_bytes(value: object) -> int:
    size_bytes = parse_size("index_page_size", value, minimum=512, maximum=64 * KIB)
    if size_bytes.bit_count() != 1:
        raise SettingsError(f'index_page_size={reprlib.repr(value)} must be a power of two, such as "16KiB"')
    return size_bytes


def index_cache_bytes(value: object, memory_limit_bytes: int) -> int:
    """Return the bytes of the index cache that a setting asks for under a memory limit."""
    if value is None:
        return min(memory_limit_bytes // 8, 32 * MIB)
    size_bytes = parse_size("index_cache_size", value, minimum=256 * KIB)
    if size_bytes > memory_limit_bytes // 2:
        raise SettingsError(
            f"index_cache_size={reprlib.repr(value)} must be at most half of memory_limit "
            f"({format_size(memory_limit_bytes)}): lower it, or raise memory_limit"
        )
    return size_bytes


def _advice(name: str, known: list[str]) -> str:
    import difflib  # only for a mistake

    closest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {closest[0]!r}?" if closest else f"there are {', '.join(known)}"


def _written(value: object) -> str:
    """Return the value as Python code for a call."""
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:_}" if type(value) is int else repr(value)
