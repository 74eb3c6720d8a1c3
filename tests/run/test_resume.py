"""The promise of the run layer: however a run is cut, it ends in the same bytes."""

import itertools
import shutil

import jax
import jax.numpy as jnp
import pytest

from outlast import programs
from outlast.programs.play import WARM
from outlast.run import checkpoint, layout
from outlast.run.journal import read
from outlast.run.leaves import named, restored
from runs import (
    config_of,
    create,
    finished,
    go_on,
    killed_after,
    result,
    share_compiled_programs,
    state_of,
)

LENGTHS = {"chase": 8, "duel": 6, "everything": 14, "bounds": 4, "barrier": 4, "town": 10, "memory": 8}
NAMES = list(LENGTHS)


@pytest.fixture(scope="module", autouse=True)
def shared():
    """Compile each program once for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        share_compiled_programs(patch)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Give a finished run, trained without a cut; each is trained once."""
    kept = {}

    def run(name, seeds=(0,), **options):
        key = (name, seeds, *options.items())
        if key not in kept:
            config = config_of(name, LENGTHS[name], **options)
            kept[key] = create(tmp_path_factory.mktemp(name) / "run", config, seeds)
            go_on(kept[key], config)
        return kept[key]

    return run


@pytest.mark.parametrize("name", NAMES)
def test_straight_equals_a_kill_after_any_iteration_and_the_rest(trained, tmp_path, name):
    straight, often = trained(name), trained(name, checkpoint_iterations=1)
    assert checkpoint.iterations(straight / layout.CHECKPOINTS) == [0, LENGTHS[name]]
    assert result(often) == result(straight)
    for k in range(LENGTHS[name]):
        folder = killed_after(often, tmp_path / str(k), k)
        assert checkpoint.iterations(folder / layout.CHECKPOINTS) == list(range(k + 1))
        told = go_on(folder, config_of(name, LENGTHS[name]))
        assert f"restored iteration {k}:" in told[0]
        assert result(folder) == result(straight), k


@pytest.mark.parametrize("name", NAMES)
def test_straight_equals_many_short_runs(trained, tmp_path, name):
    straight, often = trained(name), trained(name, checkpoint_iterations=1)
    folder = create(tmp_path / "run", config_of(name, 1))
    for k in range(1, LENGTHS[name] + 1):
        go_on(folder, config_of(name, k))
        assert state_of(folder, k) == state_of(often, k), k
    assert result(folder) == result(straight)
    shutil.rmtree(folder / layout.CHECKPOINTS / str(LENGTHS[name]))
    go_on(folder, config_of(name, LENGTHS[name]))
    assert result(folder) == result(straight)


@pytest.mark.xfail(
    reason="since averaged weights play, the tiny run advances once; it needs another curriculum"
)
def test_the_cuts_fall_where_it_hurts(trained):
    """Mid-episode, mid-phase, and before and after advances, rollbacks, restores and snapshots."""
    often = trained("everything", checkpoint_iterations=1)
    lines = [line["metrics"] for line in read(often / layout.METRICS)]
    for name in ("advances", "rollbacks", "restores", "phase", "pool_evader", "active"):
        values = [line[f"contest/{name}"][0] for line in lines]
        assert sum(a != b for a, b in itertools.pairwise(values)) >= 2, name
    states = [
        checkpoint.load(often / layout.CHECKPOINTS / str(k)).leaves for k in range(LENGTHS["everything"])
    ]
    assert sum((s["games.arena.step"] > 0).any() for s in states) >= 8
    assert sum(s["contest.schedule.iterations_in_phase"][0] > 0 for s in states) >= 4
    assert sum(s["contest.schedule.warm_left"][0] > 0 for s in states) >= 1
    assert sum((s["games.opponent"] == WARM).any() for s in states) >= 1
    assert sum((s["games.opponent"] >= 0).any() for s in states) >= 1
    assert sum(len(set(s["games.arena.level.spawn_max_m"].ravel())) > 1 for s in states) > 0


@pytest.mark.parametrize("name", ["town", "memory"])
def test_saving_what_was_loaded_gives_the_same_bytes(trained, tmp_path, name):
    kept = trained(name, checkpoint_iterations=1) / layout.CHECKPOINTS
    program = programs.program_of(config_of(name, LENGTHS[name]))
    shapes = jax.eval_shape(lambda: jax.lax.map(program.init, jnp.zeros(1, jnp.uint32)))
    for k in (0, 5, LENGTHS[name]):
        saved = checkpoint.load(kept / str(k))
        again = named(restored(saved.leaves, shapes))
        checkpoint.save(tmp_path, iteration=k, leaves=again, facts=saved.facts)
        assert checkpoint.load(tmp_path / str(k)).digest == saved.digest
        assert state_of(kept.parent, k)[1] == (tmp_path / str(k) / checkpoint.STATE).read_bytes()


