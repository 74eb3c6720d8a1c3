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
SEEDS, CAPS_S = 8, {USERS: 45.0, BEST: 30.0}
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
def our_program(settings: str) -> tuple[Any, Any]:
    """Compile one iteration of ours, for every seed; return the configuration and the program."""
    import jax
    import jax.numpy as jnp

    from outlast import programs

    config = game(*OURS[settings])
    program = programs.program_of(config)
    step = jax.jit(lambda s: jax.lax.map(program.iterate, s), donate_argnums=0)
    states = jax.eval_shape(lambda: jax.lax.map(program.init, jnp.zeros(1, jnp.uint32)))
    return config, step.lower(states).compile()


@functools.cache
def our_run(settings: str, seed: int) -> tuple[dict[str, Any], Callable[[], float]]:
    """Open a run of ours; return its place and a function that trains one iteration more, as the host loop does."""
    import jax
    import numpy as np

    from outlast import programs
    from outlast.run import layout
    from outlast.run.loop import Group

    config, step = our_program(settings)
    kept = tempfile.TemporaryDirectory()
    folder = Path(kept.name) / "run"
    layout.create(folder, config, [seed])
    group = Group(folder, config, programs.program_of(config), [seed])
    place = {"states": group.open(fresh=False)[0], "iteration": 0, "kept": kept}

    def run() -> float:
        place["states"], metrics = step(place["states"])
        place["iteration"] += 1
        jax.block_until_ready(place["states"])
        group.record(place["iteration"], {name: np.asarray(value) for name, value in metrics.items()})
        return float(group.program.steps_per_iteration)

    return place, run


def our_steps(settings: str, seconds: float) -> tuple[float, float]:
    """Train for some seconds, journals written as in a run; count steps."""
    return repeated(our_run(settings, 0)[1], seconds)


def our_time(settings: str, seed: int, cap_s: float) -> Reached:
    """Train until the target is reached; see `until_target`."""
    import jax

    place, run = our_run(settings, seed)
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


def speeds(
    pair: list[Worker], alone: Worker, theirs: Worker, *, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Measure steps a second of every contender, interleaved: two runs of ours side by side, or one of them."""
    contenders: dict[str, Window] = {_ours(s): together(pair, our_steps, s) for s in OURS}
    for name, worker in (("1 process, 1 thread", pair[0]), ("1 process, 2 threads", alone)):
        contenders[f"ours, defaults, {name}"] = worker.window(our_steps, "defaults")
    for settings in THEIRS:
        for n in THREADS:
            contenders[_theirs(settings, n)] = theirs.window(their_steps, settings, n)
    return interleaved(contenders, rounds=rounds, seconds=seconds)


def _ours(settings: str) -> str:
    return f"ours, {settings}, 2 processes"


def _theirs(settings: str, threads: int) -> str:
    return f"theirs, {settings}, {threads} thread{'s' * (threads > 1)}"


def faster(rates: dict[str, list[float]], settings: str) -> int:
    """Return the number of threads with which stable-baselines3 was faster."""
    return max(THREADS, key=lambda n: middle(rates[_theirs(settings, n)]))


def seconds_to_target(
    ours: dict[str, Worker], theirs: Worker, rates: dict[str, list[float]], caps: dict[str, float], seeds: int
) -> dict[str, list[Reached]]:
    """Train every contender with every seed until the target is reached, one after the other."""
    times: dict[str, list[Reached]] = {}
    for seed in range(1, seeds + 1):
        for name, worker in ours.items():
            for s in OURS if name == "1 thread" else ("defaults",):
                found = worker.call(our_time, s, seed, caps.get(s, max(caps.values())))
                times.setdefault(f"ours, {s}, {name}", []).append(found)
        for s in THEIRS:
            found = theirs.call(their_time, s, faster(rates, s), seed, caps[s])
            times.setdefault(f"theirs, {s}", []).append(found)
    return times


def answer(*, quick: bool) -> Answer:
    """Check the environment, then measure speeds, then times to the target."""
    rounds, seconds, seeds = (1, 0.1, 1) if quick else (5, 1.0, SEEDS)
    caps = dict.fromkeys(CAPS_S, 0.1) if quick else CAPS_S
    with workers(1, 1, 2, 1) as (first, second, alone, theirs):
        complaint = theirs.call(checked)
        rates = speeds([first, second], alone, theirs, rounds=rounds, seconds=seconds)
        ours = {"1 thread": first, "2 threads": alone}
        times = seconds_to_target(ours, theirs, rates, caps, seeds)
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
        "Two processes of ours have one thread and one seed each, as with `--workers 2`; journals are written. Theirs "
        "is one process that has both cores, its torch with one thread and with two: the faster counts. "
        "Settings: as its users run it, 4 environments x 512 steps, 10 epochs, batches of 256, all else the defaults "
        "of stable-baselines3; at its best, our batched world as its vector environment, 256 x 64, 4 epochs, batches "
        "of 4,096, our learning rate, discount, entropy weight and first noise. Ours with the name of a setting has "
        "the same worlds, steps, epochs and batches. Compiling is over before a window begins."
    )
    return Table("Steps a second", ["PPO", "steps/s", *(f"over theirs {s}" for s in THEIRS)], rows, note)


def _time_table(times: dict[str, list[Reached]]) -> Table:
    rows = []
    for name, runs in times.items():
        seconds = [s for s, _, _ in runs]
        stopped = sum(rate < TARGET for _, _, rate in runs)
        rows.append(
            [
                name,
                f"{mean(seconds):.2f}",
                spread(seconds),
                f"{mean([steps for _, steps, _ in runs]) / 1e6:.2f}",
                f"{stopped} of {len(runs)}",
            ]
        )
    note = (
        f"Until the mean actions catch {TARGET:.0%} of {HELD_OUT} held-out games, played after every update with the "
        "clock stopped; compile time is excluded on both sides. One seed at a time; theirs has the threads with which "
        "it was faster. A run of theirs is stopped after "
        + " and ".join(f"{cap:.0f} s {name}" for name, cap in CAPS_S.items())
        + ", and then counts with that time."
    )
    columns = ["PPO", "mean, s", "median, s", "mean, million steps", "stopped before"]
    return Table(
        f"Time to {TARGET:.0%} capture, {len(next(iter(times.values())))} seeds", columns, rows, note
    )


def mean(values: list[float]) -> float:
    """Return the mean: what a user waits for on average."""
    return sum(values) / len(values)


def _criteria(
    rates: dict[str, list[float]], times: dict[str, list[Reached]], complaint: str
) -> list[Criterion]:
    name = "steps/s of our defaults over theirs"
    over = {s: middle(ratios(rates[_ours("defaults")], rates[_theirs(s, faster(rates, s))])) for s in THEIRS}
    # The seconds of a run of theirs that was stopped make the ratio a lower bound; one of ours judges nothing.
    mine = [runs for key, runs in times.items() if key.startswith("ours, defaults")]
    waits = [mean([s for s, _, _ in runs]) for runs in mine if all(rate >= TARGET for _, _, rate in runs)]
    sooner = mean([s for s, _, _ in times[f"theirs, {USERS}"]]) / min(waits) if waits else None
    return [
        at_least(f"{name} {USERS}", over[USERS], FASTER_THAN_USERS),
        at_least(f"{name} {BEST}", over[BEST], FASTER_THAN_BEST),
        at_least(f"times sooner at the target than theirs {USERS}, by means", sooner, SOONER_THAN_USERS),
        Criterion("check_env of stable-baselines3", "passes", None, not complaint),
    ]
