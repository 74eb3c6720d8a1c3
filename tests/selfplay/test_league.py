"""The league in play: who acts in each world, for how long, and who is credited with the result."""

import dataclasses
import functools
import itertools

import duels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.config import BadInput
from outlast.programs import contest as contests
from outlast.programs.play import NOT_SCRIPTED, WARM, Cast, Played, commands_of, name_of, observations
from outlast.selfplay.config import LeagueConfig
from outlast.selfplay.league import Bench, bench_action, credited, first_bench, redrawn
from outlast.selfplay.pool import act, first_pool, policy_of
from outlast.worlds.arena import Outcome, Role, scripted

GROUPS, PER_GROUP = 3, 4
WORLDS = GROUPS * PER_GROUP


def numbered_pool(size):
    """Return a pool of policies whose action is their number, whatever they see."""
    pool = first_pool(duels.learner(0), size)
    policies = jax.tree.map(jnp.zeros_like, pool.policies)
    numbers = jnp.arange(size, dtype=float)
    policies = dataclasses.replace(
        policies,
        mean=dataclasses.replace(policies.mean, bias=numbers[:, None]),
        log_std=jnp.full((size, 1), -20.0),
    )
    return dataclasses.replace(
        pool, policies=policies, born=jnp.arange(size, dtype=jnp.int32), size=jnp.int32(size)
    )


def acting(bench, slots):
    """Tell the number of the policy that acts in each world."""
    seen, noise = jnp.ones((3, WORLDS)), jnp.ones((1, WORLDS))
    return np.asarray(jnp.round(bench_action(bench, slots, seen, noise, log_std_min=-20.0)[0])).astype(int)


def test_a_running_episode_keeps_its_opponent_and_a_new_one_meets_the_newest():
    pool, config, draws = numbered_pool(6), LeagueConfig(groups=GROUPS), np.random.default_rng(0)
    bench, slots = first_bench(pool, GROUPS), jnp.zeros(WORLDS, jnp.int32)
    opponent, met, redraws = acting(bench, slots), set(), 0
    redraw = jax.jit(lambda b, s, key: redrawn(b, pool, s, key, config=config, hard=False))
    for t in range(120):
        before, bench = bench, redraw(bench, slots, jax.random.key(t))
        assert acting(bench, slots).tolist() == opponent.tolist()
        redraws += int(jnp.sum(before.newest != bench.newest))
        ended = draws.random(WORLDS) < 0.2
        newest = jnp.repeat(bench.newest, PER_GROUP)
        slots = jnp.where(ended, newest, slots)
        opponent = np.where(ended, acting(bench, newest), opponent)
        met |= set(opponent.tolist())
    assert met == set(range(6))
    assert redraws > 20


def test_a_group_waits_while_anyone_still_plays_the_older_seat():
    pool = numbered_pool(6)
    one_left = jnp.array([1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0])
    bench = dataclasses.replace(first_bench(pool, GROUPS), newest=jnp.array([1, 0, 0]))
    after = redrawn(bench, pool, one_left, jax.random.key(0), config=LeagueConfig(groups=GROUPS), hard=False)
    # Group 0: seat 0 is older and in use. Group 1: seat 1 is free. Group 2: seat 1 is in use.
    assert after.newest.tolist() == [1, 1, 0]
    kept = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert all(after.entry[at] == bench.entry[at] for at in kept)


