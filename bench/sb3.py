"""How much faster than stable-baselines3's PPO is ours, in steps a second and in seconds until the pursuer catches
90 % of held-out games? One world for both, reached by Gymnasium there; the chase of `flee_away` at speed 0.9.
"""

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import (
    Answer,
    Criterion,
    Table,
    Window,
    Worker,
    at_least,
    interleaved,
    middle,
    ratios,
    repeated,
    spread,
    together,
    workers,
)

GAME = (
    "opponents.look_ahead=0",
    "opponents.corner=0",
    "opponents.orbit=0",
    "arena.level.evader_speed_mps=0.9",
)
USERS, BEST = "as its users run it", "at its best"
THEIRS: dict[str, dict[str, Any]] = {
    USERS: {"n_steps": 512, "batch_size": 256, "n_epochs": 10},
    BEST: {
        "n_steps": 64,
        "batch_size": 4096,
        "n_epochs": 4,
        "learning_rate": 1e-3,
        "gamma": 0.995,
        "ent_coef": 0.003,
        "policy_kwargs": {"log_std_init": -0.5},
    },
}
OURS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    USERS: (
        "collect.worlds=4",
        "collect.horizon=512",
        "ppo.minibatches=8",
        "ppo.epochs=10",
        "ppo.learning_rate=0.0003",
        "ppo.discount=0.99",
        "ppo.entropy_weight=0",
        "ppo.log_std_initial=0",
        "ppo.speed_bias=0",
    ),
    BEST: ("ppo.epochs=4", "ppo.speed_bias=0"),
}
WORLDS = {USERS: 4, BEST: 256}
THREADS = (1, 2)
TARGET, HELD_OUT = 0.9, 500
CAPS_S = {USERS: 100.0, BEST: 40.0}
Reached = tuple[float, float, float]
FASTER_THAN_USERS, FASTER_THAN_BEST, SOONER_THAN_USERS = 60.0, 2.5, 25.0


def game(*overrides: str) -> Any:
    """Return the configuration that both sides train in."""
    from outlast import programs

    return programs.from_preset("chase", [*GAME, *overrides])


@functools.cache
def capture_rate() -> Callable[[Any], float]:
    """Compile the held-out games: one network's mean actions against `flee_away`, from first states of their own."""
    import jax
    import jax.numpy as jnp

    from outlast import programs
    from outlast.evaluate.panel import against
    from outlast.selfplay.match import starts
    from outlast.worlds.arena import Role, level_of, scripted

    program = programs.program_of(game())
    first = jax.jit(lambda: starts(program.world, level_of(program.config.arena.level), HELD_OUT))()
    place = jnp.int32(list(scripted.EVADERS).index("flee_away"))

    @jax.jit
    def rate(learner: Any) -> Any:
        return against(program, learner, Role.PURSUER, place, first, sampled=False)["capture_rate"]

    return lambda learner: float(rate(learner))


@functools.cache
def our_group(settings: str, seed: int) -> tuple[Any, Callable[[], float]]:
    """Open a run of ours as the host loop does; return it and a function that trains one iteration more."""
    import jax
    import numpy as np

    from outlast import programs
    from outlast.run import layout
    from outlast.run.loop import Group

    kept = tempfile.TemporaryDirectory()
    folder, config = Path(kept.name) / "run", game(*OURS[settings])
    layout.create(folder, config, [seed])
    group = Group(folder, config, programs.program_of(config), [seed])
    place = {"states": group.open(fresh=False)[0], "iteration": 0, "kept": kept}
    step = group.compiled(place["states"])

    def run() -> float:
        place["states"], metrics = step(place["states"])
        place["iteration"] += 1
        jax.block_until_ready(place["states"])
        group.record(place["iteration"], {name: np.asarray(value) for name, value in metrics.items()})
        return float(group.program.steps_per_iteration)

    return place, run


def our_steps(settings: str, seconds: float) -> tuple[float, float]:
    """Train for some seconds, journals written as in a run; count steps."""
    return repeated(our_group(settings, 0)[1], seconds)


def our_time(settings: str, seed: int, cap_s: float) -> Reached:
    """Train until the target is reached; see `until_target`."""
    import jax

    place, run = our_group(settings, seed)
    rate = capture_rate()

    def caught() -> float:
        return rate(jax.tree.map(lambda leaf: leaf[0], place["states"].learners["pursuer"]))

    caught()
    return until_target(run, caught, cap_s)


