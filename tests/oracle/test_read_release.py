"""Does scripts/read-release read a wheel, and say what changed? With wheels made for the test, a few lines each."""

from __future__ import annotations

import json
import runpy
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "read-release"
TABLES = Path(__file__).parents[2] / "src" / "tonnage" / "facts" / "data" / "engines"
MANY_FLAGS = [f"--flag-{number:03}" for number in range(120)]
MANY_METRICS = [f"vllm:metric_{number:02}" for number in range(40)]

BATCH = """
class EngineArgs:
    def get_batch_defaults(cls, world_size):
        if device_memory >= 160 * GiB_bytes:
            default_max_num_batched_tokens = {UsageContext.LLM_CLASS: 1, UsageContext.OPENAI_API_SERVER: 16384}
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 1024}
        else:
            default_max_num_batched_tokens = {UsageContext.OPENAI_API_SERVER: 2048}
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 256}
        if current_platform.is_cpu():
            default_max_num_seqs = {UsageContext.OPENAI_API_SERVER: 128 * world_size}
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """What the script defines."""
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[..., Path]:
    """Make a wheel: `wheel("0.34.0", flags=[...], utilization="Field(default=0.92)")`."""

    def make(
        version: str,
        *,
        flags: list[str] = MANY_FLAGS,
        metrics: list[str] = MANY_METRICS,
        utilization: str = "0.92",
        batch: str = BATCH,
        **files: str,
    ) -> Path:
        arguments = "".join(f"group.add_argument({flag!r}, deprecated={flag.endswith('old')})\n" for flag in flags)
        content = {
            "vllm/engine/arg_utils.py": arguments + batch,
            "vllm/entrypoints/common/cli_args.py": "class FrontendArgs:\n    served_port: int = 8000\n",
            "vllm/config/cache.py": f'CacheDType = Literal["auto", "fp8"]\nclass C:\n    gpu_memory_utilization: float = {utilization}\n',
            "vllm/v1/metrics/loggers.py": f"NAMES = {metrics!r}\nPREFIX = 'vllm:metric_'\n",
            f"vllm-{version}.dist-info/METADATA": f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n",
            **files,
        }
        path = tmp_path / f"vllm-{version}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                if text:
                    archive.writestr(name, text)
        return path

    return make


@pytest.fixture
def tables(tmp_path: Path, script: dict[str, Any], wheel: Callable[..., Path]) -> Path:
    """A folder of tables that hold one release, 0.33.0."""
    folder = tmp_path / "tables"
    folder.mkdir()
    names = {"flags": [*MANY_FLAGS, "--served-port"], "metrics": MANY_METRICS}
    for kind, own in names.items():
        spans = {name: {"first": "0.30.0", "last": None} for name in own}
        (folder / f"vllm-{kind}.json").write_text(json.dumps({"releases": ["0.30.0", "0.33.0"], kind: spans}), encoding="utf-8")
    (folder / "vllm-defaults.json").write_text(json.dumps({"releases": [], "defaults": {}}), encoding="utf-8")
    assert script["main"](["--write", str(wheel("0.33.0"))], folder) == 0
    return folder


def test_a_wheel_says_flags_metrics_and_defaults(script: dict[str, Any], wheel: Callable[..., Path]) -> None:
    """Options of add_argument and fields of the front end; whole metric names; limits of the API server by their conditions."""
    release = script["read_release"](wheel("0.34.0", flags=[*MANY_FLAGS, "--an-old"], utilization="Field(default=0.9, gt=0)"))
    assert release.version == "0.34.0"
    assert release.flags == {*MANY_FLAGS, "--an-old", "--served-port"}
    assert release.deprecated == {"--an-old"}
    assert release.metrics == set(MANY_METRICS)
    assert release.defaults == {
        "gpu_memory_utilization": 0.9,
        "kv_cache_dtypes": ["auto", "fp8"],
        "max_num_batched_tokens": {"device_memory >= 160 * GiB_bytes": 16384, "otherwise": 2048},
        "max_num_seqs": {"device_memory >= 160 * GiB_bytes": 1024, "otherwise": 256, "current_platform.is_cpu()": "128 * world_size"},
    }


def test_a_release_that_the_tables_hold_has_no_differences(
    script: dict[str, Any], wheel: Callable[..., Path], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, one line."""
    capsys.readouterr()
    assert script["main"]([str(wheel("0.33.0"))], tables) == 0
    assert capsys.readouterr().out == "vllm 0.33.0: 121 flags, 40 metrics, 0 differences, as our tables hold it\n"


