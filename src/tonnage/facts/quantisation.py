"""How a checkpoint stores its matrices: the scheme it declares, and which modules it leaves alone.

Read from `quantization_config` (transformers) or ModelOpt's `hf_quant_config`. A method or a width that is not known is
refused by name.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from tonnage.errors import InputError, UnknownError, closest_hint
from tonnage.facts.config import Config

Form = Literal[
    "plain",
    "fp8-block",
    "fp8-channel",
    "fp8-tensor",
    "int8-channel",
    "int4-awq",
    "int4-gptq",
    "int4-packed",
    "int8-packed",
    "mxfp4",
    "mxfp8",
    "nvfp4",
]


class Scheme(msgspec.Struct, frozen=True):
    """One storage form of a matrix: width, and the scales that come with it.

    `group` is the number of weights along the input that share a scale; `block` the side lengths of a 2-d scale block.
    `static` marks a stored scale for the activations.
    """

    form: Form
    bits: int
    group: int = 0
    block: tuple[int, int] = (0, 0)
    static: bool = False
    zeros: bool = False
    actorder: bool = False


PLAIN = Scheme("plain", 0)
_NUMBERED = re.compile(r"layers\\?\.\(?\[?\d")


class Target(msgspec.Struct, frozen=True):
    """A scheme and the modules it is for; no patterns means every linear layer that is not ignored."""

    scheme: Scheme
    modules: tuple[str, ...] = ()


class Quantisation(msgspec.Struct, frozen=True):
    """What a checkpoint declares. `method` is the word of its config ("" for none); `kv` the cache dtype it asks for."""

    method: str = ""
    targets: tuple[Target, ...] = ()
    ignored: tuple[str, ...] = ()
    kv: str = ""
    assumed: bool = False

    @property
    def label(self) -> str:
        """The word people use: FP8, INT4 (AWQ), NVFP4, BF16 for none."""
        if not self.targets:
            return ""
        if self.method in ("awq", "gptq"):
            return f"INT{self.targets[0].scheme.bits} ({self.method.upper()})"
        forms = {target.scheme.form for target in self.targets}
        if self.method in ("fp8", "modelopt", "compressed-tensors", "fbgemm_fp8"):
            words = sorted({form.split("-")[0].upper() for form in forms})
            return " and ".join(words)
        return "MXFP4" if self.method == "mxfp4" else self.method

    @property
    def by_layer(self) -> bool:
        """Whether some layers are stored otherwise than their like: a pattern names a layer by its number."""
        patterns = (*self.ignored, *(pattern for target in self.targets for pattern in target.modules))
        return any(_NUMBERED.search(pattern) for pattern in patterns)

    def scheme(self, module: str) -> Scheme:
        """Return the scheme of a linear module by its full path, PLAIN where it is left alone.

        A head is quantised only where a target names it: "all linear layers" are those of the decoder to an engine.
        """
        if not self.targets or self.ignores(module):
            return PLAIN
        general = PLAIN
        for target in self.targets:
            if not target.modules:
                general = target.scheme if module != "lm_head" else PLAIN
            elif _matches(module, target.modules):
                return target.scheme
        return general

    def ignores(self, module: str) -> bool:
        """Return whether the checkpoint leaves a module alone."""
        return bool(self.ignored) and _matches(module, self.ignored)


@lru_cache(maxsize=64)
def _matcher(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Return (paths as they stand, expressions): globs as one, each `re:` alone, since its flags and groups are its own."""
    own = list(filter(_is_expression, patterns))
    globs = [pattern for pattern in patterns if not _is_expression(pattern) and re.search(r"[*?\[]", pattern)]
    compiled = [re.compile(pattern[3:]) for pattern in own]
    if globs:
        compiled.append(re.compile("|".join(fnmatch.translate(form) for glob in globs for form in (glob, f"{glob}.*"))))
    return frozenset(patterns) - {*own, *globs}, tuple(compiled)


def _is_expression(pattern: str) -> bool:
    return pattern.startswith("re:")


def _matches(module: str, patterns: tuple[str, ...]) -> bool:
    literal, expressions = _matcher(patterns)
    parts = module.split(".")
    prefixes = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    if literal & prefixes or any(_tail_matches(module, item) for item in literal):
        return True
    return any(expression.match(module) for expression in expressions)


