"""Check a run without touching it: every checkpoint byte by byte, every journal against its cursor. No jax."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from outlast.run import checkpoint, disk, layout
from outlast.run.errors import Damaged, NoCheckpoint, RunProblem

CHUNK_BYTES = 1 << 20


def verify_run(groups: list[Path]) -> dict[str, Any]:
    """Verify all groups; digests are those of the newest good checkpoints."""
    found = [_verify_group(group) for group in groups]
    return {
        "intact": all(g["intact"] for g in found),
        "state_digest": _joint([g["state_digest"] for g in found]),
        "journal_digest": _joint([g["journal_digest"] for g in found]),
        "groups": found,
    }


def _joint(digests: list[str]) -> str:
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _verify_group(folder: Path) -> dict[str, Any]:
    lines, good, intact = [], None, True
    kept = folder / layout.CHECKPOINTS
    for iteration in checkpoint.iterations(kept):
        try:
            good = checkpoint.load(kept / str(iteration))
            _check_journals(folder, good.facts["journals"])
            lines.append(f"{kept / str(iteration)}: intact, {good.digest[:16]}")
        except RunProblem as problem:
            lines.append(str(problem))
            intact = False
    if good is None:
        raise NoCheckpoint("; ".join([f"no good checkpoint in {kept}", *lines]))
    return {
        "group": str(folder),
        "iteration": good.iteration,
        "state_digest": good.digest,
        "journal_digest": good.facts["journals"][layout.METRICS]["sha256"],
        "intact": intact,
        "lines": lines,
    }


def _check_journals(folder: Path, cursors: dict[str, Any]) -> None:
    for name, cursor in cursors.items():
        digest, left = hashlib.sha256(), cursor["bytes"]
        with suppress(FileNotFoundError), disk.open_to_read(folder / name) as file:
            while left and (chunk := file.read(min(CHUNK_BYTES, left))):
                digest.update(chunk)
                left -= len(chunk)
        if left or digest.hexdigest() != cursor["sha256"]:
            raise Damaged(f"{folder / name}: its first {cursor['bytes']} bytes are not as they were written")
