"""Reading a config.json with care: typed, by any of a field's names, and remembering what was read.

A field that would change the memory and that no reader asked for is refused by name (`refuse_unread`), so that a new
kind of layer is never counted as an old one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tonnage.errors import InputError, UnknownError

LARGEST = 2**40
SMALLEST = 1 / LARGEST
"""Bounds of what a field may hold: nothing real is near, and sums and products of such numbers still are numbers."""

# Fields that change what a model weighs or caches. One of these left unread means that we do not understand the model.
_SIZING = re.compile(
    r"(layer_types|layers_block_type|block_types|layer_pattern|override_pattern|_lora_rank$|^lora_rank$|sliding_window|"
    r"attention_chunk_size|kv_shared|compress_ratio|^index_|^indexer|sparse_attention|linear_(num|key|value|conv|attn)|"
    r"mamba|^ssm_|conv_kernel|conv_l_cache|short_conv|experts|expert_|moe_|cross_attention|altup|laurel|"
    r"per_layer_input|global_head_dim|global_key_value|k_eq_v|v_head_dim|qk_.*head_dim|hc_mult|n?gram|engram|memory_layers|memory_tokens|"
    r"num_.*_layers$|block_configs|attn_layer_|full_attn|_interval$|double_wide|loop|recurrent|state_size|lightning)"
)

# Fields of that look that change nothing in memory: routing rules, losses, schedules, kernels' tile sizes.
_HARMLESS = re.compile(
    r"(router_aux|aux_loss|z_loss|jitter|capacity_factor|max_window_layers|output_router|norm_topk|routed_scaling|topk_method|"
    r"scoring_func|score_func|(?<!attention_)chunk_size|dt_(min|max|limit|init|rank_)|time_step|residual_multiplier|rescale|init_|initializer|_std$|_eps$|"
    r"use_mamba_kernels|hidden_act|activation|_bias_update|_loss_|dropout|group_select|num_nextn_predict_layers|mtp_|"
    r"router_dtype|_impl$|_backend$|use_cache|sep_token|rope|_theta$|expert_backend|ep_size|moe_router|"
    r"keep_router|token_dropping|act_fn|pre_norm|index_topk|router_bias|noise|score_type|moe_token_dispatcher|"
    r"renormalize|expert_group|scale|clip|limit|multiplier|vision_feature|_dtype$|image|video|_id$|_token$|_tokens$|use_moe|deepspeed|mamba_act)"
)


class Config:
    """A config.json, or a nested part of it, with the fields that were asked for."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._read: set[str] = set()
        self.where = where

    def _find(self, names: Sequence[str]) -> tuple[str, Any]:
        self._read.update(names)
        for name in names:
            if self._values.get(name) is not None:
                return name, self._values[name]
        return names[0], None

    def has(self, *names: str) -> bool:
        """Return whether one of the names is present and not null."""
        return self._find(names)[1] is not None

    def integer(self, *names: str, default: int | None = None, low: int = 1, high: int = LARGEST) -> int:
        """Return a whole number from `low` to `high`, under the first of the names that is present.

        Raises InputError: missing without a default, no whole number, or out of range.
        """
        name, value = self._find(names)
        if value is None:
            return self._missing(name) if default is None else default
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            raise InputError(f"field {name!r} is {_shown(value)}, not a whole number", where=self.where)
        self._check_range(name, value, low, high)
        return int(value)

    def number(self, *names: str, default: float | None = None, low: float = -LARGEST) -> float:
        """Return a number of at least `low`; `SMALLEST` is for those that must be above zero.

        Raises InputError: missing without a default, no number, or out of range.
        """
        name, value = self._find(names)
        if value is None:
            return self._missing(name) if default is None else default
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise InputError(f"field {name!r} is {_shown(value)}, not a number", where=self.where)
        self._check_range(name, value, low, LARGEST)
        return float(value)

    def _missing(self, name: str) -> NoReturn:
        raise InputError(f"field {name!r} is missing", where=self.where, hint="is this a model's config.json, and whole?")

    def _check_range(self, name: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            raise InputError(f"field {name!r} is {_shown(value)}, which is not between {low} and {high}", where=self.where)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a truth value."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"field {name!r} is {_shown(value)}, not true or false", where=self.where)
        return value

    def text(self, *names: str, default: str = "") -> str:
        """Return a text."""
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InputError(f"field {name!r} is {_shown(value)}, not a text", where=self.where)
        return value

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return a list of texts; empty where the field is absent."""
        name, value = self._find(names)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"field {name!r} is {_shown(value)}, not a list of texts", where=self.where)
        return tuple(value)

    def integers(self, *names: str, default: Sequence[int] = (), low: int = -LARGEST) -> tuple[int, ...]:
        """Return a list of whole numbers of at least `low`; a text of comma-separated numbers is read as one."""
        name, value = self._find(names)
        if value is None:
            return tuple(default)
        if isinstance(value, str) and re.fullmatch(r"[0-9, ]+", value):
            value = [int(part) for part in value.split(",") if part.strip()]
        if not isinstance(value, list) or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
            raise InputError(f"field {name!r} is {_shown(value)}, not a list of whole numbers", where=self.where)
        for item in value:
            self._check_range(name, item, low, LARGEST)
        return tuple(value)

    def filled(self, missing: Mapping[str, Any]) -> Config:
        """Return the same config with values for fields that it leaves out; reading either marks the field as read."""
        other = Config({**self._values, **missing}, self.where)
        other._read = self._read
        return other

    def raw(self, name: str) -> Any:
        """Return a field as it stands, for readers that check its form themselves."""
        return self._find((name,))[1]

    def child(self, *names: str) -> Config | None:
        """Return a nested object, or None where it is absent."""
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InputError(f"field {name!r} is {_shown(value)}, not an object", where=self.where)
        return Config(value, f"{self.where}: {name}")

    def ignore(self, *names: str) -> None:
        """Mark fields as understood and without effect on memory in this family."""
        self._read.update(names)

    def refuse_unread(self, architecture: str) -> None:
        """Refuse by name a field that would change the memory and that nobody read.

        Raises UnknownError: the field, and `--assume full-attention` as the way out.
        """
        for name, value in self._values.items():
            if name in self._read or not isinstance(name, str) or not _weighs(value):
                continue
            if _SIZING.search(name.lower()) and not _HARMLESS.search(name.lower()):
                raise UnknownError(
                    f"field {name!r} ({_shown(value)}) is not understood for {architecture}",
                    where=self.where,
                    hint="--assume full-attention gives an upper bound of the cache, marked as such",
                )


def _weighs(value: object) -> bool:
    return value not in (None, False, 0, "", "none") and value != [] and value != {}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
