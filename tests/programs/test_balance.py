"""The map of balance: cells are games of their own, their levels are data, and the crossing is found."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast import programs
from outlast.config import BadInput
from outlast.report import balance as report
from outlast.report.read import read_run

SMALL = [
    "duel.collect.worlds=16",
    "duel.collect.horizon=8",
    "duel.ppo.minibatches=2",
    "duel.ppo.network.hidden=[8]",
    "duel.selfplay.league.groups=2",
    "duel.selfplay.evaluation.games=8",
    "duel.selfplay.evaluation.every_steps=256",
    "x.values=[0.5, 1.5]",
    "y.field=max_steps",
    "y.values=[16, 24]",
]


@pytest.fixture(scope="module")
def program():
    return programs.program_of(programs.from_preset("balance", SMALL))


@pytest.fixture(scope="module")
def trained(program):
    begun = jax.jit(program.init)(jnp.uint32(3))
    step = jax.jit(program.iterate)
    state, rows = begun, []
    for _ in range(4):
        state, metrics = step(state)
        rows.append(metrics)
    return begun, state, rows


def test_every_cell_plays_its_own_level(program, trained):
    _, state, _ = trained
    level = state.games.arena.level
    assert np.unique(level.evader_speed_mps[0]) == [0.5]
    assert np.unique(level.evader_speed_mps[3]) == [1.5]
    assert [np.unique(level.max_steps[cell]).item() for cell in range(4)] == [16, 16, 24, 24]


def test_a_cell_is_the_duel_at_that_level(program, trained):
    """The first cell learns what a duel at its level learns alone, bit for bit."""
    begun, state, _ = trained
    alone = jax.tree.map(lambda leaf: leaf[0], begun)
    step = jax.jit(program.duel.iterate)
    for _ in range(4):
        alone, _ = step(alone)
    for mine, theirs in zip(jax.tree.leaves(alone), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(mine, theirs[0])


def test_rates_appear_where_an_evaluation_is_due(trained):
    _, _, rows = trained
    seen = [[bool(np.isfinite(row[f"balance/{cell}"])) for cell in range(4)] for row in rows]
    assert seen == [[False] * 4, [True] * 4, [False] * 4, [True] * 4]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("duel.run.steps=7", "duel.run has no effect"),
        ("run.evaluate_every=3", "run.evaluate_every has no effect"),
        ("x.field=max_steps", "both max_steps"),
        ("x.values=[1.0, 1.0]", "values must rise"),
        ("x.values=[-1.0, 1.0]", "cell speed_ratio = -1.0"),
        ("y.values=[16.5, 20]", "max_steps = 16.5 is not a whole number"),
    ],
)
def test_a_map_that_makes_no_sense_is_one_line(change, part):
    with pytest.raises(BadInput) as caught:
        programs.from_preset("balance", [*SMALL, change])
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_curriculum_would_change_the_game():
    moving = ["duel.selfplay.curriculum.kind=smooth", "duel.selfplay.curriculum.obstacles=2"]
    with pytest.raises(BadInput, match="no curriculum, which would change the game"):
        programs.from_preset("balance", [*SMALL, *moving])


@pytest.mark.parametrize(
    ("rates", "at"),
    [([0.9, 0.7, 0.3, 0.1], 1.1), ([0.1, 0.5, 0.9, 0.9], 1.0), ([0.9, 0.8, 0.7, 0.6], np.nan)],
)
def test_the_crossing_is_interpolated(rates, at):
    xs = np.array([0.8, 1.0, 1.2, 1.4])
    np.testing.assert_allclose(report.crossing(xs, np.array(rates)), at, atol=1e-12)


def test_the_map_of_a_journal(tmp_path):
    """Only the last third counts: rates before it are wild and must not be seen."""
    lines = []
    for iteration in range(1, 10):
        late = iteration > 6
        metrics = {f"balance/{c}": [0.8 - 0.2 * c if late else 0.0] for c in range(4)}
        lines.append({"iteration": iteration, "steps": iteration * 100, "metrics": metrics})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"program": "balance", "x": {"field": "speed_ratio", "values": [1.0, 2.0]}}
    config["y"] = {"field": "size_m", "values": [8.0, 10.0]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "seeds.json").write_text(json.dumps({"seeds": [0]}))
    found = report.balance_map(read_run(tmp_path))
    means = [[cell["mean"] for cell in row] for row in found["sr_p"]]
    np.testing.assert_allclose(means, [[0.8, 0.6], [0.4, 0.2]], atol=1e-12)
    assert [even["mean"] for even in found["even_at"]] == [None, None]
