"""One process per run directory: a lock that the kernel releases, however its owner dies."""

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from outlast.run import disk
from outlast.run.errors import Refused

NAME = "run.lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the run directory; a second process is refused with the owner named.

    The file is never removed: between an unlink and a create two processes could each lock their own.
    A child made by `os.fork` without exec shares the lock and holds it as long as it lives.
    """
    path = folder / NAME
    with disk.writing(f"{path}"):
        fd = disk.open_file(path)
    try:
        _take(fd, path)
        owner = json.dumps(_this_process(), sort_keys=True).encode() + b"\n"
        with disk.writing(f"{path}"):
            disk.truncate(fd, 0)
            disk.write_at(fd, 0, owner)
        yield
    finally:
        disk.close(fd)


def _take(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(f"{path.parent} is in use by {_owner(path)}; stop it first") from None
    except OSError as error:
        raise Refused(f"{path.parent} cannot be locked: {error.strerror}; use a local disk") from None


def _this_process() -> dict[str, str | int]:
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "boot": _boot_id(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
