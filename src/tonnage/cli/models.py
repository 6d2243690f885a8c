"""`tonnage models`: the models of the catalogue, and one of them: layers by kind, cache, state, sources."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec


@click.command("models")
@click.argument("name", required=False)
@click.option("--filter", "pattern", default="", help="Only names that contain this text.")
@click.option("--architectures", is_flag=True, help="List the architectures we understand instead.")
@click.option("--facts", type=click.Path(path_type=Path), help="Folder with your own records of models.")
@click.option("--assume", type=click.Choice(["full-attention"]), help="Count an unknown architecture as full attention: an upper bound.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, pattern: str, architectures: bool, facts: Path | None, assume: str | None, as_json: bool) -> int:
    """The models we know, or one of them: shape, layers by kind, cache per token, state, sources.

    \b
    tonnage models --filter qwen3.5
    tonnage models qwen3.5-4b
    """
    from tonnage.facts.catalog import all_names, find_model

    if architectures:
        from tonnage.facts.families import known

        click.echo(msgspec.json.encode(known()).decode() if as_json else "\n".join(known()))
        return 0
    if name is None:
        return _list([entry for entry in all_names() if pattern.lower() in entry.lower()], pattern, as_json)
    model = find_model(name, facts_dir=facts, assume_full=bool(assume))
    value = model_value(model)
    if as_json:
        click.echo(msgspec.json.encode(value).decode())
        return 0
    _show(value)
    return 0


def _list(names: list[str], pattern: str, as_json: bool) -> int:
    if as_json:
        click.echo(msgspec.json.encode({"schema": "tonnage.models/1", "models": names}).decode())
        return 0
    for entry in names:
        click.echo(entry)
    click.echo(f"{len(names)} models" + (f" with {pattern!r}" if pattern else "") + "; tonnage models NAME shows one", err=True)
    return 0


def model_value(model: Any) -> dict[str, Any]:
    """Return what is known of a model as plain values."""
    from tonnage.memory.kv import context_cost
    from tonnage.memory.weights import checkpoint_bytes, served_dtype

    shape = model.shape
    dtype = served_dtype(shape)
    cost, narrow = context_cost(shape, dtype=dtype, cache=dtype), context_cost(shape, dtype=dtype, cache="fp8")
    return {
        "schema": "tonnage.model/1",
        "name": model.name,
        "architecture": shape.architecture,
        "confidence": model.confidence,
        "verified": model.verified,
        "params_total": shape.params_total,
        "params_active": shape.params_active,
        "weights": shape.quantisation.label or shape.dtype,
        "weight_bytes": sum(model.measured_bytes.values()) or checkpoint_bytes(shape),
        "layers": dict(Counter(layer.kind for layer in shape.layers)),
        "draft_layers": len(shape.draft),
        "hidden_size": shape.hidden_size,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "max_position": shape.max_position,
        "experts": shape.experts,
        "experts_per_token": shape.experts_per_token,
        "kv_bytes_per_token": cost.per_token,
        "kv_bytes_per_token_fp8": narrow.per_token,
        "windows": [{"window_tokens": window, "bytes_per_token": size} for window, size in cost.windows],
        "state_bytes_per_sequence": cost.state_bytes,
        "facts": {key: msgspec.to_builtins(fact) for key, fact in model.facts.items()},
        "notes": list(model.notes),
        "source": list(model.source),
        "released": model.released,
        "license": model.license,
    }


def _show(value: dict[str, Any]) -> None:
    from tonnage.report.terminal import table
    from tonnage.units import size

    layers = ", ".join(f"{count} {kind}" for kind, count in value["layers"].items())
    rows = [
        ("architecture", f"{value['architecture']}; config: {value['verified']} ({value['confidence']})"),
        ("parameters", f"{value['params_total']:,}" + (f", active {value['params_active']:,}" if value["experts"] else "")),
        ("weights", f"{value['weights']}, {size(value['weight_bytes'])}"),
        ("layers", layers + (f", {value['draft_layers']} draft" if value["draft_layers"] else "")),
        (
            "heads",
            f"{value['heads']} x {value['head_dim']}, {value['kv_heads']} KV; hidden {value['hidden_size']:,}; "
            f"vocabulary {value['vocab_size']:,}",
        ),
        ("context", f"up to {value['max_position']:,} tokens"),
        ("cache a token", f"{size(value['kv_bytes_per_token'])} (FP8 {size(value['kv_bytes_per_token_fp8'])})"),
        *[
            ("within window", f"{size(window['bytes_per_token'])} a token, at most {window['window_tokens']:,} tokens")
            for window in value["windows"]
        ],
        *([("state", f"{size(value['state_bytes_per_sequence'])} a sequence")] if value["state_bytes_per_sequence"] else []),
        *([("experts", f"{value['experts']}, {value['experts_per_token']} a token")] if value["experts"] else []),
        *[
            (
                key.replace("_", " "),
                f"{fact['value']:,}  {fact['source']}" if isinstance(fact["value"], int) else f"{fact['value']}  {fact['source']}",
            )
            for key, fact in value["facts"].items()
        ],
        *[("note", text) for text in value["notes"]],
        *[("source", text) for text in value["source"]],
    ]
    click.echo(value["name"])
    for row in table(rows):
        click.echo(f"  {row}")