def test_the_grouped_pass_is_the_one_by_one_pass():
    pool = first_pool(duels.learner(0), 5)
    stack = jax.tree.map(lambda *x: jnp.stack(x), *[policy_of(duels.learner(i)) for i in range(5)])
    entry = jnp.array([[0, 3], [4, 1], [2, 2]])
    bench = Bench(
        jax.tree.map(lambda leaf: leaf[entry], stack), entry, pool.born[entry], jnp.zeros(GROUPS, int)
    )
    seen = jax.random.normal(jax.random.key(1), (3, WORLDS))
    noise = jax.random.normal(jax.random.key(2), (1, WORLDS))
    slots = jnp.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0])
    together = bench_action(bench, slots, seen, noise, log_std_min=-3.0)
    for world in range(WORLDS):
        policy = policy_of(duels.learner(int(entry[world // PER_GROUP, slots[world]])))
        alone = act(policy, seen[:, world, None], noise[:, world, None], log_std_min=-3.0)[:, 0]
        # Sums of a few products in another order.
        np.testing.assert_allclose(together[:, world], alone, rtol=1e-5, atol=1e-6)


def test_credit_goes_to_the_entry_that_played_and_not_to_a_newcomer_in_its_place():
    pool = numbered_pool(6)
    entry = jnp.array([[0, 3], [4, 1], [3, 2]])
    bench = dataclasses.replace(first_bench(pool, GROUPS), entry=entry, born=pool.born[entry])
    slots = jnp.array([[0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0]])
    ended = jnp.array([[1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1]], bool)
    won = jnp.array([[1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0]], bool)
    after = credited(bench, pool, slots, ended, won)
    #      entry 0: world 0; 1: world 4; 2: world 9; 3: worlds 1, 2 and 8, 11; 4: world 5; 5: nobody.
    assert after.games.tolist() == [1, 1, 1, 4, 1, 0]
    assert after.wins.tolist() == [1, 0, 0, 2, 1, 0]
    newcomer = dataclasses.replace(pool, born=pool.born.at[3].set(99))
    after = credited(bench, newcomer, slots, ended, won)
    assert after.games.tolist() == [1, 1, 1, 0, 1, 0]


@pytest.fixture(scope="module")
def league():
    """Thirty iterations of a duel with half its games against the pool: (program, states, metrics)."""
    run = duels.runner(duels.selfplay())
    return run.program, *run.run(run.init(jnp.uint32(3)), 30)


def entries(state):
    """Return the bytes of each entry of each pool by (role, birth)."""
    found = {}
    for name, pool in state.contest.pools.items():
        for place in range(int(pool.size)):
            policy = jax.tree.map(lambda leaf, at=place: leaf[at], pool.policies)
            found[name, int(pool.born[place])] = duels.digest(policy)
    return found


def test_entries_never_change_and_are_their_own_roles_learners_at_birth(league):
    _, states, _ = league
    seen, held = {}, []
    for state in states:
        now = entries(state)
        held.append(set(now))
        for key, bytes_ in now.items():
            assert seen.setdefault(key, bytes_) == bytes_
    for (name, born), bytes_ in seen.items():
        assert bytes_ == duels.digest(policy_of(states[born].learners[name])), (name, born)
    assert {name for name, _ in seen} == {"pursuer", "evader"}
    # Entries were both stored and given up, or there was nothing to see.
    assert len(seen) > 12
    assert len(held[-1]) == 8


def test_benches_play_what_their_entries_were(league):
    _, states, _ = league
    for state in states[1:]:
        for name, bench in state.contest.benches.items():
            for at in np.ndindex(2, 2):
                seat = jax.tree.map(lambda leaf, at=at: leaf[at], bench.policies)
                born = int(bench.born[at])
                assert duels.digest(seat) == duels.digest(policy_of(states[born].learners[name]))


def test_opponents_change_only_with_the_episode(league):
    _, states, _ = league
    changed = 0
    for before, after in itertools.pairwise(states):
        runs_on = np.asarray(after.games.arena.step > before.games.arena.step + 7)
        for role in Role:
            past, name = past_of(role), name_of(role)
            births = []
            for state in (before, after):
                group = np.repeat(np.arange(2), 4)
                births.append(np.asarray(state.contest.benches[name].born)[group, state.games.slot[past]])
            kept = runs_on[past]
            assert (births[0][kept] == births[1][kept]).all()
            changed += int((births[0] != births[1]).sum())
    assert changed > 25


def past_of(role):
    return duels.selfplay().config.blocks.past(role)


def test_half_of_a_learners_games_are_against_the_pool(league):
    program, _, metrics = league
    assert (program.config.blocks.pursuer, program.config.blocks.both) == (8, 8)
    current = sum(m["episodes/current"] for m in metrics)
    history = (sum(m["episodes"] for m in metrics) - current) / 2
    # About 250 games of each kind; their number differs only by how long they last.
    assert history / (history + current) == pytest.approx(0.5, abs=0.06)


def played_by(program, **fields):
    """Return games in which nothing happened but what is given; only what the league reads is filled in."""
    shape = (1, program.config.collect.worlds)
    none = jnp.zeros(shape, bool)
    all_ = {"sides": {}, "terminated": none, "truncated": none, "outcome": none.astype(jnp.int32)}
    all_ |= {"opponent": jnp.full(shape, NOT_SCRIPTED), "slot": jnp.zeros(shape, jnp.int32)}
    return Played(**(all_ | dict.fromkeys(("episode_steps", "returns", "start_distance_m")) | fields))


@pytest.mark.parametrize("opponent", [NOT_SCRIPTED, WARM, 0])
def test_results_are_booked_on_the_right_side_and_only_if_a_past_policy_played(league, opponent):
    program, states, _ = league
    ended = jnp.zeros((1, 24), bool).at[0, jnp.array([0, 1, 12, 16, 20])].set(True)
    # Worlds 0 to 7 hold past evaders, 8 to 15 nobody's past, 16 to 23 past pursuers.
    outcome = jnp.full((1, 24), Outcome.RUNNING).at[0, jnp.array([0, 1, 12])].set(Outcome.TIMEOUT)
    outcome = outcome.at[0, jnp.array([1, 16, 20])].set(Outcome.CAPTURE)
    games = jnp.full((1, 24), opponent)
    played = played_by(program, terminated=ended, outcome=outcome, opponent=games)
    before, after = states[5].contest, contests.credit(states[5].contest, played, program.config)
    booked = {
        name: (float((pool.games - old.games).sum()), float((pool.wins - old.wins).sum()))
        for (name, pool), old in zip(after.pools.items(), before.pools.values(), strict=True)
    }
    # The pursuer met past evaders twice and caught one; the evader met past pursuers twice and was caught twice.
    assert booked == (
        {"evader": (2.0, 1.0), "pursuer": (2.0, 0.0)}
        if opponent == NOT_SCRIPTED
        else dict.fromkeys(booked, (0, 0))
    )


def test_all_games_against_the_pool_are_booked(league):
    # Until the first entry is given up, what is booked is what was played.
    _, states, metrics = league
    pool_games = sum(m["episodes"] - m["episodes/current"] for m in metrics[:3])
    assert sum(float(pool.games.sum()) for pool in states[3].contest.pools.values()) == pool_games > 20


@pytest.fixture(scope="module")
def mixed():
    """Twenty iterations of a duel in which a quarter of the pool games are scripted."""
    run = duels.runner(duels.MICRO)
    return run.program, *run.run(run.init(jnp.uint32(1)), 20)


def test_scripted_opponents_take_their_share(mixed):
    _, _, metrics = mixed
    games = sum(m["episodes"] - m["episodes/current"] for m in metrics)
    share = sum(m["episodes/scripted"] for m in metrics) / games
    # 150 and more pool games: four standard errors of a share of one quarter are 0.14.
    assert games > 150
    assert share == pytest.approx(0.25, abs=0.14)


def test_scripted_games_are_played_by_moving_scripted_policies_and_no_others(mixed):
    program, states, _ = mixed
    config, world, acted = program.config, program.world, set()
    cases = [(r, name, p) for r in Role for name, p in scripted.panel(r).items()]

    @functools.partial(jax.jit, compiler_options=duels.FAST)
    def commands(state):
        cast = Cast(state.learners, state.contest.benches)
        noise, draws = jnp.zeros((world.action_size, 24)), jnp.zeros((2, 24))
        own = {
            role: commands_of(
                config,
                world,
                state.games,
                observations(world, state.games.arena, role),
                cast,
                role,
                noise,
                draws,
            )[0]
            for role in Role
        }
        return own, [
            jax.vmap(lambda a, r=r, p=p: p(a, r, jnp.zeros(2), config.arena), in_axes=-1)(state.games.arena)
            for r, _, p in cases
        ]

    for state in states[1:]:
        own, alternatives = commands(state)
        for (role, name, _), theirs in zip(cases, alternatives, strict=True):
            past, names = config.blocks.past(role), list(config.scripted_shares(role))
            for at in range(past.start, past.stop):
                drawn = int(state.games.opponent[at])
                if drawn >= 0 and names[drawn % len(names)] == name:
                    mine, expected = ([float(x[at]) for x in pair] for pair in (own[role], theirs))
                    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
                    acted.add(name)
    moving = {name for _, name, _ in cases} - {"stationary", "random"}
    assert acted == moving


@pytest.fixture(scope="module")
def alone():
    """Eight iterations without a pool, in which the pursuer is frozen: (program, states)."""
    run = duels.runner(duels.ALONE)
    return run.program, run.run(run.init(jnp.uint32(0)), 8)[0]


def test_without_a_pool_everybody_plays_the_current(alone):
    program, states = alone
    assert (program.config.blocks.pursuer, program.config.blocks.both) == (0, 24)
    assert (states[-1].contest.pools, states[-1].contest.benches) == ({}, {})


def test_a_frozen_role_keeps_every_byte_while_the_other_learns(alone):
    _, states = alone
    pursuers = {duels.digest(state.learners["pursuer"]) for state in states}
    evaders = {duels.digest(state.learners["evader"]) for state in states}
    assert (len(pursuers), len(evaders)) == (1, len(states))


@pytest.mark.parametrize(
    ("league", "complaint"),
    [
        ({"capacity": 0}, "history must be 0"),
        ({"capacity": 0, "scripted": 1.0, "eviction": "fifo"}, "eviction has no effect"),
        ({"capacity": 0, "history": 0.0, "snapshot_steps": 5}, "snapshot_steps has no effect"),
        ({"history": 0.0, "sampling": "hard"}, "sampling has no effect"),
        ({"history": 0.0, "scripted": 0.1}, "scripted has no effect"),
        ({"history": 0.0, "groups": 2}, "groups has no effect"),
        ({"scripted": 1.0, "sampling": "even"}, "sampling has no effect"),
    ],
)
def test_league_options_that_would_do_nothing_are_refused(league, complaint):
    document = {"learner": "both", "selfplay": {"league": league}}
    with pytest.raises(BadInput, match=complaint):
        duels.validate(duels.DuelConfig, document, source="test")


def test_hard_opponents_are_drawn_for_the_losing_role_only():
    program = duels.selfplay(
        league={"history": 0.5},
        evaluation={"panel_games": 1},
        stabilisers={"collapse": {"enabled": True, "hard_opponents": True}},
    )
    config, state = program.config, duels.runner(duels.selfplay()).init(jnp.uint32(0))
    pools = {}
    for name, pool in state.contest.pools.items():
        # The learner has never beaten entry 3 in 1000 games and has always beaten the others.
        games = jnp.full(4, 1000.0)
        pools[name] = dataclasses.replace(pool, games=games, wins=games.at[3].set(0.0), size=jnp.int32(4))
    losing = dataclasses.replace(state.contest.balance, losing_streak=jnp.array([1, 0]))
    contest = dataclasses.replace(state.contest, pools=pools, balance=losing)
    drawn = {"pursuer": [], "evader": []}
    redraw = jax.jit(lambda key: contests.with_new_opponents(contest, state.games, config, key))
    for t in range(6):
        after = redraw(jax.random.key(t))
        for name, bench in after.benches.items():
            drawn[name] += bench.entry[:, 1].tolist()
    # The pursuer loses, so the evaders' pool deals its hard entry; the pursuers' pool deals all of them.
    assert drawn["evader"] == [3] * 12
    assert len(set(drawn["pursuer"])) > 1
