"""Rendered commands: only flags that the release knows, every flag with its reason, what nobody should run refused."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tonnage.cli import main
from tonnage.errors import InputError
from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.flags import flag_releases, flags_of
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.plan import Request, plan
from tonnage.render.choices import choices, chosen_settings, site_of
from tonnage.render.command import command_text, words
from tonnage.render.compose import compose_text, pinned
from tonnage.render.plan_file import PlanFile, read_plan
from tonnage.render.systemd import quoted, unit_text
from tonnage.report.plan_value import plan_value
from tonnage.settings import EngineSettings, Parallelism
from tonnage.settings.argv import parse_command
from tonnage.settings.sglang import parse_sglang
from tonnage.workload.spec import workload

IMAGE = "registry.example/vllm@sha256:" + "a" * 64


def kept(model: str = "qwen3-32b", card: str = "h100", tp: int = 2, users: int = 32, **fields: object) -> PlanFile:
    """Return a plan as its file holds it."""
    settings = EngineSettings(parallel=Parallelism(tp=tp), **fields)  # type: ignore[arg-type]
    rules = rules_for("vllm", settings.release)
    request = Request(find_model(model), find_card(card).card, settings, workload(users, 8_000), rules, overhead_constants())
    return read_plan(msgspec.json.encode(plan_value(plan(request), ())), "plan.json")


@pytest.mark.parametrize("release", flag_releases(), ids=lambda release: f"0.{release[1]}")
@pytest.mark.parametrize("model", ["qwen3-32b", "qwen3.5-4b", "deepseek-v2-lite-chat"])
def test_a_command_holds_only_flags_that_its_release_knows(model: str, release: tuple[int, int]) -> None:
    """For all 25 releases; and it says what was planned."""
    made = kept(model, release=release)
    line = words(made, site_of(made))
    read = parse_command(line, release)
    assert read.unknown == ()
    assert read.settings.max_num_seqs == chosen_settings(made).max_num_seqs
    assert read.settings.parallel == made.settings.parallel
    assert read.settings.max_model_len == made.settings.max_model_len
    assert "--trust-remote-code" not in line
    assert ("--disable-log-requests" in line) == (release < (0, 10))


def test_every_flag_says_why() -> None:
    """And the text is a shell command with the same words."""
    made = kept()
    site = site_of(made)
    text = command_text(made, site)
    assert all(choice.why for choice in choices(made, site))
    body = text[text.index("vllm serve") :].replace("\\\n", " ")
    assert shlex.split(body) == words(made, site)
    assert all(f"#   {choice.flag}" in text for choice in choices(made, site))


def test_no_more_sequences_than_the_pool_holds() -> None:
    """max-num-seqs is at most the safe users, and within the engine's default."""
    made = kept()
    assert chosen_settings(made).max_num_seqs == made.users.safe
    roomy = kept("qwen3-0.6b", tp=1)
    assert (chosen_settings(roomy).max_num_seqs or 0) <= 1024


def test_weights_that_no_engine_makes_are_refused() -> None:
    """INT4 by rule is an estimate, not a checkpoint; FP8 is made while loading."""
    with pytest.raises(InputError, match="int4"):
        chosen_settings(kept(weights="int4"))
    assert "--quantization" in words(kept(weights="fp8"), site_of(kept(weights="fp8")))


def test_compose_is_closed_and_pinned() -> None:
    """No published port, read-only weights, no capability, a network without a way out."""
    made = kept()
    value = yaml.safe_load(compose_text(made, site_of(made, host="0.0.0.0"), IMAGE))
    engine = value["services"]["engine"]
    assert "ports" not in engine and engine["image"] == IMAGE
    assert engine["volumes"][0].endswith(":ro") and engine["cap_drop"] == ["ALL"] and engine["shm_size"]
    assert value["networks"]["engine"]["internal"] is True
    assert engine["entrypoint"] + engine["command"] == words(made, site_of(made, host="0.0.0.0"))
    assert engine["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2


@pytest.mark.parametrize("image", ["", "vllm/vllm-openai", "vllm/vllm-openai:v0.33.0", "vllm@sha256:abc"])
def test_an_image_that_is_not_pinned_is_refused(image: str) -> None:
    """A tag may be another image tomorrow."""
    with pytest.raises(InputError, match="digest"):
        pinned(image)


def test_the_unit_is_hardened() -> None:
    """And starts what was planned."""
    made = kept()
    text = unit_text(made, site_of(made))
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "IPAddressDeny=any", "ReadOnlyPaths=/models/Qwen3-32B"):
        assert line in text.splitlines()
    assert "ExecStart=/opt/vllm/bin/vllm serve /models/Qwen3-32B \\\n    --served-model-name qwen3-32b-v1" in text


