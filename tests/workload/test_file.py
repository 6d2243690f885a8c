"""workload.toml: read as written, refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tonnage.cli import main
from tonnage.errors import InputError
from tonnage.workload.file import EXAMPLE, read_workload


def test_the_example_is_read() -> None:
    """As its comments say."""
    read = read_workload(EXAMPLE, "workload.toml")
    assert (read.users, read.context, read.p99, read.output, read.shared_prefix) == (64, 8_000, 12_000, 500, 2_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("users = ", "no TOML"),
        ("user = 3", "no key"),
        ("users = 1.5", "no whole number"),
        ("users = true", "no whole number"),
        ("context = 'long'", "long"),
        ("[targets]\nttft = 'soon'", "no time"),
        ("targets = 3", "no table"),
        ("prefix_share = 3", "3"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    """With its place."""
    with pytest.raises(InputError, match=words):
        read_workload(text, "workload.toml")


def test_a_plan_from_a_file_is_the_plan_from_flags(tmp_path: Path) -> None:
    """Flags win over the file; --example-workload prints what --workload reads."""
    file = tmp_path / "workload.toml"
    file.write_text(CliRunner().invoke(main, ["plan", "x", "--example-workload"]).stdout)
    card = ["plan", "qwen3-8b", "--gpu", "h100", "--json"]
    flags = ["--users", "64", "--context", "8k", "--p99", "12k", "--output", "500", "--shared-prefix", "2k"]
    by_file = CliRunner().invoke(main, [*card, "--workload", str(file)])
    by_flags = CliRunner().invoke(main, [*card, *flags])
    assert by_file.exit_code == by_flags.exit_code == 0
    assert msgspec.json.decode(by_file.stdout) == msgspec.json.decode(by_flags.stdout)
    fewer = msgspec.json.decode(CliRunner().invoke(main, [*card, "--workload", str(file), "--users", "3"]).stdout)
    assert fewer["workload"]["users"] == 3
    neither = CliRunner().invoke(main, ["plan", "qwen3-8b", "--gpu", "h100"])
    assert neither.exit_code == 2 and "--workload" in neither.stderr
