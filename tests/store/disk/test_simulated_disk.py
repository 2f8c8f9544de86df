"""What a crash takes from the simulated disk and what it leaves, and that it fails as ordered."""

from __future__ import annotations

import errno
from itertools import islice
from operator import methodcaller
from random import Random

import pytest
from simulated_disk import MUTATING_CALLS, PowerCut, SimulatedDisk, SimulatedFile
from simulated_inode import SECTOR_BYTES

A, B, ZERO = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES, bytes(SECTOR_BYTES)

Files = dict[str, bytes]


def durable(content: bytes = b"", name: str = "log") -> tuple[SimulatedDisk, SimulatedFile]:
    """A disk with one file, nothing of it unsynced, and its handle at the end."""
    disk = SimulatedDisk()
    file = disk.open(name, create=True)
    file.append(content)
    file.sync()
    disk.sync_directory("")
    assert not disk.has_unsynced
    return disk, file


def cut(disk: SimulatedDisk, mode: PowerCut, seed: int = 0) -> Files:
    return disk.crash_power(Random(seed), mode).image()


def every_cut(disk: SimulatedDisk) -> list[Files]:
    """The distinct images of every_power_cut, in order."""
    images: list[Files] = []
    for image in disk.every_power_cut():
        assert not image.has_unsynced
        if image.image() not in images:
            images.append(image.image())
    return images


def logs(images: list[Files]) -> set[bytes]:
    return {image["log"] for image in images}


# What a kill and a power cut leave of a file.


def test_a_kill_takes_nothing_but_what_it_left_can_still_be_lost() -> None:
    disk = SimulatedDisk()
    disk.open("log", create=True).append(A)
    after = disk.crash_process()
    assert after.image() == {"log": A}
    assert cut(after, PowerCut.SYNCED) == {}


def test_a_power_cut_keeps_what_was_synced_in_every_mode() -> None:
    disk, file = durable(A + B)
    file.append(B)
    for mode in PowerCut:
        for seed in range(20):
            assert cut(disk, mode, seed)["log"][: 2 * SECTOR_BYTES] == A + B


def test_what_was_not_synced_is_all_kept_or_all_gone_in_the_plain_modes() -> None:
    disk, file = durable(A)
    file.append(B)
    file.seek(0)
    file.append(B)
    disk.open("new", create=True).append(b"x")
    assert cut(disk, PowerCut.KEPT) == {"log": B + B, "new": b"x"}
    assert cut(disk, PowerCut.SYNCED) == {"log": A}


def test_any_sectors_of_one_write_arrive() -> None:
    disk, file = durable(A * 3)
    file.seek(0)
    file.append(B * 3)
    assert logs(every_cut(disk)) == {x + y + z for x in (A, B) for y in (A, B) for z in (A, B)}


def test_a_sector_is_found_in_one_of_its_versions_and_never_torn() -> None:
    disk, file = durable(bytes(SECTOR_BYTES))
    for piece in (b"one", b"two", b"three"):
        file.seek(0 if piece == b"one" else 3 if piece == b"two" else 6)
        file.append(piece)
    versions = {piece.ljust(SECTOR_BYTES, b"\0") for piece in (b"", b"one", b"onetwo", b"onetwothree")}
    assert logs(every_cut(disk)) == versions


def test_a_file_that_grew_is_found_in_each_of_its_sizes_with_holes_of_zeros() -> None:
    disk, file = durable(A)
    file.append(B)
    file.append(b"bb")
    sizes = {A, A + B, A + B + b"bb"}
    holes = {A + ZERO, A + ZERO + b"bb", A + B + bytes(2), A + ZERO + bytes(2)}
    assert logs(every_cut(disk)) == sizes | holes


def test_preallocated_space_reads_as_zeros_and_its_size_is_durable_after_a_sync() -> None:
    disk, file = durable(A)
    file.preallocate(3 * SECTOR_BYTES)
    assert logs(every_cut(disk)) == {A, A + ZERO + ZERO}
    file.sync()
    assert cut(disk, PowerCut.SYNCED) == {"log": A + ZERO + ZERO}
    file.append(B)
    assert logs(every_cut(disk)) == {A + ZERO + ZERO, A + B + ZERO}


