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
CHECKPOINTS, POLICIES, CRASH, TENSORBOARD = "checkpoints", "policies", "crash", "tensorboard"


def create(folder: Path, config: Section, seeds: list[int], *, workers: int = 1) -> list[Path]:
    """Make a run directory, with everything that decides it written before the first step; give its groups."""
    if folder.exists():
        raise BadInput(f"--out {folder}: exists already; choose another, or `outlast resume {folder}`")
    shares = [seeds[i::workers] for i in range(workers)]
    parts = [folder] if workers == 1 else [folder / f"group-{i}" for i in range(workers)]
    with disk.writing(f"{folder}"):
        disk.make_folder(folder)
        if workers > 1:
            _describe(folder, config, seeds)
        for part, share in zip(parts, shares, strict=True):
            disk.make_folder(part)
            _describe(part, config, share)
    return parts


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
    parts = sorted(folder.glob("group-*"), key=lambda p: int(p.name.removeprefix("group-")))
    return parts or [folder]


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
