"""Tiny real runs for the tests: configs, one compiled program per config, and what a run left as bytes."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax

from outlast import programs
from outlast.config import canonical_json, override, parse_override, validate
from outlast.programs.survive_config import SurviveConfig
from outlast.run import checkpoint, layout
from outlast.run.loop import Group, Options, train

SMALL = """
collect.worlds=16 collect.horizon=8 ppo.minibatches=2 ppo.network.hidden=[8] arena.level.max_steps=12
arena.level.capture_radius_m=1.5 arena.level.spawn_max_m=4.0 run.checkpoint_seconds=0 run.keep_last=1000
"""
DUEL = """
arena.fixed_speed=false arena.level.width_m=12.0 arena.level.height_m=12.0 ppo.epochs=2 ppo.entropy_weight=0.003
ppo.average=0.0 ppo.learning_rate_decay_steps=10000000
"""
"""A game in which levels, rollbacks and restores change often, whatever the preset is tuned to."""
LEAGUE = """
selfplay.league.capacity=3 selfplay.league.groups=2 selfplay.league.snapshot_steps=256
selfplay.evaluation.every_steps=256 selfplay.evaluation.games=16 selfplay.evaluation.panel_games=4
"""
EVERYTHING = """
selfplay.league.scripted=0.25 ppo.normalise_advantages=false ppo.average=0.5
selfplay.schedule.kind=phases selfplay.schedule.phase_steps=256 selfplay.schedule.evader_multiplier=1.5
selfplay.schedule.cold_start.enabled=true selfplay.schedule.cold_start.steps=256
selfplay.schedule.warm_up.enabled=true selfplay.schedule.warm_up.lengths=[128,256,384]
selfplay.schedule.dampening.enabled=true
selfplay.stabilisers.rollback.enabled=true selfplay.stabilisers.rollback.every_steps=128
selfplay.stabilisers.rollback.keep=3 selfplay.stabilisers.rollback.depth=2
selfplay.stabilisers.rollback.window=10 selfplay.stabilisers.rollback.low=0.9
selfplay.stabilisers.rollback.cooldown_steps=512 selfplay.stabilisers.rollback.bilateral=false
selfplay.stabilisers.collapse.enabled=true selfplay.stabilisers.collapse.threshold=0.5
selfplay.stabilisers.collapse.streak=2 selfplay.stabilisers.collapse.hard_opponents=true
selfplay.stabilisers.entropy_floor.enabled=true
selfplay.stabilisers.ewc.enabled=true selfplay.stabilisers.ewc.samples=16
selfplay.stabilisers.rnd.enabled=true selfplay.stabilisers.rnd.hidden=8 selfplay.stabilisers.rnd.embedding=4
selfplay.stabilisers.rnd.update_samples=32
selfplay.curriculum.kind=smooth selfplay.curriculum.capture_rate=0.01 selfplay.curriculum.start_max_m=3.0
selfplay.curriculum.obstacles=1 selfplay.curriculum.obstacles_from_m=3.2
selfplay.curriculum.mixed_levels=0.25 selfplay.curriculum.warm_start_steps=128
selfplay.curriculum.evader_first=true
"""
OVERRIDES = {
    "chase": ("chase", SMALL + "ppo.normalise_observations=true"),
    "duel": ("duel", DUEL + SMALL + LEAGUE),
}
OVERRIDES["everything"] = ("duel", DUEL + SMALL + LEAGUE + EVERYTHING)
TOWN = f"""
pack={Path(__file__).with_name("tiny_town.toml")} town.layout.policy=per_run lives.worlds=8 lives.horizon=16
replay.capacity=512 replay.batch=8 replay.updates=2 replay.starts=96 q.hidden=[8] q.target_every=5
explore.epsilon_steps=1024 run.checkpoint_seconds=0 run.keep_last=1000
curriculum.kind=adversarial curriculum.lives=8 curriculum.least_lives=8 curriculum.advance=0.84
curriculum.retreat=0.83 curriculum.entropy=1.0 curriculum.slack=10.0
"""
OVERRIDES["town"] = (
    "survive",
    TOWN
    + """
replay.prioritised=true replay.every=4 q.n_step=2 q.dueling=true generalisation.at_steps=640 generalisation.lives=4
curiosity.enabled=true curiosity.hidden=8 curiosity.embedding=4 curiosity.samples=8 curiosity.window=8
curiosity.variance_below=1000.0 curiosity.least_survival=0.1 curiosity.share_kept=0.9 curiosity.weight=1.0
""",
)
OVERRIDES["memory"] = (
    "survive",
    TOWN
    + """
