"""Configuration: frozen, strict, bounded sections; presets; overrides; canonical JSON and fingerprint.

Config decides, state changes, code does neither. A program declares one model (see `programs`); this module
reads TOML presets (differences from the defaults only), applies `--set` overrides and explains every mistake
in one line that names the field, the value and the allowed range.
"""

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_jsonable_python

MAX_CONFIG_BYTES = 1_000_000
MAX_INTEGER_BITS = 1024


class BadInput(Exception):
    """A mistake of the user's: one clear line, exit code 2."""


class Section(BaseModel):
    """The base of every part of a configuration: immutable, no coercion, no unknown fields, no NaN."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )


class RunSection(Section):
    """What the host does beside the program: it observes, so nothing here can change a bit of the state."""

    steps: int = Field(2_000_000, ge=1, le=10**13, description="training budget per seed, in world steps")
    checkpoint_seconds: float = Field(
        30.0, ge=0.0, le=86_400.0, description="time between checkpoints; 0 saves only by iterations"
    )
    checkpoint_iterations: int = Field(
        0, ge=0, le=10**9, description="iterations between checkpoints; 0 saves only by time"
    )
    keep_last: int = Field(3, ge=1, le=1000, description="newest checkpoints kept")
    keep_every: int = Field(
        0, ge=0, le=10**9, description="also keep each checkpoint at a multiple of this iteration"
    )
    keep_best: bool = Field(True, description="also keep the checkpoint with the best training score")
    evaluate_every: int = Field(
        0, ge=0, le=10**9, description="iterations between evaluations beside training; 0 for none"
    )
    tensorboard: bool = Field(False, description="also write TensorBoard event files (extra `tb`)")


Config = TypeVar("Config", bound=Section)


def read_toml(text: str, *, source: str) -> dict[str, Any]:
    """Parse TOML, with the source named when it is not."""
    if len(text.encode()) > MAX_CONFIG_BYTES:
        raise BadInput(f"{source}: larger than {MAX_CONFIG_BYTES} bytes")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}: not valid TOML: {error}") from None
    if wild := _wild(document):
        raise BadInput(f"{source}: {wild}")
    return document


def preset_names() -> list[str]:
    """Name every preset that ships with the package."""
    return sorted(
        f.name[:-5] for f in resources.files("outlast.presets").iterdir() if f.name.endswith(".toml")
    )


def read_preset(name: str) -> dict[str, Any]:
    """Read one preset as the differences from the defaults that it is."""
    if name not in preset_names():
        raise BadInput(f"unknown preset {name!r}{did_you_mean(name, preset_names())}; see `outlast presets`")
    text = resources.files("outlast.presets").joinpath(f"{name}.toml").read_text()
    return read_toml(text, source=f"preset {name}")


def about(folder: str) -> dict[str, str]:
    """Return what each TOML file of a folder of the package says of itself in its first line, a comment."""
    files = [f for f in resources.files("outlast").joinpath(folder).iterdir() if f.name.endswith(".toml")]
    lines = {f.name[:-5]: f.read_text().partition("\n")[0] for f in sorted(files, key=lambda f: f.name[:-5])}
    return {name: line.removeprefix("#").strip() for name, line in lines.items()}


def parse_override(text: str) -> tuple[str, Any]:
    """Split `path.to.field=value`; the value is read as TOML, or as a bare word."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise BadInput(f"--set {text!r}: write it as path.to.field=value")
    try:
        return path.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return path.strip(), value.strip()


def override(document: Mapping[str, Any], path: str, value: Any, *, model: type[Section]) -> dict[str, Any]:
    """Return the document with one field set; an unknown path is an error with a suggestion."""
    known = [name for name, _ in fields(model)]
    is_open = any(path.startswith(f"{name}.") for name, annotation in fields(model) if is_mapping(annotation))
    if path not in known and not is_open:
        raise BadInput(f"--set {path}: no such field{did_you_mean(path, known)}")
    head, dot, rest = path.partition(".")
    changed = dict(document)
    if not dot:
        changed[head] = value
        return changed
    inner = changed.get(head)
    changed[head] = _set_inside(inner if isinstance(inner, Mapping) else {}, rest, value)
    return changed


