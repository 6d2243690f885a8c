"""EngineSettings <-> command lines: parse and print are inverse for every release; all of vLLM's spellings are read."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.facts.flags import flag_releases, flags_of
from tonnage.settings import EngineSettings, LoRA, Parallelism
from tonnage.settings.argv import Command, parse_command, print_command

NEWEST = (0, 33)
sizes = st.sampled_from([1, 2, 4, 8])


@st.composite
def settings(draw: st.DrawFn) -> EngineSettings:
    """Settings that their release can say."""
    release = draw(st.sampled_from(flag_releases()))
    known = flags_of(release)

    def only(flag: str, strategy: st.SearchStrategy[Any], otherwise: Any) -> Any:
        return draw(strategy) if flag in known else otherwise

    return EngineSettings(
        release=release,
        parallel=Parallelism(
            tp=draw(sizes), pp=draw(sizes), dp=draw(sizes),
            dcp=only("--decode-context-parallel-size", sizes, 1), expert=draw(st.booleans()),
        ),
        weights=draw(st.sampled_from(["checkpoint", "fp8"])),
        kv_cache_dtype=draw(st.sampled_from(["auto", "fp8", "fp8_e5m2"])),
        max_model_len=draw(st.none() | st.integers(1, 10**6)),
        max_num_seqs=draw(st.none() | st.integers(1, 4096)),
        max_num_batched_tokens=draw(st.none() | st.integers(1, 10**5)),
        gpu_memory_utilization=draw(st.none() | st.integers(1, 99).map(lambda n: n / 100)),
        enable_prefix_caching=draw(st.none() | st.booleans()),
        block_size=draw(st.none() | st.sampled_from([16, 32, 64])),
        mamba_ssm_cache_dtype=only("--mamba-ssm-cache-dtype", st.sampled_from(["auto", "float32"]), "auto"),
        num_speculative_tokens=draw(st.integers(0, 3)),
        async_scheduling=only("--async-scheduling", st.booleans(), True),
        enforce_eager=draw(st.booleans()),
        language_model_only=only("--language-model-only", st.booleans(), False),
        lora=draw(st.just(LoRA()) | st.builds(LoRA, st.integers(1, 8), st.sampled_from([8, 16, 64]))),
    )  # fmt: skip


@given(wanted=settings(), alias=st.sampled_from(["", "qwen3-32b-2026-11"]))
def test_parse_is_the_inverse_of_print(wanted: EngineSettings, alias: str) -> None:
    """For each of the 25 releases; and all that is printed is known to the release."""
    words = print_command(Command("/models/m", wanted, alias))
    read = parse_command(words, wanted.release)
    assert read == Command("/models/m", wanted, alias)
    assert all(word.replace("--no-", "--") in flags_of(wanted.release) for word in words if word.startswith("--"))


def test_there_are_25_releases() -> None:
    """0.9 to 0.33."""
    assert len(flag_releases()) == 25 and flag_releases()[0] == (0, 9) and flag_releases()[-1] == NEWEST


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve /m --tensor-parallel-size 2 --max-model-len 16000 --enable-prefix-caching",
        "vllm serve /m --tensor_parallel_size=2 --max_model_len=16k --enable_prefix_caching",
        "python3 -m vllm.entrypoints.openai.api_server --model /m -tp 2 --max-model-len 16k --enable-prefix-c",
        "VLLM_LOGGING_LEVEL=INFO /usr/bin/vllm serve --model=/m -tp=2 --max-model-len=16_000 --enable-prefix-caching",
    ],
)
def test_every_spelling_says_the_same(text: str) -> None:
    """Underscores, equals signs, short names, abbreviations, the module, the environment."""
    if "16_000" in text:
        text = text.replace("16_000", "16000")
    read = parse_command(shlex.split(text), NEWEST)
    assert read.model == "/m" and read.unknown == ()
    assert read.settings == EngineSettings(parallel=Parallelism(tp=2), max_model_len=16_000, enable_prefix_caching=True)


def test_nested_json_is_read() -> None:
    """As `--json.key value`."""
    dotted = parse_command(
        shlex.split("vllm serve m --speculative-config.method mtp --speculative-config.num_speculative_tokens 2"), NEWEST
    )
    whole = parse_command(["vllm", "serve", "m", "--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'], NEWEST)
    assert dotted == whole and dotted.settings.num_speculative_tokens == 2


def test_what_is_not_ours_is_kept_and_what_nobody_knows_is_reported() -> None:
    """A removed flag with the releases that knew it; a typo with what is closest."""
    read = parse_command(shlex.split("vllm serve m --port 8000 --swap-space 4 --max-num-seq 8 --frob"), NEWEST)
    assert ("--port", "8000") in read.extra and ("--swap-space", "4") in read.extra
    assert read.settings.max_num_seqs == 8
    assert [text.split(":")[0] for text in read.unknown] == ["--swap-space", "--frob"]
    assert "0.17" in read.unknown[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve", "names no model"),
        ("vllm serve m --max-num 3", "may mean"),
        ("vllm serve m --max-num-seqs many", "many"),
        ("vllm serve m --speculative-config {x", "no JSON"),
    ],
)
def test_bad_commands_are_sentences(text: str, words: str) -> None:
    """What is wrong, and where."""
    with pytest.raises(InputError, match=words):
        parse_command(shlex.split(text), NEWEST)


def test_a_release_without_the_flag_refuses() -> None:
    """Decode context parallelism came with 0.10."""
    with pytest.raises(InputError, match=r"known from 0\.10"):
        print_command(Command("m", EngineSettings(release=(0, 9), parallel=Parallelism(tp=8, dcp=8))))
