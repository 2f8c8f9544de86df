"""A file that the user names, outside of any store: read as a whole, once, and bounded; or its place, as a disk.

Links are followed, because such files are often links. A file that is not regular is refused, because reading a pipe
could wait for ever.
"""

from __future__ import annotations

import os
import stat

from ..errors import SettingsError
from .disk import OsDisk
from .layout import PathArgument, check_path


def read_user_file(path: PathArgument, most_bytes: int) -> bytes:
    """Return the whole content. SettingsError: it can't be read, or has more than most_bytes."""
    name = check_path("file", path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SettingsError(f"{name} can't be read ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SettingsError(f"{name} is not a regular file")
        content = bytearray()
        while piece := os.read(descriptor, most_bytes + 1 - len(content)):
            content += piece
    except OSError as error:
        raise SettingsError(f"{name} can't be read ({error.strerror})") from None
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise SettingsError(f"{name} has more than {most_bytes:,} bytes")
    return bytes(content)


def user_place(path: PathArgument) -> tuple[OsDisk, str]:
    """Return the directory of that file, as a disk, and the file's name in it.

    SettingsError: it is not the path of a file.
    """
    directory, name = os.path.split(os.path.abspath(check_path("file", path)))
    if not name:
        raise SettingsError(f"{path!s} is not the path of a file")
    return OsDisk(directory), name


def write_user_file(path: PathArgument, content: bytes) -> None:
    """Make the file, or replace its content. SettingsError: that is not possible."""
    name = check_path("file", path)
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(content)
            while rest:
                written = os.write(descriptor, rest)
                rest = rest[written:]
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SettingsError(f"{name} can't be written ({error.strerror})") from None
