"""Packs: what ships, what is refused and in which words, and the example of the guide."""

import json
import re
import tomllib
from pathlib import Path

import jax
import pytest

from outlast.config import BadInput, canonical_json, validate
from outlast.worlds.town import Pack, Town, load_pack, pack_fingerprint
from outlast.worlds.town.pack import build_pack

from . import towns

GUIDE = Path(__file__).parents[3] / "docs" / "packs.md"
SIZES = {"L0": 3, "L0.5": 7, "L1": 8, "L1-fixed": 8, "L1-strong": 8, "L1-weak": 8, "L2": 8, "L3": 8}


def test_shipped_packs():
    assert {name: load_pack(name).size for name in towns.SHIPPED} == SIZES
    assert load_pack("L3").multi_tick
    assert load_pack("L0").deployed_names == ("Bed",)
    assert load_pack("L0.5").deployed_names == ("Bed", "HomeMeal", "Hospital", "Job")
    assert len(load_pack("L1").deployed_names) == 14
    assert load_pack("L1").meter_names == (
        "energy", "hygiene", "satiation", "money", "mood", "social", "health", "fitness",
    )  # fmt: skip
    starts = {name: load_pack(name).meters[3].start for name in ("L0", "L0.5", "L1", "L3")}
    assert starts == {"L0": 0.25, "L0.5": 1.0, "L1": 0.5, "L3": 0.5}


@pytest.mark.parametrize(("name", "factor"), [("L1-weak", 0.5), ("L1-strong", 1.5)])
def test_cascade_variants_scale_every_strength(name, factor):
    plain, variant = (towns.town(each) for each in ("L1", name))
    needy = dict.fromkeys(("hygiene", "social", "satiation", "mood"), 0.0)
    loss = []
    for world in (plain, variant):
        state = towns.born(world, energy=0.9, **needy)
        after = towns.play(world, state, [5])[0][0]
        loss.append(0.9 - towns.meter(world, after, "energy") - 0.006)
    assert loss[0] == pytest.approx(0.005 + 0.005 + 0.0005 + 0.0008, abs=1e-6)
    assert loss[1] == pytest.approx(factor * loss[0], abs=1e-6)


@pytest.mark.parametrize("name", towns.SHIPPED)
def test_a_pack_survives_the_canonical_dump(name):
    """A run stores its pack as sorted JSON: nothing that decides a bit may hang on the order of a table."""
    pack = load_pack(name)
    again = validate(Pack, json.loads(canonical_json(pack)), source="dump")
    assert again == pack
    assert (again.meter_names, again.place_names) == (pack.meter_names, pack.place_names)


def test_fingerprints_tell_packs_apart_and_read_the_order():
    prints = {name: pack_fingerprint(load_pack(name)) for name in towns.SHIPPED}
    assert len(set(prints.values())) == len(prints)
    assert prints["L1"] == pack_fingerprint(load_pack("L1"))
    turned = towns.TINY | {"meters": dict(reversed(towns.TINY["meters"].items()))}
    assert pack_fingerprint(build_pack(turned, source="t")) != pack_fingerprint(
        build_pack(towns.TINY, source="t")
    )


BAD = tomllib.loads((Path(__file__).parent / "bad_packs.toml").read_text())["bad"]
BAD += [
    {
        "changes": {"meters": {f"m{n}": {} for n in range(33)}},
        "message": "meters: 36 given (allowed: 1 to 32)",
    },
    {
        "changes": {"places": {"Bed": {"instant": None}}},
        "message": "places.Bed: needs a table 'instant', because multi_tick = false",
    },
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["message"][:50])
def test_bad_packs_get_one_clear_line(case):
    with pytest.raises(BadInput) as caught:
        build_pack(towns.merged(towns.TINY, case["changes"]), source="my.toml")
    assert str(caught.value) == f"my.toml: {case['message']}"


def test_bad_files_get_one_clear_line(tmp_path):
    twice = tmp_path / "twice.toml"
    twice.write_text('base = "L1"\n[places.Spa]\n[places.Spa]\n')
    with pytest.raises(
        BadInput, match=r"twice\.toml: not valid TOML: Cannot declare \('places', 'Spa'\) twice"
    ):
        load_pack(twice)
    with pytest.raises(BadInput, match=r"nowhere\.toml: cannot be read: "):
        load_pack(tmp_path / "nowhere.toml")
    with pytest.raises(BadInput, match=r"unknown pack 'L11', did you mean 'L1'\?; give one of L0, "):
        load_pack("L11")


def test_changes_overwrite_what_a_pack_says():
    pack = load_pack("L1", {"size": 9, "meters": {"money": {"start": 0.9}}})
    assert (pack.size, pack.meters[3].start, pack.meters[3].name) == (9, 0.9, "money")
    with pytest.raises(BadInput, match=r"pack L1: size = 99: .*\(allowed: 2 to 64\)"):
        load_pack("L1", {"size": 99})


def examples():
    """Cut the TOML blocks out of the guide."""
    return re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("index", range(2))
def test_the_examples_of_the_guide_are_worlds(index, tmp_path):
    assert len(examples()) == 2
    file = tmp_path / "mine.toml"
    file.write_text(examples()[index])
    world = Town(load_pack(file))
    given = world.level(world.layout(jax.random.key(0)))
    state, step = jax.jit(world.step)(world.reset(jax.random.key(1), given), jax.numpy.int32(5))
    assert int(state.age) == 1
    assert 0.0 < float(step.reward) <= 1.0


def test_the_guide_names_every_field():
    text = GUIDE.read_text()
    missing = [name for name in Pack.model_fields if f"`{name}`" not in text]
    assert missing == []
