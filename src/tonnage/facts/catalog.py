"""Which model does a name mean? The one reader of data/models, of a user's own records, and of folders with a config.json.

A model may be a catalogue name or alias in any case, a folder, a config.json, a record of the user's (`--facts DIR`), or
a hub id where the extra `hub` is installed and allowed. A folder with weights is measured from its safetensors headers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tonnage.errors import InputError, UnknownError, nearest
from tonnage.facts.model import read_model
from tonnage.facts.provenance import Confidence
from tonnage.facts.shape import ModelShape
from tonnage.facts.tensors import Tensor

MODELS = Path(__file__).parent / "data" / "models"
LARGEST_CONFIG_BYTES = 64 * 2**20

_CONFIDENCE: dict[str, Confidence] = {"config text read": "read", "derived": "extrapolated", "from memory": "assumed"}


class Fact(msgspec.Struct, frozen=True):
    """A published number and where it was read."""

    value: int | str
    source: str = ""


LEAST_PREFIX = 6


class Model(msgspec.Struct, frozen=True):
    """A model that was found: its shape, how sure its fields are, and what was published or measured about it.

    `measured_bytes` are the weights in a local folder's safetensors headers, by dtype. `notes` say what was corrected,
    assumed or left unexplained.
    """

    name: str
    shape: ModelShape
    confidence: Confidence
    source: tuple[str, ...] = ()
    verified: str = ""
    facts: dict[str, Fact] = {}
    measured_bytes: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    path: str = ""
    released: str = ""
    license: str = ""


def find_model(name: str, *, facts_dir: Path | None = None, like: str = "", assume_full: bool = False, hub: bool = False) -> Model:
    """Return the model that a name or path means; `like` lends its shape to a fine-tune that is not listed.

    Raises UnknownError: no such name (with the closest ones) or an architecture we do not know. InputError: a file that
    cannot be read as what it should be.
    """
    if like:
        model = find_model(like, facts_dir=facts_dir, assume_full=assume_full)
        note = f"shape of {model.name}, as asked by --like; a fine-tune that changed vocabulary or layers differs"
        return msgspec.structs.replace(model, name=name, notes=(*model.notes, note))
    path = Path(name)
    if _is_path(name):
        return _from_path(path, assume_full)
    if facts_dir is not None and (own := _own_record(facts_dir, name)) is not None:
        return _from_record(own, assume_full)
    stem = index().get(name.strip().lower())
    if stem is None and "/" in name:
        stem = index().get(name.split("/")[-1].lower()) if not hub else None
        if stem is None and hub:
            return _from_hub(name, assume_full)
    if stem is None and (only := _by_prefix(name)) is not None:
        model = _from_record(MODELS / f"{only}.json", assume_full)
        return msgspec.structs.replace(model, notes=(*model.notes, f"{name} read as {model.name}, the only one that begins so"))
    if stem is None:
        raise _unknown(name)
    return _from_record(MODELS / f"{stem}.json", assume_full)


def published_in(name: str, precision: str) -> str:
    """Return the catalogue's checkpoint of a model in another precision; empty where none is known.

    >>> published_in("Qwen/Qwen3-8B", "fp8"), published_in("Qwen/Qwen3-8B", "nvfp4")
    ('Qwen/Qwen3-8B-FP8', '')
    """
    words = {"fp8": ("fp8",), "int4": ("awq", "int4", "gptq", "w4a16"), "int8": ("int8", "w8a8")}.get(
        precision.lower(), (precision.lower(),)
    )
    base = name.split("/")[-1].lower() + "-"
    for word in words:
        for alias, stem in index().items():
            if "/" not in alias and alias.startswith(base) and word in alias[len(base) :].split("-"):
                return stem.replace("--", "/", 1)
    return ""


def _by_prefix(name: str) -> str | None:
    """Return the only record whose name goes on where this one ends."""
    start = name.strip().lower().split("/")[-1] + "-"
    stems = {stem for alias, stem in index().items() if "/" not in alias and alias.startswith(start)}
    return stems.pop() if len(stems) == 1 and len(start) > LEAST_PREFIX else None


def _is_path(name: str) -> bool:
    try:
        return Path(name).exists() or name.endswith(".json") or name.startswith((".", "/", "~"))
    except (OSError, ValueError):
        return False


def _unknown(name: str) -> UnknownError:
    close = nearest(name.split("/")[-1], [alias for alias in index() if "/" not in alias])
    known = (
        f"closest are {', '.join(close[:-1])} and {close[-1]}"
        if len(close) > 1
        else (f"closest is {close[0]}" if close else "`tonnage models` lists them")
    )
    return UnknownError(
        f"no model is named {name!r}", hint=f"{known}; for a fine-tune give --like NAME, or a path to its folder or config.json"
    )


def index() -> dict[str, str]:
    """Return every name and alias, lower case, to the name of its record."""
    return msgspec.json.decode((MODELS / "index.json").read_bytes(), type=dict[str, str])


def all_names() -> list[str]:
    """Return the names of the catalogue's models as they were published."""
    return sorted(path.stem.replace("--", "/", 1) for path in MODELS.glob("*--*.json"))