def test_a_truncation_arrives_or_not_and_what_was_cut_never_comes_back_under_it() -> None:
    disk, file = durable(A * 3)
    file.truncate(SECTOR_BYTES)
    assert logs(every_cut(disk)) == {A * 3, A}
    file.preallocate(3 * SECTOR_BYTES)
    assert logs(every_cut(disk)) == {A * 3, A, A + ZERO + ZERO}
    file.seek(SECTOR_BYTES)
    file.append(B)
    assert logs(every_cut(disk)) == {A * 3, A, A + ZERO + ZERO, A + B + ZERO}
    file.sync()
    assert logs(every_cut(disk)) == {A + B + ZERO}


def test_a_truncation_within_a_sector_leaves_its_head_alone() -> None:
    disk, file = durable(A + A)
    file.truncate(100)
    for content in logs(every_cut(disk)):
        assert content[:100] == A[:100]
        assert len(content) in (100, 2 * SECTOR_BYTES)
    assert {A + A, A[:100]} <= logs(every_cut(disk))


def test_extended_keeps_sizes_without_the_data() -> None:
    disk, file = durable(A)
    file.append(B)
    found = {cut(disk, PowerCut.EXTENDED, seed)["log"] for seed in range(50)}
    assert found == {A + ZERO, A + B}


def test_stale_shows_what_other_files_held_but_only_where_nothing_was_synced() -> None:
    disk, file = durable(A)
    other = disk.open("other", create=True)
    other.append(b"s" * 4 * SECTOR_BYTES)
    other.sync()
    disk.remove("other")
    disk.sync_directory("")
    file.preallocate(3 * SECTOR_BYTES)
    file.append(B)
    found = {cut(disk, PowerCut.STALE, seed)["log"] for seed in range(100)}
    stale = b"s" * SECTOR_BYTES
    assert {A + B + stale, A + stale + stale} <= found
    assert all(content.startswith(A) and len(content) == 3 * SECTOR_BYTES for content in found)
    file.sync()
    assert {cut(disk, PowerCut.STALE, seed)["log"] for seed in range(50)} == {A + B + ZERO}


# What they leave of names.


def test_a_synced_file_whose_directory_was_not_synced_has_no_name() -> None:
    disk = SimulatedDisk()
    file = disk.open("log", create=True)
    file.append(A)
    file.sync()
    assert every_cut(disk) == [{"log": A}, {}]


def test_a_synced_name_of_a_file_that_was_not_synced_is_of_an_empty_file() -> None:
    disk = SimulatedDisk()
    disk.open("log", create=True).append(A)
    disk.sync_directory("")
    assert cut(disk, PowerCut.SYNCED) == {"log": b""}


def test_a_rename_arrives_whole_or_not_at_all() -> None:
    disk, _ = durable(A)
    new = disk.open("new", create=True)
    new.append(B)
    new.sync()
    disk.sync_directory("")
    disk.rename("new", "log")
    assert every_cut(disk) == [{"log": B}, {"log": A, "new": B}]
    disk.sync_directory("")
    assert every_cut(disk) == [{"log": B}]


def test_a_rename_between_directories_takes_the_sync_of_both() -> None:
    disk, _ = durable(A)
    disk.make_directory("archive")
    disk.rename("log", "archive/log")
    disk.sync_directory("archive")
    assert every_cut(disk) == [{"archive/log": A}, {"log": A}]
    disk.sync_directory("")
    assert every_cut(disk) == [{"archive/log": A}]


def test_removals_arrive_in_any_order() -> None:
    disk, _ = durable(b"1", "1")
    for name in ("2", "3"):
        file = disk.open(name, create=True)
        file.append(name.encode())
        file.sync()
    disk.sync_directory("")
    for name in ("1", "2", "3"):
        disk.remove(name)
    assert len(every_cut(disk)) == 8


def test_a_change_of_a_name_never_arrives_before_the_one_it_builds_on() -> None:
    disk = SimulatedDisk()
    file = disk.open("temporary", create=True)
    file.append(A)
    file.sync()
    disk.rename("temporary", "log")
    disk.remove("log")
    assert every_cut(disk) == [{}, {"log": A}, {"temporary": A}]


def test_a_later_change_waits_for_a_rename_that_still_waits_for_its_other_directory() -> None:
    disk, _ = durable(A)
    disk.make_directory("archive")
    disk.rename("log", "archive/log")
    disk.remove("archive/log")
    disk.sync_directory("archive")
    assert every_cut(disk) == [{}, {"archive/log": A}, {"log": A}]
    disk.sync_directory("")
    assert every_cut(disk) == [{}]