def until_target(run: Callable[[], float], caught: Callable[[], float], cap_s: float) -> Reached:
    """Train by turns with the clock on and play held-out games with it off; return seconds, steps, capture rate."""
    seconds, steps = 0.0, 0.0
    while True:
        begin = time.perf_counter()
        steps += run()
        seconds += time.perf_counter() - begin
        rate = caught()
        if rate >= TARGET or seconds >= cap_s:
            return seconds, steps, rate


def their_environment(settings: str, seed: int) -> Any:
    """Build what stable-baselines3 trains in: single environments as its users have them, or all in one batch."""
    from stable_baselines3.common.env_util import make_vec_env

    from bench.sb3_worlds import batched
    from outlast.adapters.gym import ArenaEnv

    if settings == USERS:
        return make_vec_env(lambda: ArenaEnv(game()), n_envs=WORLDS[USERS], seed=seed)
    return batched(WORLDS[BEST], game(), seed)


@functools.cache
def their_model(settings: str, seed: int) -> tuple[Any, Callable[[], float]]:
    """Build a PPO of stable-baselines3; return it and a function that trains one rollout more."""
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", their_environment(settings, seed), seed=seed, device="cpu", **THEIRS[settings])
    samples = WORLDS[settings] * model.n_steps

    def run() -> float:
        model.learn(samples, reset_num_timesteps=False)
        return float(samples)

    return model, run


def their_steps(settings: str, threads: int, seconds: float) -> tuple[float, float]:
    """Train for some seconds; count steps."""
    import torch

    torch.set_num_threads(threads)
    return repeated(their_model(settings, 0)[1], seconds)


def their_time(settings: str, threads: int, seed: int, cap_s: float) -> Reached:
    """Train until the target is reached; see `until_target`."""
    import torch

    torch.set_num_threads(threads)
    model, run = their_model(settings, seed)
    rate = capture_rate()
    rate(as_ours(model.policy))
    # The environment is compiled before the clock starts, as ours is.
    model.env.reset()
    model.env.step([model.action_space.sample() for _ in range(model.n_envs)])
    model.env.reset()
    return until_target(run, lambda: rate(as_ours(model.policy)), cap_s)


def as_ours(policy: Any) -> Any:
    """Copy the weights of their policy into a learner of ours, so that both play the same held-out games."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from outlast.learners import ppo
    from outlast.nets import Linear

    layers = [layer for layer in policy.mlp_extractor.policy_net if hasattr(layer, "weight")]
    copied = [
        Linear(jnp.array(layer.weight.detach().numpy()), jnp.array(layer.bias.detach().numpy()))
        for layer in (*layers, policy.action_net)
    ]
    config = game().ppo
    learner = ppo.new_learner(jax.random.key(0), copied[0].weight.shape[1], copied[-1].bias.size, config)
    return eqx.tree_at(
        lambda s: (s.network.actor.layers, s.network.mean), learner, (tuple(copied[:-1]), copied[-1])
    )


def checked() -> str:
    """Let stable-baselines3 check the environment; return nothing, or what it complained of."""
    import warnings

    from stable_baselines3.common.env_checker import check_env

    from outlast.adapters.gym import ArenaEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            check_env(ArenaEnv(game()))
        except Exception as problem:
            return str(problem)
    return ""


def speeds(ours: list[Worker], theirs: Worker, *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Measure steps a second of every contender, interleaved; ours with a run in each worker."""
    contenders: dict[str, Window] = {f"ours, {s}": together(ours, our_steps, s) for s in OURS}
    contenders["ours, defaults, one process"] = ours[0].window(our_steps, "defaults")
    for settings in THEIRS:
        for n in THREADS:
            contenders[_theirs(settings, n)] = theirs.window(their_steps, settings, n)
    return interleaved(contenders, rounds=rounds, seconds=seconds)


def _theirs(settings: str, threads: int) -> str:
    return f"theirs, {settings}, {threads} thread{'s' * (threads > 1)}"


def faster(rates: dict[str, list[float]], settings: str) -> int:
    """Return the number of threads with which stable-baselines3 was faster."""
    return max(THREADS, key=lambda n: middle(rates[_theirs(settings, n)]))