def _set_inside(document: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    head, dot, rest = path.partition(".")
    changed = dict(document)
    inner = changed.get(head)
    changed[head] = _set_inside(inner if isinstance(inner, Mapping) else {}, rest, value) if dot else value
    return changed


def is_mapping(annotation: Any) -> bool:
    """Tell whether a field holds free keys, such as the weights of a mixture."""
    return getattr(annotation, "__origin__", None) is dict


def fields(model: type[Section], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List every leaf field of a model as (dotted path, annotation)."""
    for name, info in model.model_fields.items():
        inner = _section_of(info.annotation)
        if inner is None:
            yield f"{prefix}{name}", info.annotation
        else:
            yield from fields(inner, f"{prefix}{name}.")


def defaults(model: type[Section]) -> dict[str, Any]:
    """Return what a model holds where nothing is set; a field without a default is left out."""
    document: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        inner = _section_of(info.annotation)
        if inner is not None:
            document[name] = defaults(inner)
        elif not info.is_required():
            document[name] = to_jsonable_python(info.get_default())
    return document


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return None


def did_you_mean(word: str, known: list[str]) -> str:
    """Suggest the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if not near:
        last = word.rsplit(".", 1)[-1]
        near = [name for name in known if name.rsplit(".", 1)[-1] == last][:1]
    return f", did you mean {near[0]!r}?" if near else ""


def validate(model: type[Config], document: Mapping[str, Any], *, source: str) -> Config:
    """Build a model from a plain document, or say in one line what is wrong with it."""
    if wild := _wild(document):
        raise BadInput(f"{source}: {wild}")
    try:
        text = json.dumps(document, allow_nan=False)
    except TypeError as error:
        raise BadInput(f"{source}: {error}") from None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise BadInput(_explain(model, error, source)) from None


def _wild(value: Any, path: str = "") -> str:
    """Name the first number that JSON cannot carry, or nothing."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return f"{path} = {value} is not a finite number"
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        return f"{path} is an integer of {value.bit_length()} bits, which is out of any range"
    if isinstance(value, Mapping):
        parts = ((inner, f"{path}.{name}" if path else str(name)) for name, inner in value.items())
    elif isinstance(value, list | tuple):
        parts = ((inner, path) for inner in value)
    else:
        return ""
    return next((found for inner, name in parts if (found := _wild(inner, name))), "")


def _explain(model: type[Section], error: ValidationError, source: str) -> str:
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    value = first.get("input")
    shown = json.dumps(value) if isinstance(value, str | int | float | bool) else type(value).__name__
    if first["type"] == "extra_forbidden":
        known = [name for name, _ in fields(model)]
        return f"{source}: {path}: no such field{did_you_mean(path, known)}"
    if first["type"] == "value_error":
        where = f"{path}: " if path else ""
        return f"{source}: {where}{first['ctx']['error']}"
    allowed = allowed_values(model, path)
    return f"{source}: {path} = {shown}: {first['msg'].lower()}{f' (allowed: {allowed})' if allowed else ''}"


def allowed_values(model: type[Section], path: str) -> str:
    """Describe what a field accepts: a range, or a list of words."""
    head, dot, rest = path.partition(".")
    info = model.model_fields.get(head)
    if info is None:
        return ""
    inner = _section_of(info.annotation)
    if dot and inner is not None:
        return allowed_values(inner, rest)
    low = next((m.ge for m in info.metadata if hasattr(m, "ge")), None)
    low = next((m.gt for m in info.metadata if hasattr(m, "gt")), low)
    high = next((m.le for m in info.metadata if hasattr(m, "le")), None)
    if low is not None and high is not None:
        return f"{low} to {high}"
    words = [a for a in get_args(info.annotation) if isinstance(a, str)]
    if words:
        return ", ".join(words)
    return "true or false" if info.annotation is bool else ""


def canonical_json(config: Section, *, without: tuple[str, ...] = ()) -> str:
    """Write a config so that equal configs give equal bytes."""
    document = config.model_dump(mode="json", exclude=set(without))
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(config: Section) -> str:
    """Hash everything that can decide a bit of the state: all sections but `run`."""
    return hashlib.sha256(canonical_json(config, without=("run",)).encode()).hexdigest()
