"""The single door to the file system: every step of the save protocol is one of these functions.

The tests replace `os` in this module, so that any single call can fail, kill the process or be forgotten
by a power loss; and `reached`, to stop at a point that has a name.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from outlast.run.errors import DiskFull

ADVICE = {
    errno.ENOSPC: "free some space, then resume",
    errno.EDQUOT: "free some of your quota, then resume",
    errno.EIO: "check the disk, copy the run directory to another one, then resume there",
    errno.EROFS: "make the file system writable again, then resume",
}


def reached(name: str) -> None:
    """Mark a named point of a protocol; it does nothing, tests replace it."""


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn a write that the disk did not take into one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in ADVICE:
            raise
        reason = os.strerror(error.errno)
        raise DiskFull(
            f"cannot write {what}: {reason}; the last good checkpoint is kept; {ADVICE[error.errno]}"
        ) from error


def write_bytes(path: Path, *parts) -> None:
    """Create a file from buffers of bytes and make its content durable."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        end = 0
        for part in parts:
            end = write_at(fd, end, part)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, a kill or a power loss meets the old content or the new."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        write_bytes(temporary, data)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_folder(path.parent)


def open_file(path: Path) -> int:
    """Open a file for reading and writing, creating it empty; give its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def write_at(fd: int, offset: int, data) -> int:
    """Write a buffer of bytes at an offset, however many calls that takes; give the offset of its end."""
    rest = memoryview(data)
    while len(rest):
        written = os.pwrite(fd, rest, offset)
        rest, offset = rest[written:], offset + written
    return offset


def truncate(fd: int, size: int) -> None:
    """Cut an open file."""
    os.ftruncate(fd, size)


def fsync(fd: int) -> None:
    """Make the content of an open file durable."""
    os.fsync(fd)


def close(fd: int) -> None:
    """Close a descriptor."""
    os.close(fd)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Create a folder with its parents and make its name durable.

    The parent is synced even when the folder is already there: whoever made it may have died before that.
    """
    if not path.parent.is_dir():
        make_folder(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    fsync_folder(path.parent)


def rename(source: Path, target: Path) -> None:
    """Rename; durable only after `fsync_folder`."""
    os.rename(source, target)


def remove_tree(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        for name in names(path):
            remove_tree(path / name)
        os.rmdir(path)
    else:
        os.unlink(path)


def names(folder: Path) -> list[str]:
    """List a folder in order; one that is not there is empty."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def open_to_read(path: Path) -> BufferedReader:
    """Open a file for reading."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb")


def size(file: BufferedReader) -> int:
    """Give the size of an open file."""
    return os.fstat(file.fileno()).st_size
