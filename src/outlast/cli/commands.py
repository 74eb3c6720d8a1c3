"""What each command does. Everything heavy is imported inside, after the settings that jax reads at import."""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from outlast.cli import BAD_INPUT, DONE, INTERRUPTED, REFUSED
from outlast.cli.flags import FLAGS
from outlast.config import BadInput

MAX_SEEDS, MAX_SEED = 4096, 2**32 - 1


def prepare() -> None:
    """Fix what jax reads once: the thread count, which decides bits, and where compiled programs are kept."""
    os.environ.setdefault("NPROC", "1")
    import jax

    kept = os.environ.get("OUTLAST_CACHE", str(Path.home() / ".cache" / "outlast" / "xla"))
    if kept:
        jax.config.update("jax_compilation_cache_dir", kept)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def tell(line: str) -> None:
    """Say something to the user without touching standard output."""
    print(f"outlast: {line}", file=sys.stderr, flush=True)


def within(name: str, value: int, low: int, high: int) -> int:
    """Return a number of the command line if it is in range."""
    if not low <= value <= high:
        raise BadInput(f"{name} {value} is out of range (allowed: {low} to {high})")
    return value


def train(given: argparse.Namespace) -> int:
    """Start a run."""
    n_seeds = within("--seeds", given.seeds, 1, MAX_SEEDS)
    first = within("--seed", given.seed, 0, MAX_SEED - n_seeds)
    workers = within("--workers", given.workers, 1, n_seeds)
    overrides = list(given.set) + ([f"run.steps={given.steps}"] if given.steps is not None else [])
    from outlast.config import read_preset

    read_preset(given.preset)
    prepare()
    from outlast import programs

    config = programs.from_preset(given.preset, overrides)
    seeds = list(range(first, first + n_seeds))
    return start(config, given.out or _free_folder(given.preset), seeds, workers, quiet=given.quiet)