def test_a_directory_is_durable_when_made_and_also_when_found() -> None:
    disk = SimulatedDisk()
    disk.fail("sync_directory", 2, errno.EIO)
    with pytest.raises(OSError):
        disk.make_directory("kr-store/data")
    assert not disk.crash_power(Random(0), PowerCut.SYNCED).exists("kr-store/data")
    disk.crash_process().make_directory("kr-store/data")
    disk.make_directory("kr-store/data")
    assert disk.crash_power(Random(0), PowerCut.SYNCED).exists("kr-store/data")


# Images.


def test_neither_of_two_images_sees_what_the_other_does() -> None:
    disk, file = durable(A)
    file.append(A)
    before = disk.image()
    images = [disk.crash_process(), *(disk.crash_power(Random(0), mode) for mode in PowerCut)]
    images += islice(disk.every_power_cut(), 3)
    were = [image.image() for image in images]
    assert disk.image() == before
    for image in images:
        image.open("log").append(B)
        image.open("new", create=True)
        image.open("log").truncate(100)
    assert disk.image() == before
    images = [disk.crash_process(), *(disk.crash_power(Random(0), mode) for mode in PowerCut)]
    images += islice(disk.every_power_cut(), 3)
    file.seek(0)
    file.append(B)
    disk.flip_bit("log", 0, 0)
    disk.remove("log")
    assert [image.image() for image in images] == were


def test_a_handle_stays_with_the_image_it_was_opened_on() -> None:
    disk, file = durable(A)
    image = disk.crash_process()
    file.append(B)
    file.sync()
    assert (disk.image(), image.image()) == ({"log": A + B}, {"log": A})


def test_zeros_at_the_end_of_a_file_cost_nothing() -> None:
    disk, file = durable(A)
    size = 1 << 39
    file.preallocate(size)
    for image in (disk.crash_process(), disk.crash_power(Random(0), PowerCut.KEPT)):
        found = image.open("log")
        assert found.size() == size
        assert found.read(0, len(A) + 3) == A + bytes(3)
        assert found.read(size - 3, 10) == bytes(3) and found.read(size, 10) == b""
        found.truncate(10)
        assert image.image() == {"log": A[:10]}
    assert cut(disk, PowerCut.SYNCED) == {"log": A}


def test_digest_tells_apart_what_a_reader_does() -> None:
    written, preallocated, shorter = (durable(A) for _ in range(3))
    written[1].append(ZERO)
    preallocated[1].preallocate(2 * SECTOR_BYTES)
    assert written[0].digest() == preallocated[0].digest() != shorter[0].digest()
    preallocated[0].flip_bit("log", 2 * SECTOR_BYTES - 1, 7)
    assert written[0].digest() != preallocated[0].digest()


def test_an_image_has_no_faults_no_hook_and_no_calls() -> None:
    disk, _ = durable(A)
    disk.fail(None, 1, errno.EIO, sticky=True)
    disk.on_call = lambda call, name: pytest.fail("called")
    for image in (disk.crash_process(), disk.crash_power(Random(0), PowerCut.ANY)):
        assert not any(image.calls.values())
        image.open("log").append(B)


def test_the_same_seed_gives_the_same_image() -> None:
    disk, file = durable(A)
    for _ in range(20):
        file.append(b"x" * 300)
    assert cut(disk, PowerCut.ANY, 7) == cut(disk, PowerCut.ANY, 7)
    assert len({cut(disk, PowerCut.ANY, seed)["log"] for seed in range(50)}) > 20


def change_file(random: Random, file: SimulatedFile) -> None:
    length = random.randrange(4 * SECTOR_BYTES)
    append, seek = methodcaller("append", random.randbytes(length)), methodcaller("seek", length)
    cut, grow = methodcaller("truncate", length), methodcaller("preallocate", length)
    random.choice([append, seek, cut, grow, methodcaller("sync")])(file)