def _tail_matches(module: str, item: str) -> bool:
    return module.endswith("." + item) or f".{item}." in module


def read_quantisation(config: Mapping[str, Any], where: str) -> Quantisation:
    """Return what a config.json declares about its storage; an empty Quantisation where it declares nothing.

    Raises UnknownError: a method or width that we do not know. InputError: a declaration of the wrong form.
    """
    declared = _declared(config, where)
    if not declared:
        return Quantisation()
    where = f"{where}: quantization_config"
    experts = config.get("expert_dtype") and str(declared.get("moe_quant_algo") or config["expert_dtype"]).lower()
    method = declared.get("quant_method") or ("modelopt" if declared.get("quant_algo") else "")
    if not isinstance(method, str):
        raise InputError(f"quant_method is {method!r}, not a text", where=where)
    reader = _READERS.get(method.lower())
    if reader is None:
        known = sorted(_READERS)
        raise UnknownError(
            f"quantisation {method!r} is not known", where=where, hint=closest_hint(method, known, f"known are {', '.join(known)}")
        )
    try:
        found = reader(declared, where)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(f"cannot be read as {method} ({error})", where=where) from None
    _check_patterns(found, where)
    return _with_expert_dtype(found, experts, where) if experts else found


def _declared(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the declaration, wherever it stands, empty where there is none; ModelOpt's own file is one of its method."""
    text = config.get("text_config")
    for holder, name in ((config, "quantization_config"), (text, "quantization_config"), (config, "compression_config")):
        found = _object(holder.get(name), f"{where}: {name}") if isinstance(holder, Mapping) else {}
        if found:
            return found
    sibling = _object(config.get("hf_quant_config"), f"{where}: hf_quant_config")
    if "quantization" not in sibling:
        return {"quant_method": "modelopt", **sibling} if sibling else {}
    inner = sibling["quantization"]
    if not inner:
        raise InputError("holds no declaration", where=f"{where}: hf_quant_config: quantization")
    return {"quant_method": "modelopt", **_object(inner, f"{where}: hf_quant_config: quantization")}


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise InputError("is not an object", where=where)
    return value or {}


def _check_patterns(found: Quantisation, where: str) -> None:
    """Refuse a pattern that is no regular expression here, where the place is known, rather than at its first use."""
    patterns = (*found.ignored, *(pattern for target in found.targets for pattern in target.modules))
    for pattern in filter(_is_expression, patterns):
        try:
            re.compile(pattern[3:])
        except (re.error, OverflowError, RecursionError) as error:
            raise InputError(f"{pattern[:60]!r} is no regular expression ({error})", where=where) from None


def _with_expert_dtype(found: Quantisation, dtype: Any, where: str) -> Quantisation:
    """Return a quantisation whose routed experts are stored in a dtype of their own (DeepSeek-V4: MXFP4 beside FP8)."""
    forms = {"fp4": Scheme("mxfp4", 4, group=32), "mxfp4": Scheme("mxfp4", 4, group=32), "nvfp4": Scheme("nvfp4", 4, group=16, static=True)}
    if dtype not in forms:
        raise UnknownError(f"expert_dtype {dtype!r} is not known", where=where, hint=f"known are {', '.join(forms)}")
    ignored = tuple(pattern for pattern in found.ignored if pattern == "head" or pattern.startswith("mtp"))
    return msgspec.structs.replace(found, targets=(*found.targets, Target(forms[dtype], (r"re:.*\.experts\..*",))), ignored=ignored)


def _patterns(declared: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        value = declared.get(name)
        if isinstance(value, list | tuple):
            found += [_plain_path(str(item)) for item in value]
    return tuple(dict.fromkeys(found))


def _plain_path(pattern: str) -> str:
    """Return a module path or pattern under the one name that all families' layers have here: `model.layers.N`."""
    return pattern.replace("model.language_model.", "model.").replace("language_model.model.", "model.").replace("backbone.", "model.")


def _read_fp8(declared: Mapping[str, Any], where: str) -> Quantisation:
    ignored = _patterns(declared, "modules_to_not_convert", "ignored_layers")
    block = declared.get("weight_block_size")
    static = declared.get("activation_scheme") == "static"
    scheme = Scheme("fp8-block", 8, block=_pair(block, where)) if block else Scheme("fp8-tensor", 8, static=static)
    return Quantisation("fp8", (Target(scheme),), ignored)


def _pair(value: Any, where: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(side) is int and side > 0 for side in value):
        raise InputError(f"weight_block_size is {value!r}, not two whole numbers", where=where)
    return value[0], value[1]


def _read_fbgemm(declared: Mapping[str, Any], where: str) -> Quantisation:
    return Quantisation("fbgemm_fp8", (Target(Scheme("fp8-channel", 8)),), _patterns(declared, "modules_to_not_convert"))


def _read_awq(declared: Mapping[str, Any], where: str) -> Quantisation:
    bits = _bits(declared, where, ("bits", "w_bit"), (4,))
    group = _group(declared, where, "group_size", "q_group_size", default=128)
    return Quantisation("awq", (Target(Scheme("int4-awq", bits, group=group, zeros=True)),), _patterns(declared, "modules_to_not_convert"))


def _read_gptq(declared: Mapping[str, Any], where: str) -> Quantisation:
    bits = _bits(declared, where, ("bits",), (2, 3, 4, 8))
    group = _group(declared, where, "group_size", default=128)
    scheme = Scheme("int4-gptq", bits, group=group, zeros=True, actorder=bool(declared.get("desc_act")))
    own, left = _gptq_dynamic(declared, scheme, where)
    head = (Target(scheme, ("lm_head",)),) if Config(declared, where).flag("lm_head") else ()
    return Quantisation("gptq", (Target(scheme), *own, *head), (*_patterns(declared, "modules_to_not_convert"), *left))


def _gptq_dynamic(declared: Mapping[str, Any], scheme: Scheme, where: str) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """Return (modules with a width or group of their own, modules left alone) of GPTQModel's `dynamic`."""
    own, left = [], []
    for pattern, changes in _object(declared.get("dynamic"), f"{where}: dynamic").items():
        module = "re:" + _plain_path(pattern.removeprefix("-:").removeprefix("+:"))
        if pattern.startswith("-:"):
            left.append(module)
            continue
        fields = {"bits": scheme.bits, "group_size": scheme.group or -1, "desc_act": scheme.actorder, **changes}
        bits, group = _bits(fields, where, ("bits",), (2, 3, 4, 8)), _group(fields, where, "group_size", default=128)
        own.append(Target(msgspec.structs.replace(scheme, bits=bits, group=group, actorder=bool(fields["desc_act"])), (module,)))
    return tuple(own), tuple(left)


def _group(declared: Mapping[str, Any], where: str, *names: str, default: int) -> int:
    """Return how many weights along the input share a scale; 0 is all of a row, for which configs write -1."""
    size = Config(declared, where).integer(*names, default=default, low=-1)
    if size == 0:
        raise InputError(f"{names[0]} is 0", where=where, hint="-1 is one group a row")
    return max(0, size)


def _read_mxfp4(declared: Mapping[str, Any], where: str) -> Quantisation:
    return Quantisation("mxfp4", (Target(Scheme("mxfp4", 4, group=32)),), _patterns(declared, "modules_to_not_convert"))


def _bits(declared: Mapping[str, Any], where: str, names: tuple[str, ...], allowed: tuple[int, ...]) -> int:
    value = next((declared[name] for name in names if declared.get(name) is not None), allowed[0])
    if value not in allowed:
        raise UnknownError(f"{names[0]} {value!r} is not known", where=where, hint=f"known are {', '.join(map(str, allowed))}")
    return int(value)


_KV_BITS = {8: "fp8", 4: "nvfp4"}


def _read_compressed(declared: Mapping[str, Any], where: str) -> Quantisation:
    groups = declared.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise InputError("has no config_groups", where=where)
    top = str(declared.get("format") or "")
    targets = tuple(_compressed_target(group, top, where) for group in groups.values())
    return Quantisation("compressed-tensors", targets, _patterns(declared, "ignore"), _kv(declared.get("kv_cache_scheme")))


def _kv(scheme: Any) -> str:
    return _KV_BITS.get(int(scheme.get("num_bits") or 0), "") if isinstance(scheme, Mapping) else ""


def _compressed_target(group: Mapping[str, Any], top: str, where: str) -> Target:
    weights = group.get("weights") or {}
    modules = tuple(_plain_path(str(name)) for name in group.get("targets") or () if name not in ("Linear", "LinearBase", "FusedMoE"))
    activations = group.get("input_activations") or {}
    static = bool(activations) and activations.get("dynamic") is False
    return Target(_compressed_scheme(weights, str(group.get("format") or top), static, where), modules)


def _compressed_scheme(weights: Mapping[str, Any], form: str, static: bool, where: str) -> Scheme:
    kind, bits = weights.get("type"), weights.get("num_bits")
    group, strategy = _group(weights, where, "group_size", default=-1), weights.get("strategy")
    if kind == "float" and bits == 8:
        if strategy == "block" or weights.get("block_structure"):
            return Scheme("fp8-block", 8, block=_pair(weights.get("block_structure") or [128, 128], where))
        if group == 32:
            return Scheme("mxfp8", 8, group=32)
        return Scheme("fp8-channel" if strategy == "channel" else "fp8-tensor", 8, static=static)
    if kind == "float" and bits == 4:
        return Scheme("mxfp4", 4, group=32) if group == 32 or "mxfp4" in form else Scheme("nvfp4", 4, group=16, static=static)
    if kind == "int" and bits == 8:
        return Scheme("int8-channel", 8, static=static) if "pack" not in form else Scheme("int8-packed", 8, group=group)
    if kind == "int" and bits == 4:
        return Scheme("int4-packed", 4, group=group, zeros=not weights.get("symmetric", True), actorder=bool(weights.get("actorder")))
    raise UnknownError(f"weights of {bits} bits and type {kind!r} are not known", where=where, hint="known are float 8 and 4, int 8 and 4")


_MODELOPT = {
    "FP8": Scheme("fp8-tensor", 8, static=True),
    "FP8_PB_WO": Scheme("fp8-block", 8, block=(128, 128)),
    "FP8_PER_CHANNEL_PER_TOKEN": Scheme("fp8-channel", 8),
    "NVFP4": Scheme("nvfp4", 4, group=16, static=True),
    "NVFP4_AWQ": Scheme("nvfp4", 4, group=16, static=True),
    "W4A16_NVFP4": Scheme("nvfp4", 4, group=16),
    "MXFP8": Scheme("mxfp8", 8, group=32),
}


def _read_modelopt(declared: Mapping[str, Any], where: str) -> Quantisation:
    inner = declared.get("quantization")
    declared = {**declared, **inner} if isinstance(inner, Mapping) else declared
    ignored = _patterns(declared, "ignore", "exclude_modules")
    kv = _kv(declared.get("kv_cache_scheme")) or {"FP8": "fp8", "NVFP4": "nvfp4"}.get(str(declared.get("kv_cache_quant_algo")), "")
    algo = str(declared.get("quant_algo") or "").upper()
    layers = declared.get("quantized_layers")
    if isinstance(layers, Mapping) and layers:
        return Quantisation("modelopt", _modelopt_layers(layers, where), ignored, kv)
    if algo in _MODELOPT:
        return Quantisation("modelopt", (Target(_MODELOPT[algo]),), ignored, kv)
    groups = declared.get("config_groups")
    if isinstance(groups, Mapping) and groups:
        return Quantisation("modelopt", tuple(_compressed_target(group, "", where) for group in groups.values()), ignored, kv)
    raise UnknownError(f"quant_algo {algo!r} is not known", where=where, hint=f"known are {', '.join(sorted(_MODELOPT))}")


def _modelopt_layers(layers: Mapping[str, Any], where: str) -> tuple[Target, ...]:
    modules: dict[Scheme, list[str]] = {}
    for module, entry in layers.items():
        algo = str(entry.get("quant_algo") if isinstance(entry, Mapping) else entry).upper()
        if algo not in _MODELOPT:
            raise UnknownError(
                f"quant_algo {algo!r} of {module} is not known", where=where, hint=f"known are {', '.join(sorted(_MODELOPT))}"
            )
        modules.setdefault(_MODELOPT[algo], []).append(_plain_path(module))
    return tuple(Target(scheme, tuple(names)) for scheme, names in modules.items())


_READERS = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "awq": _read_awq,
    "awq_marlin": _read_awq,
    "gptq": _read_gptq,
    "gptq_marlin": _read_gptq,
    "mxfp4": _read_mxfp4,
    "compressed-tensors": _read_compressed,
    "modelopt": _read_modelopt,
    "modelopt_fp4": _read_modelopt,
    "modelopt_mixed": _read_modelopt,
}