@pytest.mark.parametrize("name", ["town", "memory"])
def test_the_cuts_of_the_town_fall_where_it_hurts(trained, name):
    """Mid-life, across changes of stage, retreats and advances, across the event, and while novelty is annealed."""
    often = trained(name, checkpoint_iterations=1)
    lines = [line["metrics"] for line in read(often / layout.METRICS)]
    states = [checkpoint.load(often / layout.CHECKPOINTS / str(k)).leaves for k in range(LENGTHS[name] + 1)]
    assert sum((s["lives.town.age"] > 0).any() for s in states) >= LENGTHS[name]
    assert lines[-1]["curriculum/advances"][0] >= 2
    assert lines[-1]["curriculum/retreats"][0] >= 1
    assert sum(line["deaths/energy"][0] for line in lines) > 0
    assert sum(line["deaths/limit"][0] for line in lines) > 0
    targets = [s["learner.target.head.advantage.weight"].tobytes() for s in states]
    assert len(set(targets)) >= 3
    n_lives = sum(line["episodes"][0] for line in lines)
    assert (often / layout.EPISODES).read_text().count("\n") == n_lives > 50
    if name == "town":
        cells = [s["cells"].tobytes() for s in states]
        assert [a != b for a, b in itertools.pairwise(cells)] == [k == 5 for k in range(LENGTHS[name])]
        assert len({s["interest.weight"].item() for s in states}) >= 3
        assert sum(s["replay.priority"].max() > 0 for s in states) >= 5
    else:
        assert sum(s["lives.memory"].any() for s in states) >= LENGTHS[name]


BESIDE = {"evaluate_every": 3, "tensorboard": True, "checkpoint_iterations": 2}


@pytest.mark.parametrize(
    ("name", "options"),
    [("chase", BESIDE), ("everything", BESIDE | {"evaluate_every": 0}), ("town", BESIDE), ("memory", BESIDE)],
)
def test_evaluation_tensorboard_and_cadence_change_no_byte(trained, name, options):
    straight, beside = trained(name), trained(name, **options)
    assert result(beside) == result(straight)
    assert len(list((beside / layout.TENSORBOARD).iterdir())) == 1
    assert not (straight / layout.TENSORBOARD).exists()
    every = options["evaluate_every"] or 1000
    evaluated = [line["iteration"] for line in read(beside / layout.EVALUATIONS)]
    assert evaluated == list(range(every, LENGTHS[name] + 1, every))


def test_evaluations_beside_training_resume_to_the_same_lines(trained, tmp_path):
    straight = trained("chase", **BESIDE)
    for k in (2, 6):
        folder = killed_after(straight, tmp_path / str(k), k)
        go_on(folder, config_of("chase", LENGTHS["chase"], **BESIDE))
        assert result(folder) == result(straight)
        assert (folder / layout.EVALUATIONS).read_bytes() == (straight / layout.EVALUATIONS).read_bytes()


def test_a_group_of_seeds_resumes_and_each_is_as_if_it_were_alone(trained, tmp_path):
    group = trained("chase", (0, 1))
    folder = create(tmp_path / "run", config := config_of("chase", 3), (0, 1))
    go_on(folder, config)
    go_on(folder, config_of("chase", LENGTHS["chase"]))
    assert result(folder) == result(group)
    together = checkpoint.load(group / layout.CHECKPOINTS / str(LENGTHS["chase"])).leaves
    for place, seed in enumerate((0, 1)):
        alone = checkpoint.load(trained("chase", (seed,)) / layout.CHECKPOINTS / str(LENGTHS["chase"])).leaves
        assert {n: a[place].tobytes() for n, a in together.items()} == {
            n: a.tobytes() for n, a in alone.items()
        }
    assert len({together["learners.pursuer.network.log_std"][i].tobytes() for i in range(2)}) == 2


