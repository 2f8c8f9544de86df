"""forebay.testing: a store without files, threads and waits, for the tests of hosts.

    >>> from forebay.testing import MemoryForebay
    >>> with MemoryForebay() as bay:
    ...     orders = bay.queue("orders")
    ...     message_id = orders.send(b"1 kg tea", delay=60.0)
    ...     late = bay.advance(60.0)
    ...     orders.get(timeout=0.0).body
    b'1 kg tea'

With pytest, `from forebay.testing import bay` in a test module or a conftest.py is a fixture: an open MemoryForebay
that is closed after the test. `forebay` imports nothing of this module, and no plugin is registered.
"""

from collections.abc import Iterator

from forebay.dispatch.memory_forebay import MemoryForebay
from forebay.store.disk.memory_disk import MemoryDisk
from forebay.store.environment.manual_clock import ManualClock

try:
    from pytest import fixture
except ModuleNotFoundError:  # everything else works without it
    pass
else:

    @fixture
    def bay() -> Iterator[MemoryForebay]:
        """Return an open MemoryForebay of this test alone."""
        with MemoryForebay() as opened:
            yield opened


__all__ = ["ManualClock", "MemoryDisk", "MemoryForebay", "bay"]


def __dir__() -> list[str]:
    """Return the public names."""
    return [name for name in __all__ if name in globals()]