def test_a_new_release_is_compared_and_then_written(
    script: dict[str, Any], wheel: Callable[..., Path], tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came, what went, what is warned of, which default changed; after --write it is what the tables hold."""
    new = wheel("0.34.0", flags=[*MANY_FLAGS[1:], "--new", "--an-old"], metrics=MANY_METRICS[1:], utilization="0.95")
    capsys.readouterr()
    assert script["main"]([str(new)], tables) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines[1:]] == [
        "+ flag --an-old", "+ flag --new", "- flag --flag-000", "- metric vllm:metric_00", "~ flag --an-old is deprecated",
        "~ default gpu_memory_utilization: 0.92 -> 0.95",
    ]  # fmt: skip
    assert script["main"](["--write", str(new)], tables) == 0
    assert script["main"]([str(new)], tables) == 0
    flags = json.loads((tables / "vllm-flags.json").read_text(encoding="utf-8"))
    assert flags["releases"] == ["0.30.0", "0.33.0", "0.34.0"]
    assert flags["flags"]["--flag-000"] == {"first": "0.30.0", "last": "0.33.0"}
    assert flags["flags"]["--an-old"] == {"first": "0.34.0", "last": None, "deprecated": "0.34.0"}
    assert list(flags["flags"]) == sorted(flags["flags"])
    defaults = json.loads((tables / "vllm-defaults.json").read_text(encoding="utf-8"))["defaults"]
    assert defaults["gpu_memory_utilization"] == {"0.33.0": 0.92, "0.34.0": 0.95}


def test_an_older_release_fills_in_what_was_first(script: dict[str, Any], wheel: Callable[..., Path], tables: Path) -> None:
    """Its names are older than the tables said; what it lacks is no removal."""
    assert script["main"](["--write", str(wheel("0.29.0", flags=[*MANY_FLAGS[1:], "--gone"]))], tables) == 0
    flags = json.loads((tables / "vllm-flags.json").read_text(encoding="utf-8"))["flags"]
    assert (flags["--flag-000"]["first"], flags["--flag-001"]["first"]) == ("0.30.0", "0.29.0")
    assert flags["--gone"] == {"first": "0.29.0", "last": "0.29.0"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({"vllm/engine/arg_utils.py": ""}, "has no vllm/engine/arg_utils.py", id="a file has gone"),
        pytest.param({"vllm/entrypoints/common/cli_args.py": ""}, "too few; they moved", id="the front end has gone"),
        pytest.param({"flags": ["--one"]}, "2 flags in", id="flags have moved"),
        pytest.param({"metrics": ["vllm:one"]}, "1 metrics are too few", id="metrics have moved"),
        pytest.param({"utilization": "DEFAULT"}, "the default of gpu_memory_utilization is not where it was", id="a default has moved"),
        pytest.param({"batch": ""}, "the default of max_num_seqs is not where it was", id="the limits have moved"),
        pytest.param({"vllm-0.34.0.dist-info/METADATA": ""}, "is no vLLM wheel", id="no metadata"),
    ],
)
def test_what_is_not_where_it_was_is_said_by_name(
    changed: dict[str, Any],
    expected: str,
    script: dict[str, Any],
    wheel: Callable[..., Path],
    tables: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, and the tables stay."""
    before = (tables / "vllm-flags.json").read_bytes()
    assert script["main"](["--write", str(wheel("0.34.0", **changed))], tables) == 2
    assert expected in capsys.readouterr().err
    assert (tables / "vllm-flags.json").read_bytes() == before


def test_what_is_no_wheel_is_said(script: dict[str, Any], tmp_path: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is none, and no file at all."""
    (tmp_path / "a.whl").write_text("no", encoding="utf-8")
    assert script["main"]([str(tmp_path / "a.whl")], tables) == 2
    assert script["main"]([], tables) == 2
    assert "cannot be read as a wheel" in capsys.readouterr().err


def test_our_tables_agree_with_the_shared_ones(shared: Path) -> None:
    """25 releases from 0.9.2 to 0.33.0: every flag and metric, its first and last release."""
    for kind in ("flags", "metrics"):
        theirs = json.loads((shared / "data" / "engines" / f"vllm-{kind}.json").read_text(encoding="utf-8"))
        ours = json.loads((TABLES / f"vllm-{kind}.json").read_text(encoding="utf-8"))
        newest = theirs["versions_read"][-1]
        assert ours["releases"][: len(theirs["versions_read"])] == theirs["versions_read"]
        assert {name: [span["first"], span["last"] or newest] for name, span in ours[kind].items()} == {
            name: span["in"] for name, span in theirs[kind].items()
        }


def test_every_table_has_a_source_and_a_date() -> None:
    """And its names in order."""
    for kind in ("flags", "metrics", "defaults"):
        table = json.loads((TABLES / f"vllm-{kind}.json").read_text(encoding="utf-8"))
        assert table["source"], kind
        assert table["checked"] == "2026-11-29"
        assert list(table[kind]) == sorted(table[kind])
