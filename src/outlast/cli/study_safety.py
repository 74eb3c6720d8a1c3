"""The study of safety: what a filter, a safe policy and a BarrierNet cost and save, and what sank the original's.

Each variant is an ordinary run below `runs/study-safety`; what is trained or measured already is not done again.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from outlast.config import Section

NEVER = {"safety.pursuer.when": "never"}
NETS = {"ppo.distribution": "barrier"}
VARIANTS: dict[str, dict[str, Any]] = {
    "no filter": NEVER,
    "filter in the loop": {},
    "beta bounds": {"ppo.distribution": "beta", "safety.pursuer.bounds": "exact"},
    "barriernet": NETS | {"ppo.barrier.gradient": False},
    "barriernet with gradient": NETS,
}
"""What is set on top of the preset `duel-safe`."""
EVADER = {
    "learner": "evader",
    "opponents": {"pure_pursuit": 0.4, "lead": 0.4, "centre_guard": 0.2},
    "safety": {},
}
"""The trained evader that every pursuer meets."""
FAULTS: dict[str, dict[str, Any]] = {
    "rate of 1/s": {"safety.pursuer.kappa_per_s": 1.0},
    "one world": {"collect.worlds": 1, "collect.horizon": 1024},
    "sparse reward": {"arena.reward.potential": 0.0},
    "narrow noise": {"ppo.barrier.turn_noise": 0.176},
    "short horizon": {
        "ppo.discount": 0.99,
        "arena.timeout": "truncates",
        "arena.time_to_go": False,
    },
    "small steps": {"ppo.learning_rate": 3e-4, "ppo.epochs": 10, "ppo.entropy_weight": 0.001},
}
"""What was wrong with the original's BarrierNet, each put back alone; `all of them` puts back everything."""
REPAIRED = NETS | {"ppo.barrier.gradient": False, "opponents": {"flee_away": 1.0}}
FAULT_STEPS = 300_000
"""What the original trained for before it was judged."""
KAPPAS = (0.1, 0.3, 1.0, 2.0, 4.0, 7.0, 10.0, 14.0, 20.0)
SWEPT = ("flee_away", "look_ahead", "trained")


class Budget(NamedTuple):
    """How much the study trains and plays."""

    seeds: int
    steps: int
    games: int
    workers: int


def faults() -> dict[str, dict[str, Any]]:
    """List the variants of the ablation: repaired, each fault put back, and all of them."""
    every: dict[str, Any] = {}
    for fields in FAULTS.values():
        every |= fields
    rows = {"repaired": {}, **FAULTS, "all of them": every}
    return {name: REPAIRED | fields for name, fields in rows.items()}


def config_of(fields: dict[str, Any], steps: int) -> Section:
    """Build the configuration of one variant on top of the preset `duel-safe`."""
    from outlast import programs
    from outlast.config import override, read_preset, validate

    document = read_preset("duel-safe")
    model = programs.config_model(document, source="duel-safe")
    for path, value in {**fields, "run.steps": steps}.items():
        whole = isinstance(value, dict)
        document = document | {path: value} if whole else override(document, path, value, model=model)
    return validate(model, document, source="study safety")


def trained(place: Path, config: Section, budget: Budget) -> Path:
    """Train a variant to its end, unless it is there."""
    from outlast.cli.commands import go
    from outlast.programs import program_of
    from outlast.run import checkpoint, layout

    if not place.exists():
        layout.create(place, config, list(range(budget.seeds)), workers=budget.workers)
    per_iteration = program_of(config).steps_per_iteration
    done = [max(checkpoint.iterations(part / layout.POLICIES), default=0) for part in layout.groups(place)]
    if min(done) * per_iteration < config.run.steps:
        code = go(place, quiet=False, fresh=False, allow_different=False)
        if code:
            raise SystemExit(code)
    return place


def run_study(folder: Path, out: Path, budget: Budget) -> Path:
    """Train and measure what is not there yet, and write the page, the figure and the data."""
    evader_config = config_of(EVADER, budget.steps)
    evader = trained(folder / "evader", evader_config, budget), evader_config
    rows: dict[str, Any] = {}
    for name, fields in VARIANTS.items():
        config = config_of(fields, budget.steps)
        place = trained(folder / name.replace(" ", "-"), config, budget)
        rows[name] = kept(place, "safety", lambda p=place, c=config: suite(p, c, budget.games, evader))
    ablation = {}
    for name, fields in faults().items():
        config = config_of(fields, min(budget.steps, FAULT_STEPS))
        place = trained(folder / f"fault-{name.replace(' ', '-').replace('/', '-')}", config, budget)
        ablation[name] = kept(place, "flee", lambda p=place, c=config: fled(p, c, budget.games))
    plain = folder / "no-filter"
    swept = {
        name: kept(plain, name, lambda check=check: sweep(plain, budget, evader, hard_check=check))
        for name, check in (("sweep", True), ("sweep-unchecked", False))
    }
    from outlast.cli.study_safety_page import write_page

    document = {"study": "safety", "seeds": budget.seeds, "steps": budget.steps, "games": budget.games}
    document |= {"rows": rows, "ablation": ablation, **swept}
    return write_page(document, out)


def kept(place: Path, name: str, measure: Any) -> dict[str, Any]:
    """Return a measurement kept beside a run, or take it and keep it."""
    from outlast.run import disk

    path = place / "evaluations" / f"{name}.json"
    if not path.exists():
        found = measure()
        disk.make_folder(path.parent)
        disk.write_atomic(path, json.dumps(found, allow_nan=False).encode() + b"\n")
    return json.loads(path.read_text())


def suite(place: Path, config: Section, games: int, evader: tuple[Path, Section]) -> dict[str, Any]:
    """Measure one run with the safety suite, against the panel and the trained evader."""
    from outlast.cli.evaluation import evaluate_run

    return evaluate_run(place, config, "safety", games, against=evader)


def sweep(place: Path, budget: Budget, evader: tuple[Path, Section], *, hard_check: bool) -> dict[str, Any]:
    """Measure the unfiltered pursuer behind filters of many rates, with the hard check or by projection alone."""
    from outlast.cli.evaluation import opponent_of
    from outlast.safety.config import SafetyConfig, ShieldConfig

    config = config_of(NEVER, budget.steps)
    against = opponent_of(config, *evader)
    shield = ShieldConfig(when="evaluation", hard_check=hard_check)
    config = config.model_copy(update={"safety": SafetyConfig(pursuer=shield)})
    points = _measured(place, config, budget.games, kappas=KAPPAS, against=against, only=SWEPT)
    return {"opponents": list(SWEPT), "points": points}


def fled(place: Path, config: Section, games: int) -> dict[str, Any]:
    """Measure one run against flee-away, with the filter that it was trained with."""
    kappas = (config.safety.pursuer.kappa_per_s,)
    return _measured(place, config, games, kappas=kappas, only=("flee_away",))[0]


def _measured(place: Path, config: Section, games: int, **options: Any) -> list[dict[str, Any]]:
    import jax

    from outlast.cli.evaluation import newest_policies
    from outlast.evaluate.safety import measured
    from outlast.programs import program_of
    from outlast.worlds.arena import Role

    program = program_of(config)
    learners = jax.vmap(program.players)(newest_policies(place, program)[0])
    return measured(program, learners, Role.PURSUER, games, **options)