def start(config: Any, folder: Path, seeds: list[int], workers: int, *, quiet: bool) -> int:
    """Make a run directory and train in it."""
    from outlast import programs
    from outlast.run import layout
    from outlast.run.memory import check_memory

    check_memory(programs.program_of(config), -(-len(seeds) // workers), workers)
    layout.create(folder, config, seeds, workers=workers)
    return go(folder, quiet=quiet, fresh=False, allow_different=False)


def amsdrl(given: argparse.Namespace) -> int:
    """Start the run that a command line of the original asks for."""
    n_seeds = within("--seeds", given.seeds, 1, MAX_SEEDS)
    first = within("--seed", getattr(given, "seed", FLAGS["seed"].default), 0, MAX_SEED - n_seeds)
    workers = within("--workers", given.workers, 1, n_seeds)
    folder = Path(getattr(given, "output", FLAGS["output"].default))
    prepare()
    from outlast.cli.amsdrl import config_of, differences, given_flags
    from outlast.config import parse_override

    flags = given_flags(given)
    config = config_of(flags, dict(parse_override(text) for text in given.set))
    tell("what is not as in the original:")
    for line in differences(flags, config):
        tell(f"  {line}")
    return start(config, folder, list(range(first, first + n_seeds)), workers, quiet=given.quiet)


def balance(given: argparse.Namespace) -> int:
    """Train the grid of games and draw its map."""
    given.preset = "balance"
    given.out = given.out or _free_folder("balance")
    for axis in ("x", "y"):
        if text := getattr(given, axis):
            field, equals, values = text.partition("=")
            if not equals:
                raise BadInput(f"--{axis} {text}: write it as FIELD=VALUE,VALUE,...")
            given.set += [f"{axis}.field={field}", f"{axis}.values=[{values}]"]
    code = train(given)
    if code == DONE:
        from outlast import report as reports

        reports.report([given.out])
        print((given.out / "report" / "balance.md").read_text())
    return code


def _free_folder(preset: str) -> Path:
    names = [f"runs/{preset}"] + [f"runs/{preset}-{i}" for i in range(2, 10_000)]
    return next(Path(name) for name in names if not Path(name).exists())


def resume(given: argparse.Namespace) -> int:
    """Go on with a run."""
    from outlast.run import layout

    parts = layout.groups(given.run)
    if given.steps is not None:
        _set_budget(given.run, parts, within("--steps", given.steps, 1, 10**13))
    return go(given.run, quiet=given.quiet, fresh=given.fresh, allow_different=given.allow_different)


def _set_budget(run: Path, parts: list[Path], steps: int) -> None:
    """Write a new budget into the configs of a run that nobody is training."""
    prepare()
    from outlast import programs
    from outlast.config import override, validate
    from outlast.run import layout
    from outlast.run.lock import run_lock

    with contextlib.ExitStack() as locks:
        for part in parts:
            locks.enter_context(run_lock(part))
        for folder in {run, *parts}:
            config = _config(folder)
            document = override(config.model_dump(mode="json"), "run.steps", steps, model=type(config))
            model = programs.config_model(document, source="--steps")
            layout.write_config(folder, validate(model, document, source="--steps"))


def _config(folder: Path) -> Any:
    from outlast import programs
    from outlast.run import layout

    path = folder / layout.CONFIG
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from None
    return programs.from_json(text, source=str(path))


def go(folder: Path, *, quiet: bool, fresh: bool, allow_different: bool) -> int:
    """Train every group of a run to its end, or until somebody stops it."""
    from outlast.run import fleet, layout

    parts = layout.groups(folder)
    if len(parts) > 1:
        flags = ["--fresh"] * fresh + ["--allow-different"] * allow_different
        total = sum(_config(part).run.steps * len(layout.seeds_of(part)) for part in parts)
        return fleet.train(parts, total_steps=total, flags=flags, quiet=quiet)
    prepare()
    from outlast import programs
    from outlast.run.loop import Options, train

    config, seeds = _config(folder), layout.seeds_of(folder)
    options = Options(tell=tell, quiet=quiet, fresh=fresh, allow_different=allow_different)
    ended = train(folder, config, programs.program_of(config), seeds, options=options)
    if ended.interrupted:
        tell(f"interrupted and saved at {ended.steps:,} steps; go on with `outlast resume {folder}`")
        return INTERRUPTED
    tell(f"{folder}: finished, {ended.steps:,} steps a seed, {ended.steps_per_s:,.0f} steps/s")
    return DONE


def evaluate(given: argparse.Namespace) -> int:
    """Measure a run with one suite and keep the document beside the run."""
    within("--games", given.games, 1, 1_000_000)
    if given.steps is not None:
        within("--steps", given.steps, 1, 10**12)
    from outlast.run import layout

    if len(given.run) > 1 and given.suite != "safety":
        raise BadInput(f"--suite {given.suite} measures one run at a time (safety compares several)")
    for run in (*given.run, *([given.against] if given.against else [])):
        layout.groups(run)
    prepare()
    from outlast.cli.evaluation import evaluate_run

    against = (given.against, _config(given.against)) if given.against else None
    documents = [
        evaluate_run(run, _config(run), given.suite, given.games, given.steps, against) for run in given.run
    ]
    if given.json:
        print(json.dumps(documents[0] if len(documents) == 1 else documents, allow_nan=False))
    elif given.suite == "safety":
        from outlast.cli.tables import show_safety

        show_safety(documents)
    else:
        from outlast.cli.tables import show

        show(documents[0])
    return DONE


def report(given: argparse.Namespace) -> int:
    """Write curves, tables and a page for one or more runs."""
    from outlast.run import layout

    for folder in given.run:
        layout.groups(folder)
    from outlast import report as reports

    document = reports.report(given.run, given.out)
    if given.sqlite is not None:
        from outlast.report.sqlite import export

        file = Path(given.sqlite or (given.out or given.run[0] / "report") / "run.sqlite")
        export(given.run, file)
        document["files"].append(str(file))
    if given.json:
        print(json.dumps(document, allow_nan=False))
    else:
        from rich.console import Console

        Console().print(reports.table(document))
        for path in document["files"]:
            print(path)
    return DONE


def verify(given: argparse.Namespace) -> int:
    """Check every checkpoint and journal of a run; change nothing."""
    from outlast.run import layout
    from outlast.run.verify import verify_run

    document = verify_run(layout.groups(given.run))
    if given.json:
        print(json.dumps(document, allow_nan=False))
    else:
        for group in document["groups"]:
            for line in group["lines"]:
                print(line)
        print(f"state   {document['state_digest']}\njournal {document['journal_digest']}")
    return DONE if document["intact"] else REFUSED


def presets(given: argparse.Namespace) -> int:
    """List the presets and the packs, or show one with everything it ends up with."""
    from outlast.config import about, read_preset

    packs = about("worlds/town/packs")
    if given.name is None:
        for name, line in about("presets").items():
            print(f"{name:14} {line}")
        print("\npacks of the town (`outlast train town-l1 --set pack=NAME`):")
        for name, line in packs.items():
            print(f"{name:14} {line}")
        return DONE
    is_pack = given.name in packs or given.name.endswith(".toml")
    if not is_pack:
        read_preset(given.name)
    prepare()
    from outlast.cli.tables import show_pack, show_preset

    if is_pack:
        from outlast.worlds.town import load_pack

        show_pack(given.name, load_pack(given.name))
    else:
        from outlast import programs

        show_preset(given.name, programs.from_preset(given.name, []))
    return DONE


def study(given: argparse.Namespace) -> int:
    """Regenerate one page of docs/results."""
    within("--games", given.games, 1, 1_000_000)
    within("--seeds", given.seeds, 1, MAX_SEEDS)
    within("--steps", given.steps, 1, 10**13)
    prepare()
    workers = min(os.cpu_count() or 1, given.seeds)
    if given.name == "headline":
        from outlast.cli.study_headline import run_study as headline

        folder = given.runs / "headline"
        print(headline(folder, given.out, only=given.only, seeds=given.seeds, workers=workers))
        return DONE
    if given.name == "safety":
        from outlast.cli import study_safety

        budget = study_safety.Budget(given.seeds, given.steps, given.games, workers)
        print(study_safety.run_study(given.runs / "study-safety", given.out, budget))
        return DONE
    if given.name == "ra":
        from outlast.cli.study_ra import run_study

        sizes = {"seeds": given.seeds, "steps": given.steps, "workers": workers}
        print(run_study(given.runs / "study-ra", given.out, only=given.only, **sizes))
        return DONE
    from outlast.evaluate import calibration, residents
    from outlast.run import disk

    source: Any = residents if given.name == "residents" else calibration
    document = getattr(source, given.name)(given.games)
    given.out.mkdir(parents=True, exist_ok=True)
    page = given.out / f"{given.name}.md"
    disk.write_atomic(page.with_suffix(".json"), json.dumps(document, indent=1).encode() + b"\n")
    disk.write_atomic(page, source.markdown(document).encode())
    print(page)
    return DONE


__all__ = ["BAD_INPUT", "amsdrl", "evaluate", "presets", "report", "resume", "study", "train", "verify"]
