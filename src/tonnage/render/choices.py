"""The settings of a plan as flags, each with its reason: what an operator reads beside the command."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tonnage.errors import InputError
from tonnage.facts.provenance import Confidence
from tonnage.render.plan_file import PlanFile
from tonnage.settings import EngineSettings
from tonnage.settings.argv import settings_flags
from tonnage.settings.sglang import sglang_flags
from tonnage.units import size

PORT = 8000
LOG_REQUESTS_OPT_IN = (0, 10)
"""Since this release requests are logged only where asked for."""


class Site(msgspec.Struct, frozen=True):
    """What the plan does not know: where weights lie, what the model is called, where the server listens."""

    model: str
    alias: str
    host: str = "127.0.0.1"
    port: int = PORT


class Choice(msgspec.Struct, frozen=True):
    """A flag, its value (None for a switch), why it is so, and how sure."""

    flag: str
    value: str | None
    why: str
    confidence: Confidence = "exact"


def site_of(made: PlanFile, *, alias: str = "", host: str = "127.0.0.1", port: int = PORT) -> Site:
    """Return where a plan is served: a local path of the weights, and a versioned name."""
    short = made.model.name.rstrip("/").split("/")[-1]
    plain = re.sub(r"[^a-z0-9.-]+", "-", short.lower()).strip("-.") or "model"
    path = made.model.path or f"/models/{short}"
    for word, where in ((alias, "--alias"), (host, "--host"), (path, "the model's path")):
        if not all(character.isprintable() for character in word) or (where != "the model's path" and re.search(r"[\s%\"'\\]", word)):
            raise InputError(f"{word!r} holds characters that no name has", where=where, hint="letters, digits, dots, dashes, slashes")
    return Site(path, alias or f"{plain}-v1", host, port)


def chosen_settings(made: PlanFile) -> EngineSettings:
    """Return the settings to run: the plan's, with no more sequences than its pool safely holds.

    Raises InputError: weights that no engine makes while it loads.
    """
    settings = made.settings
    if settings.weights not in ("checkpoint", "fp8"):
        raise InputError(
            f"{settings.weights} weights were assumed: no engine makes them while it loads",
            where="plan.json",
            hint="plan a published checkpoint in that precision, or quantise one and plan its folder",
        )
    if made.users.admitted < 1:
        raise InputError("holds not one user: there is nothing to run", where="plan.json", hint="plan a larger card, or more of them")
    default = settings.max_num_seqs or 256
    safe = max(1, made.users.safe // settings.parallel.dp)
    return msgspec.structs.replace(settings, max_num_seqs=min(default, safe))


def choices(made: PlanFile, site: Site) -> list[Choice]:
    """Return the flags of `vllm serve` for a plan, in the order in which they are printed.

    Raises InputError: a setting that the release has no flag for.
    """
    settings = chosen_settings(made)
    out = [Choice("--served-model-name", site.alias, "a versioned alias: new weights are a new name, and the way back is unambiguous")]
    reasons = _reasons(made, settings)
    for flag, value in settings_flags(settings):
        if flag == "--mamba-cache-mode":
            continue  # what the release chooses for the model; the plan only names it
        why, confidence = reasons.get(flag, ("as planned", "exact"))
        out.append(Choice(flag, value, why, confidence))
    out.append(Choice("--host", site.host, _binding(site)))
    out.append(Choice("--port", str(site.port), "behind the gateway"))
    out.append(Choice("--enable-force-include-usage", None, "streams carry token counts, so that a gateway can count them"))
    if settings.release < LOG_REQUESTS_OPT_IN:
        out.append(Choice("--disable-log-requests", None, "prompts must not reach log aggregators"))
    return out


def _binding(site: Site) -> str:
    if site.host in ("127.0.0.1", "localhost", "::1"):
        return "the server has no authorization model: only the gateway beside it reaches it"
    return "inside a closed network only: the server has no authorization model"


def _reasons(made: PlanFile, settings: EngineSettings) -> dict[str, tuple[str, Confidence]]:
    workload, users = made.workload, made.users
    cards = f"{settings.parallel.cards} cards" if settings.parallel.cards > 1 else "one card"
    longest = f"the longest sequence of the workload ({workload.longest:,} tokens), not the model card"
    if (settings.max_model_len or 0) > 2 * workload.longest:
        longest = f"as it was asked for; the workload's longest sequence is {workload.longest:,} tokens"
    reads = made.per_user.admitted_bytes == 0
    seqs = (
        "the engine's default: a model that only reads keeps no cache"
        if reads
        else f"{users.safe:,} sequences of {workload.context_tokens:,} tokens fit at the low end of the pool: more would preempt"
        if (settings.max_num_seqs or 0) <= users.safe
        else f"as it was asked for; {users.safe:,} sequences of {workload.context_tokens:,} tokens fit, more preempt when all are long"
    )
    return {
        "--tensor-parallel-size": (f"weights of {size(made.weights_bytes)} a card; a decision about fit, it costs communication", "read"),
        "--pipeline-parallel-size": ("stages across machines: the weights do not fit one", "exact"),
        "--data-parallel-size": (f"attention in parallel over {cards}, experts shared", "exact"),
        "--decode-context-parallel-size": ("each card keeps its part of the context, not a copy of all", "exact"),
        "--enable-expert-parallel": ("whole experts on each card", "exact"),
        "--max-model-len": (longest, "exact"),
        "--max-num-seqs": (seqs, "extrapolated" if users.safe < users.admitted else "exact"),
        "--max-num-batched-tokens": ("what the plan charges for activations" + ("" if reads else "; more takes from the cache"), "exact"),
        "--gpu-memory-utilization": ("as planned; 0.95 and above leaves no headroom for bursts", "exact"),
        "--kv-cache-dtype": ("halves the cache: a change of model, run your evaluations first", "assumed"),
        "--quantization": ("FP8 made while loading: evaluate it, or take a published FP8 checkpoint", "assumed"),
        "--enable-prefix-caching": ("shared prefixes are stored once and not computed again", "exact"),
        "--no-enable-prefix-caching": ("off: nothing repeats here, or its state copies cost more than they save", "exact"),
        "--mamba-ssm-cache-dtype": ("dtype of the recurrent states, as planned", "exact"),
        "--block-size": ("as planned", "exact"),
        "--speculative-config": ("draft tokens of the model's own layers, as planned", "exact"),
        "--enable-lora": ("adapters", "exact"),
        "--max-loras": ("adapters in one batch", "exact"),
        "--max-lora-rank": ("the largest rank of the adapters", "exact"),
    }


SGLANG_WHY: dict[str, tuple[str, Confidence]] = {
    "--context-length": ("the longest sequence of the workload", "exact"),
    "--max-running-requests": ("what the pool safely holds", "assumed"),
    "--chunked-prefill-size": ("as planned", "assumed"),
    "--kv-cache-dtype": ("halves the cache: a change of model, run your evaluations first", "assumed"),
    "--quantization": ("FP8 made while loading: evaluate it, or take a published FP8 checkpoint", "assumed"),
    "--disable-radix-cache": ("nothing repeats here", "exact"),
    "--ep-size": ("whole experts on each card", "exact"),
}


def sglang_choices(made: PlanFile, site: Site) -> Iterator[Choice]:
    """Yield the flags of SGLang's server for a plan; its rules are assumed (read in 0.5, no measured row)."""
    yield Choice("--served-model-name", site.alias, "a versioned alias")
    for flag, value in sglang_flags(chosen_settings(made)):
        why, confidence = SGLANG_WHY.get(flag, ("as planned", "exact"))
        yield Choice(flag, value, why, confidence)
    yield Choice("--host", site.host, _binding(site))
    yield Choice("--port", str(site.port), "behind the gateway")