def answer(*, quick: bool) -> Answer:
    """Check the environment, then measure speeds, then times to the target."""
    rounds, seconds, seeds = (1, 0.1, 1) if quick else (5, 1.0, 3)
    caps = dict.fromkeys(CAPS_S, 0.1) if quick else CAPS_S
    times: dict[str, list[Reached]] = {}
    with workers(1, 1, 1) as (first, second, theirs):
        complaint = theirs.call(checked)
        rates = speeds([first, second], theirs, rounds=rounds, seconds=seconds)
        for seed in range(1, seeds + 1):
            for s in OURS:
                cap = caps.get(s, max(caps.values()))
                times.setdefault(f"ours, {s}", []).append(first.call(our_time, s, seed, cap))
            for s in THEIRS:
                found = theirs.call(their_time, s, faster(rates, s), seed, caps[s])
                times.setdefault(f"theirs, {s}", []).append(found)
    answered = Answer(question=" ".join((__doc__ or "").split()), raw={"steps_per_s": rates, "times": times})
    answered.tables = [_speed_table(rates), _time_table(times)]
    answered.notes.append(
        f"`check_env` of stable-baselines3 on our environment: {complaint or 'passes without a warning'}."
    )
    answered.criteria = _criteria(rates, times, complaint)
    return answered


def _speed_table(rates: dict[str, list[float]]) -> Table:
    references = [rates[_theirs(s, faster(rates, s))] for s in THEIRS]
    rows = [
        [name, spread(found, ",.0f"), *(spread(ratios(found, of), ",.1f") for of in references)]
        for name, found in rates.items()
    ]
    note = (
        "Ours are two processes of one thread, as with `--workers 2`, each with a seed of its own, journals written; "
        "theirs is one process that has both cores, its torch with one thread and with two: the faster counts. "
        "Settings: as its users run it, 4 environments x 512 steps, 10 epochs, batches of 256, all else the defaults "
        "of stable-baselines3; at its best, our batched world as its vector environment, 256 x 64, 4 epochs, batches "
        "of 4,096, our learning rate, discount, entropy weight and first noise. Ours with the name of a setting has "
        "the same worlds, steps, epochs and batches. Compiling is over before a window begins."
    )
    return Table("Steps a second", ["PPO", "steps/s", *(f"over theirs {s}" for s in THEIRS)], rows, note)


def _time_table(times: dict[str, list[Reached]]) -> Table:
    rows = []
    for name, runs in times.items():
        reached = [rate >= TARGET for _, _, rate in runs]
        rows.append(
            [
                name,
                ", ".join(
                    f"{s:,.1f}" if ok else f"more than {s:,.0f}"
                    for (s, _, _), ok in zip(runs, reached, strict=True)
                ),
                ", ".join(f"{steps / 1e6:,.2f}" for _, steps, _ in runs),
                ", ".join(f"{rate:.2f}" for _, _, rate in runs),
            ]
        )
    note = (
        f"Until the mean actions catch {TARGET:.0%} of {HELD_OUT} held-out games, played after every update with the "
        "clock stopped; compile time is excluded on both sides. Ours is one seed in one process of one thread, the "
        "other core idle; theirs has the threads with which it was faster. A run of theirs is stopped after "
        + ", ".join(f"{cap:.0f} s {name}" for name, cap in CAPS_S.items())
        + ", and then counts with that time."
    )
    columns = ["PPO", "seconds, by seed", "million steps, by seed", "captured at the end, by seed"]
    return Table(f"Time to {TARGET:.0%} capture", columns, rows, note)


def _criteria(
    rates: dict[str, list[float]], times: dict[str, list[Reached]], complaint: str
) -> list[Criterion]:
    ours, name = rates["ours, defaults"], "steps/s of our defaults over theirs"
    mine = times["ours, defaults"]
    sooner = None
    if all(rate >= TARGET for _, _, rate in mine):
        # A run of theirs that was stopped makes the ratio a lower bound.
        sooner = middle([s for s, _, _ in times[f"theirs, {USERS}"]]) / middle([s for s, _, _ in mine])
    over = {s: middle(ratios(ours, rates[_theirs(s, faster(rates, s))])) for s in THEIRS}
    return [
        at_least(f"{name} {USERS}", over[USERS], FASTER_THAN_USERS),
        at_least(f"{name} {BEST}", over[BEST], FASTER_THAN_BEST),
        at_least(f"times sooner at the target than theirs {USERS}", sooner, SOONER_THAN_USERS),
        Criterion("check_env of stable-baselines3", "passes", None, not complaint),
    ]
