"""The page that maps the originals to this program says what the program does."""

import re
from pathlib import Path

import pytest

from outlast.cli.flags import GROUPS
from outlast.config import BadInput, fields, override
from outlast.programs import PROGRAMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "originals.md").read_text()


def flag_tables():
    """Write the tables of the flags as the page has to hold them."""
    lines = []
    for title, flags in GROUPS.items():
        lines += [f"### Flags: {title}", "", "| flag | original's default | decides here |", "|---|---|---|"]
        for flag in flags:
            there = {"": "none", "None": "none", "False": "off", "True": "on"}.get(
                str(flag.default), flag.default
            )
            decides = ", ".join(f"`{path}`" for path in flag.paths) or flag.place
            if flag.refused:
                decides = flag.about
            lines.append(f"| `--{flag.name}` | {there} | {decides} |")
        lines.append("")
    return "\n".join(lines)


def test_the_tables_of_the_flags_are_those_of_the_program():
    start, end = PAGE.index("### Flags:"), PAGE.index("## The arena: training")
    assert PAGE[start:end] == flag_tables() + "\n"


SECTIONS = {name for model, _ in PROGRAMS.values() for name in model.model_fields}
NAMED = sorted(
    {word for word in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", PAGE) if word.split(".")[0] in SECTIONS}
)


@pytest.mark.parametrize("path", NAMED)
def test_every_field_named_on_the_page_exists(path):
    """A field of any program will do; `override` knows open tables too."""
    assert len(NAMED) > 50
    for model, _ in PROGRAMS.values():
        try:
            override({}, path, 0, model=model)
        except BadInput:
            continue
        return
    pytest.fail(f"{path} is a field of no program: {len([*fields(model)])} were looked at")


def test_every_test_named_on_the_page_exists():
    named = set(re.findall(r"`(tests/[a-z_/]+\.py)`", PAGE))
    assert {path for path in named if not (ROOT / path).is_file()} == set()
    assert len(named) > 10
