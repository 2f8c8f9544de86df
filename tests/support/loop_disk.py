"""LoopDisk: a real ext4 in a file, on a loop device, whose power a test can cut while a process is at work on it.

The cut is ext4's own forced shutdown. From that moment on nothing reaches the device, and the next mount finds what a
machine finds after losing power. Writes without a sync are lost, but the device's own cache is not, because the file
behind the loop device survives.

A process outlives this cut, although no process outlives a real one. So results of calls that were under way mean
nothing; `Power` tells a process whether a call returned before the cut.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

IMAGE_BYTES: Final = 128 * 1024 * 1024
"""Size of the image, which is sparse: it takes only the disk that the file system writes."""
LOG_FLUSHED: Final = 1
"""The cut comes when ext4's own journal has just been written."""
LOG_LOST: Final = 2
"""The cut comes at once."""

_SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN of Linux 4.10."""
_TOOLS: Final = ("mkfs.ext4", "mount", "umount")
_SYS_ADMIN: Final = 1 << 21
"""The capability that mounting requires."""
_UNMOUNT_TRIALS: Final = 100
_UNMOUNT_PAUSE_SECONDS: Final = 0.02
_PROBE: Final = "probe"


class LoopDisk:
    """The file system in a file. The context manager `mounted` mounts it for its block."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self._image = image
        self.mount_point = mount_point

    @property
    def probe(self) -> Path:
        """Path of the file that `Power` reads."""
        return self.mount_point / _PROBE

    def make(self, image_bytes: int = IMAGE_BYTES) -> None:
        """Make the file system; it is not mounted yet."""
        with open(self._image, "wb") as file:
            file.truncate(image_bytes)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount_point.mkdir()

    def mount(self) -> None:
        """Mount the file system. The kernel frees the loop device when the file system is unmounted."""
        _run("mount", "-o", "loop", str(self._image), str(self.mount_point))

    def write_probe(self) -> None:
        """Write the file that `Power` reads."""
        with open(self.probe, "wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())

    def cut(self, flags: int) -> None:
        """Cut the power. Processes continue, and the caller must kill them. O(1), except with LOG_FLUSHED."""
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", flags))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Unmount the file system, after writeback has ended. Requires: no process has a file open there."""
        for _ in range(_UNMOUNT_TRIALS):
            if not _status("umount", str(self.mount_point)):
                return
            threading.Event().wait(_UNMOUNT_PAUSE_SECONDS)
        _run("umount", "--lazy", str(self.mount_point))
        raise AssertionError(f"{self.mount_point} stayed busy")

    def remount(self) -> None:
        """Let the power return."""
        self.unmount()
        self.mount()


class Power:
    """Tells a process on a `LoopDisk` whether the power is still on.

    After its shutdown, ext4 fails every read, even of cached bytes, and it
    sets that flag before it refuses anything. So a call that returned before
    a successful read returned before the cut.
    """

    def __init__(self, disk: LoopDisk) -> None:
        try:
            self._descriptor = os.open(disk.probe, os.O_RDONLY)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._descriptor = -1  # the cut came first

    @property
    def is_on(self) -> bool:
        """Whether the power is on. O(1), one system call."""
        try:
            return len(os.pread(self._descriptor, 1, 0)) == 1
        except OSError:
            return False

    def close(self) -> None:
        """Close the file, so that the disk can be unmounted."""
        os.close(self._descriptor)

    def end_with_it(self) -> None:
        """Return if the power is on; else wait to be killed, as if the process had ended."""
        if not self.is_on:
            _wait_to_be_killed()


def _wait_to_be_killed() -> NoReturn:
    while True:
        threading.Event().wait()


@contextmanager
def mounted(directory: Path, image_bytes: int = IMAGE_BYTES) -> Iterator[LoopDisk]:
    """Make a LoopDisk and keep it mounted for the block. The image stays if the block fails."""
    disk = LoopDisk(directory / "image", directory / "mount")
    disk.make(image_bytes)
    disk.mount()
    try:
        disk.write_probe()
        yield disk
    finally:
        if os.path.ismount(disk.mount_point):
            disk.unmount()
        disk.mount_point.rmdir()
    os.unlink(directory / "image")


def what_is_missing(directory: Path) -> str | None:
    """Return a sentence about why no LoopDisk is possible here; None: it is. Tries it in that directory."""
    if sys.platform != "linux":
        return "only Linux has loop devices and ext4"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"mounting a loop device takes {', '.join(absent)}, which this machine does not have"
    if not _may_mount():
        return "mounting a loop device takes root's rights, which this process does not have"
    if not os.path.exists("/dev/loop-control"):
        return "this machine has no loop devices"
    disk = LoopDisk(directory / "trial", directory / "trial-mount")
    disk.make(8 * 1024 * 1024)
    if _status("mount", "-o", "loop", str(directory / "trial"), str(disk.mount_point)):
        return "this machine refuses to mount a loop device, though nothing that it takes is missing"
    disk.write_probe()
    power = Power(disk)
    try:
        disk.cut(LOG_LOST)
    except OSError as error:
        return f"this kernel does not shut ext4 down ({error.strerror})"
    else:
        return "this kernel lets files of ext4 be read after a forced shutdown" if power.is_on else None
    finally:
        power.close()
        disk.unmount()


def _may_mount() -> bool:
    with open("/proc/self/status", encoding="ascii") as lines:
        effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(int(effective, 16) & _SYS_ADMIN)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert not done.returncode, f"{command} failed: {done.stderr}"


def _status(*command: str) -> int:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode
