"""What decides the bits of a run. Equal identity promises identical bytes; a different one is refused by name."""

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outlast.config import Section, fingerprint
from outlast.run import checkpoint, disk, layout
from outlast.run.errors import Damaged, Refused

DECIDING = ("core.py", "keys.py", "nets.py", "worlds", "safety", "learners", "selfplay", "programs")
ISA = ("avx512f", "avx2", "avx", "sse4_2", "asimd")


def identity(config: Section, seeds: list[int]) -> dict[str, Any]:
    """Describe everything that can change a bit of the state."""
    import jax

    return {
        "config": fingerprint(config),
        "seeds": seeds,
        "code": code_hash(),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "equinox": version("equinox"),
        "optax": version("optax"),
        "python": platform.python_version_tuple()[0] + "." + platform.python_version_tuple()[1],
        "platform": jax.devices()[0].platform,
        "machine": platform.machine(),
        "cpu": _instruction_set(),
        "threads": os.environ.get("NPROC", "unset"),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "x64": bool(jax.config.jax_enable_x64),
        "threefry_partitionable": bool(jax.config.jax_threefry_partitionable),
    }


def code_hash() -> str:
    """Hash the sources that decide bits: worlds, learners and programs, not the command line."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in DECIDING:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix in (".py", ".toml"):
                digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _instruction_set() -> str:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return platform.processor() or "unknown"
    return next((isa for isa in ISA if isa in flags), "base")


def check(folder: Path, now: dict[str, Any], *, allow_different: bool) -> bool:
    """Compare with the identity a group was started with; return whether bytes are still promised.

    A new group gets its identity written. A difference is refused with the first field that differs, or
    accepted by an explicit flag, and then the group is marked for ever.
    """
    path = folder / layout.IDENTITY
    if not path.exists() and not checkpoint.iterations(folder / layout.CHECKPOINTS):
        _write(path, now | {"continued": "identical"})
        return True
    then = _read(path)
    different = [name for name in now if then.get(name) != now[name]]
    if not different:
        return then.get("continued") == "identical"
    if not allow_different:
        name = different[0]
        raise Refused(
            f"{folder}: another identity: {name} was {_short(then.get(name))} and is {_short(now[name])}; "
            "the result could not be identical. `--allow-different` continues and marks the run for ever"
        )
    _write(path, now | {"continued": "continued, not identical"})
    return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return {**json.loads(path.read_text())}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"{path}: cannot be read ({error}); put a good copy back") from None


def _write(path: Path, document: dict[str, Any]) -> None:
    with disk.writing(f"{path}"):
        disk.write_atomic(path, json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 24 else text[:12] + "..." + text[-6:]
