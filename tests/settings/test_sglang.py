"""EngineSettings <-> SGLang's command line."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.settings import EngineSettings, Parallelism
from tonnage.settings.argv import Command
from tonnage.settings.sglang import parse_sglang, print_sglang

sizes = st.sampled_from([1, 2, 4, 8])
limits = st.none() | st.integers(1, 10**6)


@given(
    wanted=st.builds(
        EngineSettings,
        engine=st.just("sglang"),
        release=st.just((0, 5)),
        parallel=st.builds(Parallelism, tp=sizes, pp=sizes, dp=sizes, expert=st.booleans()),
        weights=st.sampled_from(["checkpoint", "fp8"]),
        kv_cache_dtype=st.sampled_from(["auto", "fp8_e4m3", "fp8_e5m2", "bfloat16"]),
        max_model_len=limits,
        max_num_seqs=limits,
        max_num_batched_tokens=limits,
        gpu_memory_utilization=st.none() | st.integers(1, 99).map(lambda n: n / 100),
        enable_prefix_caching=st.sampled_from([None, False]),
        enforce_eager=st.booleans(),
    ),
    alias=st.sampled_from(["", "qwen-v1"]),
)
def test_parse_is_the_inverse_of_print(wanted: EngineSettings, alias: str) -> None:
    """For all that a plan holds."""
    assert parse_sglang(print_sglang(Command("/m", wanted, alias))) == Command("/m", wanted, alias)


def test_people_s_spellings_are_read() -> None:
    """Short names, underscores, equals signs; what is not ours is kept."""
    read = parse_sglang(
        shlex.split("python3 -m sglang.launch_server --model /m --tp 2 --context_length=16k --mem-fraction-static 0.85 --trust")
    )
    assert read.settings.parallel.tp == 2 and read.settings.max_model_len == 16_000
    assert read.settings.gpu_memory_utilization == 0.85 and read.extra == (("--trust", None),)
    with pytest.raises(InputError, match="names no model"):
        parse_sglang(["--tp", "2"])
