"""A file that the user names, outside of any store: read whole, once, and bounded.

Links are followed, because such files are often one; what is no regular file
is refused, because reading a pipe could wait for ever.
"""

from __future__ import annotations

import os
import stat

from .errors import SettingsError
from .files import PathArgument


def read_user_file(path: PathArgument, max_bytes: int) -> bytes:
    """The whole content. SettingsError where there is none to read, or more than max_bytes of it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, TypeError, ValueError) as error:
        raise SettingsError(f"{path!s} can't be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SettingsError(f"{path!s} is not a regular file")
        content = bytearray()
        while piece := os.read(descriptor, max_bytes + 1 - len(content)):
            content += piece
    except OSError as error:
        raise SettingsError(f"{path!s} can't be read ({error.strerror})") from None
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise SettingsError(f"{path!s} has more than {max_bytes:,} bytes")
    return bytes(content)