def record_of(name: str) -> Path | None:
    """Return the path of a catalogue record, or None where no such name is known."""
    stem = index().get(name.strip().lower())
    return MODELS / f"{stem}.json" if stem else None


def _own_record(folder: Path, name: str) -> Path | None:
    if not folder.is_dir():
        raise InputError(
            f"--facts {str(folder)!r} is not a folder",
            hint="it holds records like those of `tonnage models NAME --json`, or config.json files by name",
        )
    wanted = name.strip().lower().replace("/", "--")
    for path in sorted(folder.glob("*.json")):
        if path.stem.lower() in (wanted, wanted.split("--")[-1]) or path.stem.lower().split("--")[-1] == wanted:
            return path
    return None


def read_json(path: Path) -> Any:
    """Return a JSON file's value.

    Raises InputError: missing, too large, or no JSON (for instance cut in half), in words.
    """
    where = str(path)
    try:
        if path.stat().st_size > LARGEST_CONFIG_BYTES:
            raise InputError("is larger than any config.json", where=where)
        return _decoded(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            "there is no such file", where=where, hint="give a folder with a config.json, or a name that `tonnage models` lists"
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", where=where) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not whole JSON ({error})", where=where, hint="was the file cut in half?") from None


def _decoded(data: bytes) -> Any:
    """Return a JSON value; published configs may hold Infinity and NaN, which JSON proper does not know."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        if b"Infinity" not in data and b"NaN" not in data:
            raise
    import json

    return json.loads(data)


def _from_path(path: Path, assume_full: bool) -> Model:
    path = path.expanduser()
    if path.is_dir():
        return _from_folder(path, assume_full)
    config = read_json(path)
    if isinstance(config, dict) and "config" in config and "facts" in config:
        return _from_record(path, assume_full)
    config = _with_sibling(config, path.parent) if path.name == "config.json" else config
    shape = read_model(config, name=path.parent.name if path.name == "config.json" else path.stem, where=str(path), assume_full=assume_full)
    return Model(
        shape.name, shape, "assumed" if shape.assumed else "read", (str(path),), "config text read", notes=shape.assumed, path=str(path)
    )


def _with_sibling(config: Any, folder: Path) -> Any:
    sibling = folder / "hf_quant_config.json"
    if isinstance(config, dict) and "quantization_config" not in config and sibling.exists():
        return {**config, "hf_quant_config": read_json(sibling)}
    return config


def _from_folder(folder: Path, assume_full: bool) -> Model:
    config = _with_sibling(read_json(folder / "config.json"), folder)
    shape = read_model(config, name=folder.resolve().name, where=str(folder / "config.json"), assume_full=assume_full)
    model = Model(
        shape.name, shape, "assumed" if shape.assumed else "read", (str(folder),), "config text read", notes=shape.assumed, path=str(folder)
    )
    if not any(folder.glob("*.safetensors")):
        return msgspec.structs.replace(model, notes=(*model.notes, "no safetensors in the folder: weights from the config"))
    from tonnage.facts.checkpoint import read_folder

    checkpoint = read_folder(folder)
    _match(checkpoint.elements, shape, folder)
    facts = {
        "weight_bytes": Fact(checkpoint.bytes, "safetensors headers"),
        "published_elements": Fact(checkpoint.elements, "safetensors headers"),
    }
    return msgspec.structs.replace(model, measured_bytes=dict(checkpoint.by_dtype), facts=facts, notes=(*model.notes, *checkpoint.notes))


def _match(elements: int, shape: ModelShape, folder: Path) -> None:
    """Raise InputError where the safetensors of a folder cannot be the model of its config.json: packed formats hold an eighth."""
    described = shape.params_total
    least = described // 16 if shape.quantisation.targets else described // 2
    if not least <= elements <= 2 * described:
        raise InputError(
            f"holds {elements:,} weights, but its config.json describes a model of {described:,}",
            where=str(folder),
            hint="is a shard missing, or is this an adapter beside its base model's config? Plan the base model with --lora N:RANK",
        )


def _from_hub(name: str, assume_full: bool) -> Model:
    from tonnage.facts.hub import fetch_config

    config = fetch_config(name)
    shape = read_model(config, name=name, where=f"{name}/config.json", assume_full=assume_full)
    return Model(name, shape, "assumed" if shape.assumed else "read", (f"hub: {name}",), "config text read", notes=shape.assumed)


def _from_record(path: Path, assume_full: bool) -> Model:
    record = read_json(path)
    where = str(path.name)
    if not isinstance(record, dict) or not isinstance(record.get("config", record), dict):
        raise InputError("is no record of a model", where=where)
    name = str(record.get("id") or path.stem.replace("--", "/", 1))
    config = record.get("config", record)
    if not config:
        raise UnknownError(
            f"the config of {name} was not found when the catalogue was made", where=where, hint="give a path to its config.json"
        )
    shape = read_model(config, name=name, where=where, assume_full=assume_full)
    try:
        facts = msgspec.convert(record.get("facts", {}), dict[str, Fact])
    except msgspec.ValidationError as error:
        raise InputError(f"facts are malformed ({error})", where=where) from None
    shape, unexplained = _with_published_total(shape, facts)
    verified = str(record.get("verified", "config text read"))
    confidence: Confidence = "assumed" if shape.assumed else _CONFIDENCE.get(verified, "assumed")
    notes = (*shape.assumed, *map(str, record.get("notes", ())), *unexplained)
    return Model(
        name, shape, confidence, tuple(map(str, record.get("source", ()))), verified, facts,
        notes=notes, released=str(record.get("released", "")), license=str(record.get("license", "")),
    )  # fmt: skip


def _with_published_total(shape: ModelShape, facts: dict[str, Fact]) -> tuple[ModelShape, tuple[str, ...]]:
    """Return the shape with what a published total holds beyond the config (towers it does not describe), as one tensor on every rank."""
    fact = facts.get("params_total")
    if fact is None or not isinstance(fact.value, int):
        return shape, ()
    missing = fact.value - shape.params_total
    if missing <= 0:
        return shape, () if missing == 0 else (f"the formula counts {-missing:,} parameters more than were published",)
    rest = Tensor("unexplained", missing, 1, "replicated", "vision", linear=False)
    note = f"{missing:,} published parameters ({missing / fact.value:.2%}) are not described by the config: counted whole on every card"
    return msgspec.structs.replace(shape, vision=(*shape.vision, rest)), (note,)