def change_names(random: Random, disk: SimulatedDisk, files: list[SimulatedFile]) -> None:
    name, to = random.choices(("log", "new", "d/log"), k=2)
    rename, remove = methodcaller("rename", name, to), methodcaller("remove", name)
    sync = methodcaller("sync_directory", random.choice(("", "d")))
    try:
        if random.random() < 0.25:
            files.append(disk.open(name, create=True))
        else:
            random.choice([rename, remove, sync])(disk)
    except OSError as error:
        assert error.errno in (errno.ENOENT, errno.EEXIST)


@pytest.mark.parametrize("seed", range(30))
def test_a_byte_is_after_every_cut_one_that_it_was_since_the_sync(seed: int) -> None:
    random = Random(seed)
    disk, file = durable(A)
    versions = [A]
    for _ in range(100):
        change_file(random, file)
        versions.append(disk.image()["log"])
        if not disk.has_unsynced:
            del versions[:-1]
        sizes = {len(version) for version in versions}
        for mode in PowerCut:
            content = disk.crash_power(random, mode).image()["log"]
            assert len(content) in sizes, f"seed {seed}"
            for offset in random.sample(range(min(sizes)), min(20, *sizes)):
                assert content[offset] in {version[offset] for version in versions}, f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_every_power_cut_holds_what_any_other_mode_leaves(seed: int) -> None:
    random = Random(seed)
    disk, file = durable(A)
    disk.make_directory("d")
    files = [file]
    compared = 0
    for _ in range(40):
        if random.random() < 0.6:
            change_file(random, random.choice(files))
        else:
            change_names(random, disk, files)
        states = list(islice(disk.every_power_cut(), 300))
        if len(states) == 300:
            disk = disk.crash_power(random, PowerCut.SYNCED)
            files = [disk.open(name) for name in disk.image()] or [disk.open("log", create=True)]
            continue
        images = [state.image() for state in states]
        assert images[0] == cut(disk, PowerCut.KEPT)
        assert images[-1] == cut(disk, PowerCut.SYNCED)
        assert disk.has_unsynced or images == [disk.image()]
        for mode in (PowerCut.ANY, PowerCut.EXTENDED):
            assert disk.crash_power(random, mode).image() in images, f"seed {seed}"
            compared += 1
    assert compared > 20


# Faults, hooks, counts.


def test_the_nth_call_of_a_kind_fails_once() -> None:
    disk, file = durable()
    disk.fail("write", 2, errno.ENOSPC)
    file.append(b"1")
    file.sync()
    with pytest.raises(OSError) as caught:
        file.append(b"2")
    assert caught.value.errno == errno.ENOSPC
    file.append(b"3")
    assert disk.image() == {"log": b"13"}


def test_a_sticky_fault_lasts_until_it_is_cured() -> None:
    disk, file = durable()
    disk.fail("write", 2, errno.ENOSPC, sticky=True)
    file.append(b"1")
    for _ in range(3):
        with pytest.raises(OSError):
            file.append(b"2")
    disk.cure()
    file.append(b"3")
    assert disk.image() == {"log": b"13"}


def test_every_call_can_be_made_to_fail_by_its_number() -> None:
    def run(disk: SimulatedDisk) -> None:
        disk.make_directory("d")
        file = disk.open("d/a", create=True)
        file.append(A)
        file.preallocate(2000)
        file.truncate(1000)
        file.sync()
        disk.rename("d/a", "d/b")
        disk.sync_directory("d")
        assert disk.exists("d/b") and disk.list("d") == ["b"]
        assert disk.open_for_reading("d/b").read(0, 10) == A[:10]
        assert disk.open("d/b").size() == 1000
        assert disk.free_bytes() > 0
        disk.remove("d/b")

    whole = SimulatedDisk()
    run(whole)
    assert all(whole.calls.values()), "a kind of call is missing above"
    failed = set()
    for nth in range(1, sum(whole.calls.values()) + 1):
        disk = SimulatedDisk()
        disk.fail(None, nth, errno.EIO)
        with pytest.raises(OSError):
            run(disk)
        assert sum(disk.calls.values()) == nth
        failed.add(str(sorted(disk.calls.items())))
    assert len(failed) == sum(whole.calls.values())


def test_a_failed_write_leaves_as_much_as_ordered_and_the_position_where_it_was() -> None:
    disk, file = durable(b"before")
    disk.fail("write", 1, errno.EIO, written_bytes=3)
    with pytest.raises(OSError):
        file.append(b"XXXXX")
    assert disk.image() == {"log": b"beforeXXX"}
    file.append(b"y")
    assert disk.image() == {"log": b"beforeyXX"}


