"""A checkpoint is a directory of two files, written so that it exists whole or not at all.

`state.safetensors` holds the leaves, for any safetensors library; `manifest.json` the facts and a digest of
everything, itself included. `save`, `load_newest` and `prune` may run only under the lock of the run.
"""

import errno
import hashlib
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from outlast.run import disk
from outlast.run.errors import Damaged, NoCheckpoint, Refused

FORMAT = 1
STATE, MANIFEST, PINNED, QUARANTINE = "state.safetensors", "manifest.json", "PINNED", "quarantine"
SAVING, REPLACED, PRUNED = ".saving", ".replaced", ".pruned"
MAX_MANIFEST_BYTES = 64_000_000
CHUNK_BYTES = 1 << 20
CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}


@dataclass(frozen=True)
class Checkpoint:
    """A state that was read back and verified; `digest` is the `state_digest` of its leaves."""

    iteration: int
    leaves: dict[str, np.ndarray]
    facts: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay: the last ones, each multiple of `every` (0 for none), and the best."""

    last: int = 3
    every: int = 0
    best: frozenset[int] = frozenset()

    def __post_init__(self):
        if self.last < 1:
            raise ValueError(f"last = {self.last}: at least one checkpoint must stay")


class Group(NamedTuple):
    """The leaves that share the first part of their name."""

    name: str
    n_leaves: int
    n_bytes: int


@dataclass(frozen=True)
class Leaf:
    """What the manifest says of one array."""

    name: str
    dtype: str
    shape: list[int]
    sha256: str

    @property
    def n_bytes(self) -> int:
        """Count the bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Manifest:
    """The second file of a checkpoint."""

    format: int
    iteration: int
    facts: dict[str, Any]
    leaves: list[Leaf]
    state_bytes: int
    state_sha256: str


