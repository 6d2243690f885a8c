"""Is the question put to the engine the one that was asked, and does a row tell it as the allocator's rows do?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.oracle.job import Card, Job, engine_arguments, parse_capability, parse_engine_args, row_id

GIVEN: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "dcp": 1, "ep": False, "kv_cache_dtype": "auto", "engine_args": ()}
PLAIN = {
    "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "kv_cache_dtype": "auto", "dtype": "auto",
    "decode_context_parallel_size": 1, "enable_expert_parallel": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, PLAIN, id="nothing asked"),
        pytest.param({"tp": 4, "ep": True}, {**PLAIN, "tensor_parallel_size": 4, "enable_expert_parallel": True}, id="parallel"),
        pytest.param({"dp": 8}, {**PLAIN, "data_parallel_size": 8}, id="data parallel only where asked"),
        pytest.param({"max_model_len": 16384}, {**PLAIN, "max_model_len": 16384}, id="length"),
        pytest.param({"no_prefix_caching": True}, {**PLAIN, "enable_prefix_caching": False}, id="no prefix caching"),
        pytest.param({"block_size": 64}, {**PLAIN, "block_size": 64}, id="block size"),
        pytest.param({"engine_args": ["dtype=half"]}, {**PLAIN, "dtype": "half"}, id="any other argument"),
        pytest.param({"engine_args": ["tensor_parallel_size=2"]}, {**PLAIN, "tensor_parallel_size": 2}, id="by vLLM's own name"),
    ],
)
def test_options_become_the_engines_arguments(given: dict[str, Any], expected: dict[str, Any]) -> None:
    """What the allocator's rows hold under `inputs.args`, and nothing that was not asked."""
    assert engine_arguments({**GIVEN, **given}) == expected


def test_an_argument_given_twice_is_refused() -> None:
    """By an option and by --engine-arg: which one counts would be a guess."""
    with pytest.raises(InputError, match="tensor_parallel_size is given twice"):
        engine_arguments({**GIVEN, "tp": 4, "engine_args": ["tensor-parallel-size=2"]})


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        pytest.param("async_scheduling=false", False, id="JSON truth"),
        pytest.param("enforce_eager=True", True, id="Python truth"),
        pytest.param("max_loras=4", 4, id="number"),
        pytest.param("dtype=half", "half", id="text"),
        pytest.param(
            'speculative_config={"method": "mtp", "num_speculative_tokens": 1}', {"method": "mtp", "num_speculative_tokens": 1}, id="object"
        ),
        pytest.param("hf_overrides=", "", id="empty"),
        pytest.param("a=b=c", "b=c", id="the first sign divides"),
    ],
)
def test_values_are_read_as_json_where_they_are(pair: str, expected: Any) -> None:
    """One KEY=VALUE each."""
    assert list(parse_engine_args([pair]).values()) == [expected]


@pytest.mark.parametrize("pair", ["async_scheduling", "=1", "not a name=1", "--=1"])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    """With the text as it was given."""
    with pytest.raises(InputError, match="is not KEY=VALUE"):
        parse_engine_args([pair])


def test_a_key_given_twice_is_refused() -> None:
    """Dashes or underscores."""
    with pytest.raises(InputError, match="async_scheduling is given twice"):
        parse_engine_args(["async-scheduling=1", "async_scheduling=0"])


@pytest.mark.parametrize("text", ["", "9", "9.", ".0", "9.0.0", "sm90", "9.10", "100.0"])
def test_what_is_no_capability_is_refused(text: str) -> None:
    """Two numbers and a dot, or an error with an example."""
    with pytest.raises(InputError, match="is no compute capability"):
        parse_capability(text)


def test_a_rows_inputs_are_those_of_the_shared_rows(shared: Path) -> None:
    """Same fields, same text; the card's name is told as well, since defaults depend on it."""
    with (shared / "data" / "allocator" / "allocator.jsonl").open(encoding="utf-8") as rows:
        expected = json.loads(next(rows))["inputs"]
    major, minor = parse_capability(expected["capability"])
    job = Job(Path(expected["model"]), Card((major, minor), bytes=expected["gpu_bytes"]), expected["available_kv_bytes"], expected["args"])
    inputs = job.inputs(expected["engine"])
    assert inputs.pop("gpu_name") == "NVIDIA H100 80GB HBM3"
    assert inputs == expected
    assert list(inputs) == list(expected)


def test_the_same_question_has_the_same_id() -> None:
    """And another card, another one."""
    ids = [row_id(Job(Path("a"), Card(bytes=size), 1, {}).inputs("vllm:0.33.0")) for size in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]
