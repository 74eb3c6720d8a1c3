"""A synthetic run in a town of four places: forty iterations, two groups, in which residents learn to live."""

import json

import numpy as np
from made_runs import write_lines

from outlast.evaluate.statistics import summary
from outlast.worlds.town import load_pack

STEPS, ITERATIONS = 1024, 40
TOWN = load_pack("L0.5").model_dump(mode="json")
PLACES = [place["name"] for place in TOWN["places"]]
BED, MEAL, HOSPITAL, JOB = (PLACES.index(name) for name in ("Bed", "HomeMeal", "Hospital", "Job"))
WAYS = ((BED, MEAL), (JOB, HOSPITAL), (JOB, BED), (HOSPITAL, JOB), (BED, BED))


def ways_of(iteration):
    """Count ways between places: later in training, Job comes before Hospital more often."""
    ways = np.zeros((len(PLACES), len(PLACES)), int)
    for way, times in zip(WAYS, (3, iteration, 2, iteration, 7), strict=True):
        ways[way] = times
    return ways


def lives_of(iteration, seed):
    """Make the lives that ended in one iteration of one seed: three deaths, and later one that reaches the limit."""
    base = {
        "iteration": iteration,
        "seed": seed,
        "shaping": 0.0,
        "intrinsic": 2.0,
        "stage": 1 + iteration // 10,
    }
    dead = [base | {"survival": 100 + seed, "extrinsic": 50.0, "cause": cause} for cause in (0, 1, 1)]
    lives = dead + [base | {"survival": 500, "extrinsic": 300.0, "cause": -1}] * (iteration > 20)
    return [life | {"tick": 5 * n, "world": n} for n, life in enumerate(lives)]


def metrics_of(iteration, seeds):
    """Make the measures of one iteration."""
    lives = [lives_of(iteration, seed) for seed in seeds]

    def each(value):
        return [value] * len(seeds)

    def mean(name):
        return [float(np.mean([life[name] for life in one])) for one in lives]

    return {
        "episodes": [len(one) for one in lives],
        "episode/steps": mean("survival"),
        "episode/return": mean("extrinsic"),
        "episode/extrinsic": mean("extrinsic"),
        "episode/shaping": each(0.0),
        "episode/intrinsic": each(2.0),
        "episode/entropy": each(0.9),
        "deaths/limit": each(int(iteration > 20)),
        "deaths/health": each(1),
        "deaths/energy": each(2),
        "tick/idle": each(0.0),
        "refused": each(4),
        "visits/Job": each(iteration),
        "critical/energy": each(10),
        "transitions": [ways_of(iteration).tolist()] * len(seeds),
        "explore/epsilon": each(1 - iteration / 50),
        "curiosity/weight": each(0.5),
        "curriculum/stage": each(min(5, 1 + iteration // 8)),
        "learner/q_mean": each(0.1),
        "learner/td_error": each(0.01),
        "learner/nonfinite": each(0.0),
        "generalisation/before": each(400.0 if iteration == 20 else None),
        "generalisation/after": each(300.0 if iteration == 20 else None),
    }


def write_town(folder, seeds, *, iterations=ITERATIONS, config=None):
    """Write one group directory."""
    folder.mkdir(parents=True, exist_ok=True)
    base = {"program": "survive", "pack": "L0.5", "learner": "dqn", "town": TOWN, "run": {"steps": STEPS}}
    (folder / "config.json").write_text(json.dumps(base | (config or {})))
    (folder / "seeds.json").write_text(json.dumps({"seeds": seeds}))
    numbers = range(1, iterations + 1)
    lines = [{"iteration": i, "steps": i * STEPS, "metrics": metrics_of(i, seeds)} for i in numbers]
    write_lines(folder / "metrics.jsonl", lines)
    write_lines(folder / "episodes.jsonl", [life for i in numbers for s in seeds for life in lives_of(i, s)])
    greedy = {"values": {"survival_steps": [450.0] * len(seeds)}}
    write_lines(
        folder / "evaluations.jsonl", [{"iteration": i, "steps": i * STEPS} | greedy for i in (20, 40)]
    )
    times = ({"event": "started", "time": "t0", "iteration": 0}, {"event": "finished", "time": "t1"})
    write_lines(folder / "events.jsonl", times)


def write_groups(path):
    """Write a run of two groups with seeds 0 and 1, 2."""
    write_town(path / "group-0", [0])
    write_town(path / "group-1", [1, 2])
    (path / "config.json").write_text((path / "group-0/config.json").read_text())
    return path


def survival_suite(per_seed):
    """Make the document of the survival suite."""
    value = summary(per_seed)
    residents = {
        name: {"survival_steps": 100.0, "episode_return": 200.0} for name in ("random", "wait", "rule")
    }
    document = {"suite": "survival", "games": 100, "learner": "dqn", "limit": 500, "epsilon": 0.0}
    document |= {"layouts": "new in every life", "run": "runs/l", "iteration": [40]}
    measures = {"survival_steps": value, "episode_return": value, "death_causes": {"limit": value}}
    return document | measures | {f"{n}_epsilon": v for n, v in measures.items()} | {"residents": residents}