def save(folder: Path, *, iteration: int, leaves: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint; on return it is durable, verified, and safe to prune against.

    On any failure what was there before still loads. One of the same iteration is replaced, pin kept.
    """
    target = folder / str(iteration)
    arrays = [_native(name, leaves[name]) for name in sorted(leaves)]
    records = _records(leaves)
    state = [_header(records), *map(_raw, arrays)]
    n_bytes, digest = sum(map(len, state)), _sha256(*state)
    manifest = _encode(Manifest(FORMAT, iteration, dict(facts), records, n_bytes, digest))
    with disk.writing(f"checkpoint {target}"):
        disk.make_folder(folder)
        _tidy(folder)
        disk.reached("save: after tidy")
        _write(folder / f"{SAVING}-{iteration}", target, state, manifest)
        _put_in_place(folder, iteration)
        _verify(target, manifest, digest)
        disk.reached("save: after verify")
        _tidy(folder)
    return target


def _write(temporary: Path, target: Path, state: list, manifest: bytes) -> None:
    try:
        disk.make_folder(temporary)
        disk.reached("save: before write state")
        disk.write_bytes(temporary / STATE, *state)
        disk.reached("save: after write state")
        disk.write_bytes(temporary / MANIFEST, manifest)
        disk.reached("save: after write manifest")
        if (target / PINNED).exists():
            disk.write_bytes(temporary / PINNED)
        disk.fsync_folder(temporary)
        disk.reached("save: after sync folder")
    except OSError:
        # A full disk must not stay full because of the save that filled it.
        with suppress(OSError):
            disk.remove_tree(temporary)
        raise


def _put_in_place(folder: Path, iteration: int) -> None:
    target = folder / str(iteration)
    if target.exists():
        # From here to the second rename `_tidy` knows how to bring the old one back.
        disk.rename(target, folder / f"{REPLACED}-{iteration}")
        disk.reached("save: after set aside")
    disk.reached("save: before rename")
    disk.rename(folder / f"{SAVING}-{iteration}", target)
    disk.reached("save: after rename")
    disk.fsync_folder(folder)
    disk.reached("save: after sync parent")


def _verify(path: Path, manifest: bytes, state_sha256: str) -> None:
    digest = hashlib.sha256()
    with _reading(path), disk.open_to_read(path / STATE) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
        same = digest.hexdigest() == state_sha256 and _read_manifest_bytes(path) == manifest
    if not same:
        problem = Damaged(f"checkpoint {path}: the disk gave back other bytes than it was given")
        raise Damaged(_quarantine(path, problem))


def _tidy(folder: Path) -> None:
    """Finish or undo what a killed save or prune has left behind."""
    leftovers = [name for name in disk.names(folder) if name.startswith((SAVING, REPLACED, PRUNED))]
    if leftovers:
        # What takes the place of a leftover must be durable before the leftover goes.
        disk.fsync_folder(folder)
    for name in leftovers:
        kind, _, iteration = name.partition("-")
        if kind == REPLACED and not (folder / iteration).exists():
            disk.rename(folder / name, folder / iteration)
        else:
            disk.remove_tree(folder / name)
        disk.reached("tidy: after each")


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte of it; changes nothing on disk."""
    with _reading(path):
        manifest = _decode(path, _read_manifest_bytes(path))
        if path.name != str(manifest.iteration):
            raise Damaged(f"checkpoint {path}: holds iteration {manifest.iteration}")
        leaves = _read_state(path, manifest)
    return Checkpoint(manifest.iteration, leaves, manifest.facts, _digest_of(manifest.leaves))


def load_newest(folder: Path, *, before: int | None = None) -> tuple[Checkpoint, list[str]]:
    """Read the newest good checkpoint, moving each bad one to quarantine with a line that says why.

    With `before`, only those of an earlier iteration count.
    """
    messages = []
    with disk.writing(f"in {folder}"):
        _tidy(folder)
        for iteration in reversed([i for i in iterations(folder) if before is None or i < before]):
            path = folder / str(iteration)
            # Read twice before condemning: a passing fault of the disk or the memory is not in the file.
            with suppress(Damaged):
                return load(path), messages
            try:
                return load(path), messages
            except Damaged as problem:
                messages.append(_quarantine(path, problem))
    raise NoCheckpoint("; ".join([f"no checkpoint in {folder}", *messages]))


def iterations(folder: Path) -> list[int]:
    """List the checkpoints that are there, good or bad, oldest first."""
    present = [name for name in disk.names(folder) if name.isascii() and name.isdecimal()]
    return sorted(int(name) for name in present if str(int(name)) == name)


def restored_groups(checkpoint: Checkpoint) -> list[Group]:
    """Count leaves and bytes by the part of their name before the first dot."""
    groups: dict[str, list[int]] = {}
    for name, leaf in checkpoint.leaves.items():
        groups.setdefault(name.partition(".")[0], []).append(leaf.nbytes)
    return [Group(name, len(sizes), sum(sizes)) for name, sizes in sorted(groups.items())]


def state_digest(leaves: Mapping[str, np.ndarray]) -> str:
    """Hash names, dtypes, shapes and bytes; equal digests mean equal states."""
    return _digest_of(_records(leaves))


def doomed(iterations: Iterable[int], retention: Retention) -> list[int]:
    """Choose what retention lets go, oldest first; never the newest."""
    ordered = sorted(iterations)
    kept = {*ordered[-retention.last :], *retention.best}
    kept.update(i for i in ordered if retention.every and i % retention.every == 0)
    return [i for i in ordered if i not in kept]


def prune(folder: Path, keep: Retention, *, verified: int | None = None) -> list[int]:
    """Remove what retention lets go and no `PINNED` file holds; give the iterations removed.

    The newest verified checkpoint always stays: `verified` when the caller has just saved it, else the
    newest that loads. Where none loads nothing is removed.
    """
    chosen = [i for i in doomed(iterations(folder), keep) if not (folder / str(i) / PINNED).exists()]
    safe = verified if verified is not None or not chosen else newest_intact(folder)
    chosen = [i for i in chosen if safe is not None and i != safe]
    with disk.writing(f"in {folder}"):
        _tidy(folder)
        for iteration in chosen:
            disk.reached("prune: before rename")
            disk.rename(folder / str(iteration), folder / f"{PRUNED}-{iteration}")
            disk.reached("prune: after rename")
        _tidy(folder)
    return chosen


def newest_intact(folder: Path) -> int | None:
    """Find the newest checkpoint that is good, moving none."""
    for iteration in reversed(iterations(folder)):
        with suppress(Damaged):
            return load(folder / str(iteration)).iteration
    return None


def _quarantine(path: Path, problem: Damaged) -> str:
    quarantine = path.parent / QUARANTINE
    disk.make_folder(quarantine)
    taken = disk.names(quarantine)
    n = next(n for n in range(len(taken) + 1) if f"{path.name}-{n}" not in taken)
    disk.reached("quarantine: before rename")
    disk.rename(path, quarantine / f"{path.name}-{n}")
    disk.reached("quarantine: after rename")
    disk.fsync_folder(quarantine)
    disk.fsync_folder(path.parent)
    disk.reached("quarantine: after sync")
    return f"{problem}; moved to {quarantine / f'{path.name}-{n}'}"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise Damaged(f"checkpoint {path}: {Path(error.filename or path).name} is missing") from None
    except OSError as error:
        # Too many open files or a missing permission say nothing about the content.
        if error.errno != errno.EIO:
            raise
        raise Damaged(f"checkpoint {path}: the disk cannot read it") from None


def _native(name: str, leaf: np.ndarray) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.name not in CODES or name == "__metadata__":
        raise TypeError(f"leaf {name!r} of dtype {array.dtype} cannot be saved")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _records(leaves: Mapping[str, np.ndarray]) -> list[Leaf]:
    arrays = ((name, _native(name, leaves[name])) for name in sorted(leaves))
    return [Leaf(name, a.dtype.name, list(a.shape), _sha256(_raw(a))) for name, a in arrays]


def _raw(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sha256(*parts) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest_of(leaves: list[Leaf]) -> str:
    return _sha256(_canonical([asdict(leaf) for leaf in leaves]))


def _header(leaves: list[Leaf]) -> bytes:
    header, end = {}, 0
    for leaf in leaves:
        start, end = end, end + leaf.n_bytes
        header[leaf.name] = {"dtype": CODES[leaf.dtype], "shape": leaf.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _encode(manifest: Manifest) -> bytes:
    # Once through JSON first: a key that is not text would sort differently when it is read back.
    document = json.loads(_canonical(asdict(manifest)))
    return _canonical({**document, "digest": _sha256(_canonical(document))})


def _read_manifest_bytes(path: Path) -> bytes:
    with disk.open_to_read(path / MANIFEST) as file:
        return file.read(MAX_MANIFEST_BYTES)


def _decode(path: Path, data: bytes) -> Manifest:
    try:
        document = json.loads(data)
        digest = document.pop("digest")
        if _sha256(_canonical(document)) != digest or _canonical({**document, "digest": digest}) != data:
            raise ValueError("the digest differs")
        # Only now is the number believed: a damaged 1 is not a version from the future.
        if document["format"] != FORMAT:
            raise Refused(f"checkpoint {path}: format {document['format']}, this program reads {FORMAT}")
        leaves = [Leaf(**leaf) for leaf in document.pop("leaves")]
        if any(not isinstance(n, int) or n < 0 for leaf in leaves for n in leaf.shape):
            raise ValueError("a shape is not a list of sizes")
        if len(_header(leaves)) + sum(leaf.n_bytes for leaf in leaves) != document["state_bytes"]:
            raise ValueError("the sizes do not add up")
        return Manifest(leaves=leaves, **document)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(f"checkpoint {path}: {MANIFEST} is not as it was written ({error})") from None


def _read_state(path: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    leaves = {}
    with disk.open_to_read(path / STATE) as file:
        if disk.size(file) != manifest.state_bytes:
            raise Damaged(
                f"checkpoint {path}: {STATE} has {disk.size(file)} bytes instead of {manifest.state_bytes}"
            )
        header = _header(manifest.leaves)
        if file.read(len(header)) != header:
            raise Damaged(f"checkpoint {path}: the header of {STATE} is not as it was written")
        whole = hashlib.sha256(header)
        for leaf in manifest.leaves:
            array = np.empty(leaf.shape, leaf.dtype)
            file.readinto(_raw(array))
            whole.update(_raw(array))
            if _sha256(_raw(array)) != leaf.sha256:
                raise Damaged(f"checkpoint {path}: leaf {leaf.name} is not as it was written")
            leaves[leaf.name] = array
    if whole.hexdigest() != manifest.state_sha256:
        raise Damaged(f"checkpoint {path}: {STATE} is not as it was written")
    return leaves
