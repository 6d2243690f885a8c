"""Does the real engine take the commands that we render? Its own parser reads them, and a server starts with one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.plan import Request, plan
from tonnage.render.choices import site_of
from tonnage.render.command import words
from tonnage.render.plan_file import PlanFile, read_plan
from tonnage.report.plan_value import plan_value
from tonnage.settings import EngineSettings, LoRA, Parallelism
from tonnage.workload.spec import workload

pytestmark = pytest.mark.live

RELEASE = (0, 32)
READ = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for line in sys.stdin:
    read = parser.parse_args(json.loads(line))
    print("READ", json.dumps([read.max_num_seqs, read.tensor_parallel_size, read.max_model_len, read.served_model_name]))
"""

PLANS = {
    "dense": ("qwen3-32b", 2, {}),
    "fp8-made-while-loading": ("qwen3-32b", 2, {"weights": "fp8", "kv_cache_dtype": "fp8"}),
    "hybrid-with-drafts": ("qwen3.5-4b", 1, {"num_speculative_tokens": 1, "mamba_ssm_cache_dtype": "float32"}),
    "hybrid-without-prefix-caching": ("qwen3.5-4b", 1, {"enable_prefix_caching": False}),
    "latent-with-dcp": ("deepseek-v2-lite-chat", 2, {}),
    "adapters": ("qwen3-8b", 1, {"lora": LoRA(4, 16)}),
}


def kept(model: str, tp: int, context: int = 8_000, **fields: object) -> PlanFile:
    """Return a plan of the release that stands in the environment, as its file holds it."""
    settings = EngineSettings(release=RELEASE, parallel=Parallelism(tp=tp), **fields)  # type: ignore[arg-type]
    card, rules = find_card("h100").card, rules_for("vllm", RELEASE)
    request = Request(find_model(model), card, settings, workload(4, context), rules, overhead_constants())
    return read_plan(msgspec.json.encode(plan_value(plan(request), ())), "plan.json")


def test_the_real_parser_takes_what_we_render(live_python: Path) -> None:
    """Every plan's flags, with the values that were meant."""
    made = {name: kept(model, tp, **fields) for name, (model, tp, fields) in PLANS.items()}  # type: ignore[arg-type]
    asked = [words(one, site_of(one)) for one in made.values()]
    lines = "".join(json.dumps(line[2:]) + "\n" for line in asked)
    ran = subprocess.run([str(live_python), "-c", READ], input=lines, capture_output=True, text=True, timeout=170, check=False)
    read = [json.loads(line.removeprefix("READ ")) for line in ran.stdout.splitlines() if line.startswith("READ ")]
    assert len(read) == len(PLANS), ran.stderr[-2000:]
    for line, (seqs, tp, longest, alias) in zip(asked, read, strict=True):
        said = dict(pairwise(line))
        assert str(seqs) == said["--max-num-seqs"]
        assert str(tp) == said.get("--tensor-parallel-size", "1")
        assert str(longest) == said["--max-model-len"]
        assert alias in ([said["--served-model-name"]], said["--served-model-name"])


def test_a_server_starts_with_what_we_render(tiny: Path, started: Callable[..., dict[str, str]]) -> None:
    """The command of a plan of a tiny model, on this machine's CPU: only the port and the cache's size are the test's."""
    made = kept(str(tiny / "tiny-llama"), 1, context=500)
    line = words(made, site_of(made))[3:]
    flags = [word for index, word in enumerate(line) if word != "--port" and (index == 0 or line[index - 1] != "--port")]
    told = started(tiny / "tiny-llama", flags, {"VLLM_CPU_KVCACHE_SPACE": "1"})
    assert told["enable_prefix_caching"] == "True"
    assert int(told["log_tokens"]) > 0