learner=recurrent_dqn town.multi_tick=true town.observation.kind=partial
memory.width=4 memory.channels=[2] memory.sequence=4 memory.burn_in=4
""",
)
SAFE = """
arena.obstacle_slots=1 arena.level.obstacles_min=0 arena.level.obstacles_max=1 arena.level.width_m=4.0
arena.level.height_m=4.0 safety.pursuer.when=always safety.pursuer.kappa_per_s=2.0
"""
# NOTE: the first also learns what is feasible, in a Beta's exact box, for a reward; the second projects its mean.
OVERRIDES["bounds"] = (
    "chase",
    SMALL + SAFE + "ppo.distribution=beta safety.pursuer.bounds=exact safety.pursuer.classifier=true "
    "safety.pursuer.separation_m=0.3 safety.pursuer.margin_m=0.8 safety.pursuer.reward.margin=0.1 "
    "safety.pursuer.reward.intervention=0.1",
)
OVERRIDES["barrier"] = ("chase", SMALL + SAFE + "ppo.distribution=barrier")
STEPS = 16 * 8
"""World steps of one iteration."""
_compiled = {}


def config_of(name, iterations, **run):
    """Return a config with a budget of so many iterations."""
    preset, overrides = OVERRIDES[name]
    budget = [f"run.{key}={value}".lower() for key, value in {"steps": iterations * STEPS, **run}.items()]
    if preset == "survive":
        return of_the_town(overrides.split() + budget)
    return programs.from_preset(preset, overrides.split() + budget)


def of_the_town(overrides):
    """Return a config of the town from the defaults: presets are tuned, and no byte here should depend on it."""
    document = {"program": "survive"}
    for text in overrides:
        document = override(document, *parse_override(text), model=SurviveConfig)
    return validate(SurviveConfig, document, source="test")


def share_compiled_programs(monkeypatch):
    """Compile each program once, however many runs and resumes use it."""
    fresh, compiled = Group._init, Group.compiled

    def once(group, what, make):
        key = (canonical_json(group.config, without=("run",)), *what)
        if key not in _compiled:
            _compiled[key] = make()
        return _compiled[key]

    monkeypatch.setattr(
        Group, "_init", lambda g: once(g, ("init", *g.seeds), lambda: jax.jit(lambda: fresh(g)))()
    )
    monkeypatch.setattr(
        Group, "compiled", lambda g, s: once(g, ("iterate", len(g.seeds)), lambda: compiled(g, s))
    )


def create(folder, config, seeds=(0,)):
    """Make a run directory of one group."""
    layout.create(folder, config, list(seeds))
    return folder


def go_on(folder, config, *, tell=None, **flags):
    """Train a run to the end of a budget in this process; give the lines it told."""
    told, seeds = [], layout.seeds_of(folder)
    options = Options(tell=tell or told.append, quiet=True, **flags)
    train(folder, config, programs.program_of(config), seeds, options=options)
    return told


def state_of(folder, iteration):
    """Return a checkpoint as bytes of every leaf, and as the bytes of its file."""
    place = folder / layout.CHECKPOINTS / str(iteration)
    leaves = checkpoint.load(place).leaves
    return {n: (a.dtype, a.shape, a.tobytes()) for n, a in leaves.items()}, (
        place / checkpoint.STATE
    ).read_bytes()


def result(folder):
    """Return what must be identical: the last state as leaves, digest and raw file, and the journals."""
    lives, last = folder / layout.EPISODES, max(checkpoint.iterations(folder / layout.CHECKPOINTS))
    return {
        "iteration": last,
        "state": state_of(folder, last),
        "digest": checkpoint.load(folder / layout.CHECKPOINTS / str(last)).digest,
        "policies": (folder / layout.POLICIES / str(last) / checkpoint.STATE).read_bytes(),
        "metrics": (folder / layout.METRICS).read_bytes(),
        "episodes": lives.read_bytes() if lives.exists() else b"",
    }


def killed_after(straight, folder, iteration):
    """Copy a run as a kill after the checkpoint of an iteration leaves it: the journals are longer."""
    shutil.copytree(straight, folder)
    for kind in (layout.CHECKPOINTS, layout.POLICIES):
        for later in checkpoint.iterations(folder / kind):
            if later > iteration:
                shutil.rmtree(folder / kind / str(later))
    return folder


def command(*arguments, **options):
    """Start `python -m outlast` with the compile cache of the tests."""
    # The flags of this process, whatever a process of its own would choose: both must give the same bits.
    same = {"NPROC": "1", "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    environment = os.environ | same | {"OUTLAST_CACHE": jax.config.jax_compilation_cache_dir}
    return subprocess.Popen(
        [sys.executable, *(options.pop("by", ["-m", "outlast"])), *map(str, arguments)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@contextlib.contextmanager
def started(*arguments, **options):
    """Run a command beside the test and leave no process behind."""
    process = command(*arguments, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(*arguments, **options):
    """Run a command to its end; give its exit code, its output and what it told."""
    with started(*arguments, **options) as process:
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err
