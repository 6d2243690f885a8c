"""What every test may ask for: the shared data, a run of the command line, and how hard hypothesis tries."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]

os.environ["TONNAGE_CALIBRATION"] = str(ROOT / "tests" / "no-calibration.toml")  # never what this machine's user measured

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of facts and measurements beside the repository; tests that need it are skipped where it is absent."""
    folder = ROOT / os.environ.get("TONNAGE_SHARED", "../shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"reads the shared data, and there is none at {folder}; TONNAGE_SHARED says where it is")
    return folder.resolve()


@pytest.fixture
def run() -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: `run("plan", "qwen3.5-4b", "--gpu", "l4")` -> (exit code, stdout, stderr).

    An exception that the command line lets through is a bug, and fails the test as itself.
    """
    from click.testing import CliRunner

    from tonnage.cli import main

    runner = CliRunner(env={"COLUMNS": "80"})

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        result = runner.invoke(main, [str(argument) for argument in arguments], prog_name="tonnage", catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr

    return command