def test_a_failed_sync_loses_what_readers_still_see_and_no_later_sync_brings_it_back() -> None:
    disk, file = durable(A)
    file.append(B)
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert disk.image() == {"log": A + B}
    assert disk.has_unsynced
    after = disk.crash_process()
    assert cut(after, PowerCut.SYNCED) == {"log": A + ZERO}
    assert logs(every_cut(after)) == {A + B, A + ZERO}


def test_what_a_failed_sync_lost_is_durable_when_it_is_written_and_synced_again() -> None:
    disk, file = durable(A)
    file.append(B)
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError):
        file.sync()
    file.seek(SECTOR_BYTES)
    file.append(B)
    file.sync()
    assert not disk.has_unsynced
    assert cut(disk, PowerCut.SYNCED) == {"log": A + B}


def test_a_failed_sync_may_lose_the_size_too() -> None:
    disk, file = durable(A)
    file.append(B)
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError):
        file.sync()
    assert cut(disk, PowerCut.SYNCED) == {"log": A}


def test_a_disk_that_stops_in_a_sync_reports_success_for_what_is_lost_and_then_fails_every_call() -> None:
    disk, file = durable(A)
    disk.stop_in_sync(2)
    file.append(B)
    file.sync()
    file.append(ZERO)
    file.sync()
    assert cut(disk, PowerCut.SYNCED) == {"log": A + B}
    for call in (file.sync, lambda: file.append(A), lambda: disk.remove("log"), lambda: file.read(0, 1)):
        with pytest.raises(OSError, match="Input/output error"):
            call()


def test_the_hook_sees_each_changing_call_before_it_happens() -> None:
    disk = SimulatedDisk()
    seen: list[tuple[str, str, Files]] = []
    disk.on_call = lambda call, name: seen.append((call, name, disk.crash_process().image()))
    disk.make_directory("d")
    file = disk.open("d/a", create=True)
    file.append(b"x")
    file.preallocate(2)
    file.truncate(1)
    file.sync()
    assert file.read(0, 1) == b"x" and file.size() == 1
    disk.rename("d/a", "d/b")
    disk.sync_directory("d")
    disk.remove("d/b")
    assert seen == [
        ("make_directory", "d", {}),
        ("sync_directory", "", {}),
        ("create", "d/a", {}),
        ("write", "d/a", {"d/a": b""}),
        ("preallocate", "d/a", {"d/a": b"x"}),
        ("truncate", "d/a", {"d/a": b"x\0"}),
        ("sync", "d/a", {"d/a": b"x"}),
        ("rename", "d/a", {"d/a": b"x"}),
        ("sync_directory", "d", {"d/b": b"x"}),
        ("remove", "d/b", {"d/b": b"x"}),
    ]
    assert {call for call, _, _ in seen} == MUTATING_CALLS


def test_a_full_disk_refuses_growth_until_something_goes() -> None:
    disk, file = durable(A)
    disk.capacity_bytes = 2 * SECTOR_BYTES
    assert disk.free_bytes() == SECTOR_BYTES
    for grow in (methodcaller("append", B + b"x"), methodcaller("preallocate", 2000), methodcaller("truncate", 2000)):
        with pytest.raises(OSError) as caught:
            grow(file)
        assert caught.value.errno == errno.ENOSPC
    file.append(B)
    assert disk.free_bytes() == 0
    file.seek(0)
    file.append(B)
    file.truncate(10)
    assert disk.free_bytes() == 2 * SECTOR_BYTES - 10
    disk.remove("log")
    assert disk.free_bytes() == 2 * SECTOR_BYTES


# Damage.


def test_damage_is_on_the_device_and_seen_by_readers() -> None:
    disk, _ = durable(A)
    disk.flip_bit("log", 10, 3)
    disk.zero("log", 20, 5)
    damaged = bytearray(A)
    damaged[10] ^= 8
    damaged[20:25] = bytes(5)
    assert disk.image() == {"log": bytes(damaged)}
    assert cut(disk, PowerCut.SYNCED) == {"log": bytes(damaged)}
    disk.flip_bit("log", 10, 3)
    damaged[10] ^= 8
    assert disk.image() == {"log": bytes(damaged)}
