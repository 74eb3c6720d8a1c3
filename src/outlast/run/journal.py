"""An append-only file of JSON lines with a cursor that a checkpoint records.

Opening at a cursor cuts the file back to it, so the curve of a resumed run has no line twice.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from outlast.run import disk
from outlast.run.errors import Damaged

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Mark:
    """A place at the end of a line, with the digest of everything before it."""

    n_bytes: int = 0
    n_lines: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def after(self, data: bytes) -> "Mark":
        """Move past whole lines."""
        digest = self.digest.copy()
        digest.update(data)
        return Mark(self.n_bytes + len(data), self.n_lines + data.count(b"\n"), digest)

    @property
    def cursor(self) -> dict[str, int | str]:
        """Write the mark as JSON."""
        return {"bytes": self.n_bytes, "lines": self.n_lines, "sha256": self.digest.hexdigest()}


START = Mark().cursor


def line_of(record: Mapping[str, Any]) -> bytes:
    """Encode one record; equal records give equal bytes, and a number that is not finite becomes null."""
    text = json.dumps(_plain(record), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


class Journal:
    """The open end of a journal; `end` is what was appended, `durable` what a sync has confirmed."""

    def __init__(self, path: Path, fd: int, mark: Mark):
        self.path = path
        self.end = self.durable = mark
        self._fd = fd
        self._torn = False
        self._doubtful = False

    @classmethod
    def open(cls, path: Path, cursor: Mapping[str, Any] | None) -> Self:
        """Open at a cursor and forget what follows it; `None` keeps every whole line, `START` nothing."""
        with disk.writing(f"{path}"):
            fd = disk.open_file(path)
            try:
                mark = _mark_of(path, cursor)
                disk.reached("journal: before cut")
                disk.truncate(fd, mark.n_bytes)
                disk.reached("journal: after cut")
                disk.fsync(fd)
                disk.fsync_folder(path.parent)
            except BaseException:
                disk.close(fd)
                raise
        return cls(path, fd, mark)

    @property
    def cursor(self) -> dict[str, int | str]:
        """Give the place after the last line, as JSON; it may be recorded only after `sync`."""
        return self.end.cursor

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write records as lines; after a failure none of them counts, and the next call starts clean."""
        data = b"".join(line_of(record) for record in records)
        with disk.writing(f"{self.path}"):
            if self._torn:
                disk.truncate(self._fd, self.end.n_bytes)
            self._torn = True
            disk.reached("journal: before append")
            disk.write_at(self._fd, self.end.n_bytes, data)
            disk.reached("journal: after append")
        self._torn = False
        self.end = self.end.after(data)

    def sync(self) -> None:
        """Make every line durable.

        A kernel forgets the unwritten pages of a file whose sync failed, and the next sync then succeeds
        without them; so after a failure everything since the last good sync is written again.
        """
        with disk.writing(f"{self.path}"):
            if self._doubtful:
                self._write_again()
            self._doubtful = True
            disk.reached("journal: before sync")
            disk.fsync(self._fd)
            disk.reached("journal: after sync")
        self._doubtful = False
        self.durable = self.end

    def _write_again(self) -> None:
        mark = self.durable
        with disk.open_to_read(self.path) as file:
            file.seek(mark.n_bytes)
            while mark.n_bytes < self.end.n_bytes:
                data = file.read(min(CHUNK_BYTES, self.end.n_bytes - mark.n_bytes))
                if not data:
                    break
                disk.write_at(self._fd, mark.n_bytes, data)
                mark = mark.after(data)
        if mark.cursor != self.cursor:
            raise Damaged(
                f"{self.path}: the disk lost lines that it had taken; resume from the last checkpoint"
            )

    def close(self) -> None:
        """Close the file, without making it durable."""
        disk.close(self._fd)


def _mark_of(path: Path, cursor: Mapping[str, Any] | None) -> Mark:
    limit = math.inf if cursor is None else cursor["bytes"]
    n_bytes, n_lines, digest = 0, 0, hashlib.sha256()
    with disk.open_to_read(path) as file:
        for line in _whole_lines(file):
            if n_bytes + len(line) > limit:
                break
            digest.update(line)
            n_bytes, n_lines = n_bytes + len(line), n_lines + 1
    mark = Mark(n_bytes, n_lines, digest)
    if cursor is not None and mark.cursor != dict(cursor):
        raise Damaged(
            f"{path}: its first {cursor['bytes']} bytes are not those the checkpoint was saved with"
        )
    return mark


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    return (line for line in file if line.endswith(b"\n"))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records one by one; a last line that a kill has torn is left out."""
    with disk.open_to_read(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                yield record
            elif file.read(1):
                raise Damaged(f"{path}: line {number} is not a record")
