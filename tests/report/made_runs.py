"""A synthetic run: two groups of two seeds, a few hundred iterations, with nulls where nothing ended."""

import json
import math

import numpy as np

from outlast.evaluate.statistics import summary, wilson

STEPS_PER_ITERATION = 16_384
OPPONENTS = ("flee_away", "look_ahead", "corner", "orbit")


def iteration_line(rng, iteration, width, speed):
    """Make one journal line of a group that learns."""
    share = 1 / (1 + math.exp(4 - speed * iteration / 10))
    metrics = {"episodes": [], "captures": []}
    per_opponent = {}
    for index, name in enumerate(OPPONENTS):
        met = rng.poisson(9, width) * (iteration > 1)
        per_opponent[f"episodes/{name}"] = met
        per_opponent[f"captures/{name}"] = rng.binomial(met, share * (1 - 0.08 * index))
    episodes = sum(per_opponent[f"episodes/{name}"] for name in OPPONENTS)
    captures = sum(per_opponent[f"captures/{name}"] for name in OPPONENTS)
    with np.errstate(invalid="ignore"):
        rate = captures / episodes
    noise = rng.normal(0, 1, (6, width))
    metrics = per_opponent | {
        "episodes": episodes,
        "captures": captures,
        "episode/capture_rate": rate,
        "episode/steps": np.where(episodes > 0, 600 - 400 * rate + 10 * noise[0], np.nan),
        "episode/return": np.where(episodes > 0, 20 * rate - 10 + 0.5 * noise[1], np.nan),
        "learner/entropy": 2.8 - 1.2 * share + 0.03 * noise[2],
        "learner/kl": np.abs(0.012 + 0.003 * noise[3]),
        "learner/value_loss": np.exp(-3 * share + 0.15 * noise[4]),
        "learner/explained_variance": share - 0.1 + 0.05 * noise[5],
        "learner/nonfinite": np.zeros(width),
    }
    plain = {k: [float(v) if np.isfinite(v) else None for v in np.asarray(vs)] for k, vs in metrics.items()}
    return {"iteration": iteration, "steps": iteration * STEPS_PER_ITERATION, "metrics": plain}


def write_lines(path, lines):
    """Write JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def panel(seeds, rates):
    """Make the document of the panel suite."""
    rate = {
        name: summary([r + 0.01 * seed for seed in seeds], bounds=(0, 1)) | {"games": 1000}
        for name, r in rates.items()
    }
    rows = [
        {"pursuer": p, "evader": e, "games": 1000, "capture_rate": 0.5, "ci95": wilson(500, 1000)}
        for p in ("lead", "pure_pursuit")
        for e in OPPONENTS
    ]
    time_s = {name: summary([12.5 + seed for seed in seeds]) for name in rates}
    document = {"suite": "panel", "seeds": seeds, "games": 1000, "capture_rate": rate}
    return document | {"capture_time_s": time_s, "table": rows}


def write_group(folder, seeds, *, iterations=123, config=None, speed=1.0):
    """Write one group directory."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seeds[0])
    base = {
        "program": "duel",
        "learner": "pursuer",
        "opponents": dict.fromkeys(OPPONENTS, 1.0),
        "ppo": {"discount": 0.99, "learning_rate": 1e-3},
        "run": {"steps": 2_000_000},
    }
    (folder / "config.json").write_text(json.dumps(base | (config or {})))
    (folder / "seeds.json").write_text(json.dumps({"seeds": seeds}))
    identity = {"config": "5f0c9e", "jax": "0.10.2", "platform": "cpu", "width": len(seeds)}
    (folder / "identity.json").write_text(json.dumps(identity))
    write_lines(
        folder / "metrics.jsonl",
        [iteration_line(rng, i, len(seeds), speed) for i in range(1, iterations + 1)],
    )
    events = [
        {"event": "started", "time": "2025-03-01T10:00:00Z", "iteration": 0, "messages": []},
        {"event": "interrupted", "time": "2025-03-01T10:03:00Z", "iteration": 60, "steps_per_s": 211_000.5},
        {
            "event": "resumed",
            "time": "2025-03-01T10:03:30Z",
            "iteration": 60,
            "messages": ["restored iteration 60"],
        },
        {
            "event": "finished",
            "time": "2025-03-01T10:08:00Z",
            "iteration": iterations,
            "steps_per_s": 215_000.0,
        },
    ]
    write_lines(folder / "events.jsonl", events)
    (folder / "evaluations").mkdir()
    rates = {"flee_away": 0.93, "look_ahead": 0.7, "corner": 0.8, "orbit": 0.4}
    (folder / "evaluations" / "panel.json").write_text(json.dumps(panel(seeds, rates)))
