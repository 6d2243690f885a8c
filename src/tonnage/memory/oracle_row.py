"""What an engine's own code answered (`tonnage oracle`), in place of our arithmetic: bytes a block, blocks, weights, refusal."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.facts.engine import parse_engine
from tonnage.settings import EngineSettings


class OracleRow(msgspec.Struct, frozen=True):
    """A row, as far as a plan uses it. `longest_blocks` is what one sequence of `longest` tokens takes."""

    id: str
    release: tuple[int, int]
    tp: int
    pp: int
    refused: str
    bytes_per_block: int = 0
    longest: int = 0
    longest_blocks: int = 0
    weights_bytes: int = 0


def read_row(data: bytes, where: str) -> OracleRow:
    """Return the first row of a file that `tonnage oracle` wrote.

    Raises InputError: no row, or one without answers.
    """
    hint = "tonnage oracle MODEL_DIR prints such a row; keep it in a file"
    try:
        value: Any = msgspec.json.decode(data.lstrip().split(b"\n", 1)[0])
        inputs, answers = value["inputs"], value["answers"]
        args = inputs.get("args", {})
        _, release = parse_engine(str(inputs["engine"]))
        shared = (str(value.get("id", "")), release, int(args.get("tensor_parallel_size", 1)), int(args.get("pipeline_parallel_size", 1)))
        if answers.get("refused"):
            return OracleRow(*shared, str(answers.get("reason") or "the engine refuses, without a reason"))
        blocks, concurrency = int(answers["num_gpu_blocks"]), float(answers["max_concurrency"])
        longest = int(answers.get("resolved", {}).get("max_model_len") or args["max_model_len"])
        held = answers.get("weights_per_rank") or {}
        weights = int((held[0] if isinstance(held, list) else held).get("param_and_buffer_bytes", 0))
        each = round(blocks / concurrency) if concurrency > 0 else 0
        return OracleRow(*shared, "", int(answers["bytes_per_block"]), longest, each, weights)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise InputError(f"is no row of an oracle ({error})", where=where, hint=hint) from None


def check_row(row: OracleRow, settings: EngineSettings) -> None:
    """Raise InputError where a row answers another question than the plan asks."""
    asked = (settings.release, settings.parallel.tp, settings.parallel.pp)
    if (row.release, row.tp, row.pp) != asked or settings.engine != "vllm":
        raise InputError(
            f"answers for vLLM {row.release[0]}.{row.release[1]}, TP {row.tp}, PP {row.pp}; "
            f"the plan is for {settings.release_name}, TP {settings.parallel.tp}, PP {settings.parallel.pp}",
            where="--oracle",
            hint="ask the oracle with the settings of the plan",
        )