def test_two_workers_give_the_bytes_of_their_groups(trained, tmp_path):
    config = config_of("chase", LENGTHS["chase"])
    layout.create(tmp_path / "run", config, [0, 1], workers=2)
    for part in layout.groups(tmp_path / "run"):
        go_on(part, config_of("chase", 3))
    code, _, told = finished("resume", tmp_path / "run")
    assert (code, told.count("restored iteration 3")) == (0, 2), told
    for part, seeds in (("group-0", (0,)), ("group-1", (1,))):
        assert result(tmp_path / "run" / part) == result(trained("chase", seeds))


def test_another_seed_or_another_weight_is_seen(trained):
    assert result(trained("chase", (1,))) != result(trained("chase"))


def groups_of(leaves):
    """Name every group of a state: the parts of the contest, of the replay and of learners count for themselves."""
    depth = {"contest": 2, "learners": 3, "learner": 2, "replay": 2}
    return {".".join(name.split(".")[: depth.get(name.split(".")[0], 1)]) for name in leaves}


CONSTANT = {"seed", "contest.base"}
"""Nothing changes them during a run, so that they do not survive is played by other values."""
COUNTERS = {"learners.pursuer.updates"}
"""Nothing in the program of `chase` reads it: a reset shows in the state only."""
CUTS = {
    "chase": dict.fromkeys(["games", "iteration", "seed"], 4)
    | {f"learners.pursuer.{part}": 4 for part in ("moments", "network", "optimiser", "updates")},
    "town": dict.fromkeys(["lives", "stages", "iteration", "seed", "novelty", "interest", "cells"], 7)
    | {f"replay.{part}": 7 for part in ("ticks", "priority", "written")}
    | {f"learner.{part}": 7 for part in ("network", "target", "optimiser", "updates")},
    "memory": dict.fromkeys(["lives", "stages", "iteration", "seed"], 4)
    | {f"replay.{part}": 4 for part in ("ticks", "memory", "written")}
    | {f"learner.{part}": 4 for part in ("network", "target", "optimiser", "updates")},
    "everything": {f"learners.evader.{part}": 9 for part in ("average", "network", "optimiser", "updates")}
    | dict.fromkeys(["games", "iteration"], 9)
    | {
        f"contest.{part}": 9
        for part in ["balance", "benches", "best", "curriculum", "novelty", "pools", "rolling"]
    }
    | {f"contest.{part}": 9 for part in ("anchor", "base", "schedule")}
    | {"cold": 1},
}


def test_the_negative_controls_cover_the_state(trained):
    found = {
        name: groups_of(checkpoint.load(trained(name) / layout.CHECKPOINTS / "0").leaves) for name in CUTS
    }
    assert found["chase"] == set(CUTS["chase"])
    # Without memory there is nothing to store; without an event the layout never changes.
    assert found["town"] - {"replay.memory"} == set(CUTS["town"])
    assert found["memory"] - {"cells"} == set(CUTS["memory"])
    missing = {"seed", "learners.evader.moments", *(g for g in found["everything"] if "pursuer" in g)}
    assert found["everything"] - missing == set(CUTS["everything"])


UNSEEN = {
    "learners.evader.average": "the tiny run restores a rolling copy after the cut, so this loss is made good",
    "learners.evader.updates": "the tiny run restores a rolling copy after the cut, so this loss is made good",
}


def control(name, group, k):
    """Return one case of the negative controls."""
    known = [pytest.mark.xfail(reason=UNSEEN[group], strict=False)] if group in UNSEEN else []
    return pytest.param(name, group, k, marks=known)


@pytest.mark.parametrize(("name", "group", "k"), [control(n, g, k) for n in CUTS for g, k in CUTS[n].items()])
def test_a_group_that_does_not_survive_is_seen(trained, tmp_path, name, group, k):
    often = trained(name, checkpoint_iterations=1)
    kept = killed_after(often, tmp_path / "run", k) / layout.CHECKPOINTS
    first, saved = checkpoint.load(kept / "0").leaves, checkpoint.load(kept / str(k))
    lost = {leaf: first[leaf] for leaf in first if groups_of([leaf]) == {group}}
    if group in CONSTANT:
        lost = {leaf: value + 1 for leaf, value in lost.items()}
    assert any((saved.leaves[leaf] != value).any() for leaf, value in lost.items())
    checkpoint.save(kept, iteration=k, leaves=saved.leaves | lost, facts=saved.facts)
    go_on(tmp_path / "run", config_of(name, LENGTHS[name]))
    with pytest.raises(AssertionError):
        assert result(tmp_path / "run") == result(often)
    changed = (tmp_path / "run" / layout.METRICS).read_bytes() != (often / layout.METRICS).read_bytes()
    assert changed == (group not in COUNTERS)
