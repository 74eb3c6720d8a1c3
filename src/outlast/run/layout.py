"""Where things are in a run directory. The directory is the interface: reports and viewers read only it.

A run is one group of seeds trained in one process, or holds `group-0`, `group-1`, ..., each a complete group.
"""

import json
from pathlib import Path

from outlast.config import BadInput, Section, canonical_json, defaults
from outlast.run import disk

CONFIG, SEEDS, IDENTITY = "config.json", "seeds.json", "identity.json"
DEFAULTS, HISTORY = "defaults.json", "history.json"
METRICS, EVENTS, EVALUATIONS = "metrics.jsonl", "events.jsonl", "evaluations.jsonl"
EPISODES = "episodes.jsonl"
CHECKPOINTS, POLICIES, CRASH, TENSORBOARD = "checkpoints", "policies", "crash", "tensorboard"


def create(folder: Path, config: Section, seeds: list[int], *, workers: int = 1) -> list[Path]:
    """Make a run directory, with everything that decides it written before the first step; give its groups.

    It gets its name last: a run that is there is whole, whenever its creation was killed.
    """
    if folder.exists() or folder.is_symlink():
        raise BadInput(f"--out {folder}: exists already; choose another, or `outlast resume {folder}`")
    making = folder.with_name(f".{folder.name}.creating")
    names = ["."] if workers == 1 else [f"group-{i}" for i in range(workers)]
    with disk.writing(f"{folder}"):
        if making.exists():
            disk.remove_tree(making)
        disk.make_folder(making)
        _describe(making, config, seeds)
        for i, name in enumerate(names):
            disk.make_folder(making / name)
            _describe(making / name, config, seeds[i::workers])
        disk.reached("create: before rename")
        disk.rename(making, folder)
        disk.fsync_folder(folder.parent)
    return [folder / name for name in names]


def _describe(folder: Path, config: Section, seeds: list[int]) -> None:
    disk.write_atomic(folder / SEEDS, json.dumps({"seeds": seeds}).encode() + b"\n")
    write_config(folder, config)
    standard = json.dumps(defaults(type(config)), indent=1, sort_keys=True)
    disk.write_atomic(folder / DEFAULTS, standard.encode() + b"\n")


def write_config(folder: Path, config: Section) -> None:
    """Write the config of a run in full, so that later defaults cannot change it."""
    text = json.dumps(json.loads(canonical_json(config)), indent=1, sort_keys=True)
    disk.write_atomic(folder / CONFIG, text.encode() + b"\n")


def groups(folder: Path) -> list[Path]:
    """List the groups of a run; a directory that is not a run is an error of the user's."""
    if not (folder / CONFIG).is_file():
        raise BadInput(f"{folder}: not a run directory (there is no {CONFIG} in it)")
    numbers = (name.removeprefix("group-") for name in disk.names(folder) if name.startswith("group-"))
    return [folder / f"group-{n}" for n in sorted(int(n) for n in numbers if n.isdecimal())] or [folder]


def seeds_of(folder: Path) -> list[int]:
    """Read the seeds of a group."""
    try:
        seeds = json.loads((folder / SEEDS).read_text())["seeds"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / SEEDS}: cannot be read ({error})") from None
    if (
        not isinstance(seeds, list)
        or not all(isinstance(s, int) and 0 <= s < 2**32 for s in seeds)
        or not seeds
    ):
        raise BadInput(f"{folder / SEEDS}: not a list of seeds")
    return seeds