def test_systemd_words_are_quoted() -> None:
    """Percent and dollar are systemd's own."""
    assert (quoted("a"), quoted("50%"), quoted('{"a":1}'), quoted("a b")) == ("a", "50%%", r'"{\"a\":1}"', '"a b"')


@given(cut=st.integers(0, 400))
def test_a_plan_cut_anywhere_is_a_clear_error(cut: int) -> None:
    """Never a traceback."""
    whole = b'{"schema": "tonnage.plan/1", "fits": true, "model": {"name": "x"}, "card": {"name": "y"}, "settings": {"release": "0.33"}}'
    with pytest.raises(InputError):
        read_plan(whole[: min(cut, len(whole))], "plan.json")


def test_a_plan_of_the_future_says_so() -> None:
    """By its schema."""
    with pytest.raises(InputError, match="later tonnage"):
        read_plan(b'{"schema": "tonnage.plan/2"}', "plan.json")
    with pytest.raises(InputError, match="is no plan"):
        read_plan(b'{"schema": "other/1"}', "plan.json")


def test_from_a_search_to_a_command(tmp_path: Path) -> None:
    """plan without --gpu, then render; files are not written over without --force."""
    file, out = tmp_path / "plan.json", tmp_path / "out"
    run = CliRunner().invoke(main, ["plan", "qwen3-8b", "--gpu", "l40s,h100", "--users", "64", "--context", "8k", "--out", str(file)])
    assert run.exit_code == 0
    made = read_plan(file.read_bytes(), "plan.json")
    assert made.replicas >= 1
    ask = ["render", str(file), "--to", "vllm", "--out", str(out)]
    assert CliRunner().invoke(main, ask).exit_code == 0
    again = CliRunner().invoke(main, ask)
    assert again.exit_code == 2 and "--force" in again.output
    assert CliRunner().invoke(main, [*ask, "--force"]).exit_code == 0
    assert "vllm serve" in (out / "serve.sh").read_text()
    assert all(word in flags_of((0, 33)) for word in words(made, site_of(made)) if word.startswith("--"))


def test_two_versions_behind_one_name(tmp_path: Path) -> None:
    """Other alias, other port, both named in the steps; the way back is written; a smaller limit is said."""
    old, new, out = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "out"
    card = ["plan", "qwen3-8b", "--gpu", "h100", "--users", "9"]
    assert CliRunner().invoke(main, [*card, "--context", "16k", "--out", str(old)]).exit_code == 0
    assert CliRunner().invoke(main, [*card, "--context", "8k", "--kv", "fp8", "--out", str(new)]).exit_code == 0
    ran = CliRunner().invoke(main, ["render", str(new), "--to", "vllm", "--replaces", str(old), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    steps, script = (out / "rollout.md").read_text(), (out / "serve.sh").read_text()
    assert "qwen3-8b-v1 -> qwen3-8b-v2, behind the name qwen3-8b" in steps
    assert "--served-model-name qwen3-8b-v2" in script and "--port 8001" in script
    assert steps.count("Way back") == 4 and "2 cards" in steps
    assert "requests above 8,192 tokens were served and will be refused" in steps


def test_sglang_gets_every_setting_of_its_plan() -> None:
    """Memory fraction and chunk too: the words parsed are the settings chosen."""
    made = kept()
    planned = msgspec.structs.replace(made.settings, engine="sglang", release=(0, 5), gpu_memory_utilization=0.8, kv_cache_dtype="fp8_e4m3")
    asked = msgspec.structs.replace(made, settings=planned)
    read = parse_sglang([word for word in words(asked, site_of(asked), "sglang") if word not in ("--host", "127.0.0.1", "--port", "8000")])
    meant = chosen_settings(asked)
    assert read.extra == ()
    assert read.settings == msgspec.structs.replace(meant, enable_prefix_caching=None)
