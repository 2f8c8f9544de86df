"""The memory plan: what the fixed parts leave of a limit, and how large tmp-storage may be."""

from __future__ import annotations

import pytest
from simulated_disk import SimulatedDisk

from forebay import Settings, SettingsError
from forebay.dispatch.config.memory_plan import (
    ATTEMPTS_BYTES,
    CONSUMERS_BYTES,
    DIRECTORY_BYTES_MAX,
    READ_BUFFER_BYTES,
    RELOCATION_BYTES,
    WRITE_BUFFER_BYTES,
    shares_of,
    temp_limit_bytes,
)
from forebay.dispatch.config.sizes import KIB, MIB


@pytest.mark.parametrize("persistent_index", [True, False])
def test_fixed_parts_and_the_rest_are_the_whole_limit(persistent_index: bool) -> None:
    settings = Settings(memory_limit="64MiB", persistent_index=persistent_index)
    shares = shares_of(settings)
    fixed_bytes = CONSUMERS_BYTES + RELOCATION_BYTES + ATTEMPTS_BYTES + WRITE_BUFFER_BYTES + READ_BUFFER_BYTES
    assert fixed_bytes == 2 * MIB + CONSUMERS_BYTES and DIRECTORY_BYTES_MAX < WRITE_BUFFER_BYTES
    assert shares.limit_bytes == 64 * MIB
    rest = shares.index_guaranteed_bytes + shares.metadata_bytes + fixed_bytes
    assert shares.available_bytes == 64 * MIB - rest
    assert shares.metadata_bytes == (2 * MIB if persistent_index else 8 * MIB)


def test_another_limit_gives_the_shares_of_settings_with_that_limit() -> None:
    settings = Settings(memory_limit="64MiB", index_cache_size="1MiB")
    assert shares_of(settings, 16 * MIB) == shares_of(Settings(memory_limit="16MiB", index_cache_size="1MiB"))


def test_limit_that_is_too_small_for_the_index_is_refused() -> None:
    settings = Settings(memory_limit="64MiB", index_cache_size="8MiB")
    with pytest.raises(SettingsError, match="^index_cache_size='8MiB' must be at most half of memory_limit"):
        shares_of(settings, 8 * MIB)


def test_a_limit_whose_fixed_parts_leave_nothing_for_messages_is_refused() -> None:
    settings = Settings(memory_limit="4MiB", index_cache_size="2MiB")
    with pytest.raises(SettingsError, match="memory_limit of 4MiB has no room for messages.*lower index_cache_size"):
        shares_of(settings)


def test_tmp_storage_has_its_bytes_or_its_share_of_the_free_disk() -> None:
    disk = SimulatedDisk(capacity_bytes=100 * MIB)
    assert temp_limit_bytes(Settings(temp_limit="3MiB"), disk) == 3 * MIB
    assert temp_limit_bytes(Settings(temp_limit="25%"), disk) == disk.free_bytes() // 4
    assert temp_limit_bytes(Settings(temp_limit="25%"), SimulatedDisk(capacity_bytes=100 * KIB)) == MIB
