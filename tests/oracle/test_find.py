"""Is what has moved in a release said by name? With packages made for the test in place of vLLM."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tonnage.errors import InputError, UnknownError
from tonnage.oracle import find
from tonnage.oracle.ask import engine_config
from tonnage.oracle.job import Card, Job

KNOWN = "def blocks(vllm_config, groups, extra=None):\n    return vllm_config, groups\n"


def _forget() -> None:
    for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
        del sys.modules[name]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make a package named vllm: `release("0.35.0", {"core.py": "def blocks(): ..."})`; it is forgotten after the test."""
    _forget()
    monkeypatch.syspath_prepend(tmp_path)

    def make(version: str, files: dict[str, str]) -> None:
        for name, text in {"__init__.py": f"__version__ = {version!r}\n", **files}.items():
            file = tmp_path / "vllm" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    yield make
    _forget()


def test_the_first_place_that_is_there_counts(release: Callable[..., None]) -> None:
    """Newest first: a function, a module, a nested one."""
    release("0.33.0", {"core.py": KNOWN, "old.py": KNOWN, "v1/__init__.py": "", "v1/deep.py": "value = 1\n"})
    assert find.find("vllm.new.blocks", "vllm.core.blocks", "vllm.old.blocks").__module__ == "vllm.core"
    assert find.find("vllm.v1.deep.value") == 1
    assert find.find("vllm.v1.deep").__name__ == "vllm.v1.deep"


def test_what_has_moved_is_said_by_name(release: Callable[..., None]) -> None:
    """The release, the full name, and where to go on."""
    release("0.35.0+cpu", {"v1/__init__.py": "", "v1/core.py": ""})
    with pytest.raises(UnknownError) as caught:
        find.find("vllm.v1.core.get_kv_cache_configs")
    assert caught.value.problem == "vllm 0.35.0: tonnage.oracle expects vllm.v1.core.get_kv_cache_configs, which is not there"
    assert caught.value.hint.startswith("read its release with scripts/read-release")


def test_every_place_that_was_tried_is_said(release: Callable[..., None]) -> None:
    """Where a name has moved before."""
    release("0.35.0", {})
    with pytest.raises(UnknownError, match=r"expects vllm\.a\.f or vllm\.b\.f, which is not there"):
        find.find("vllm.a.f", "vllm.b.f")


def test_a_module_that_cannot_be_imported_is_not_taken_for_absent(release: Callable[..., None]) -> None:
    """A package that it wants is missing: that is another error."""
    release("0.33.0", {"core.py": "import no_such_package_at_all\n"})
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        find.find("vllm.core.blocks")


def test_a_function_is_called_with_what_it_takes(release: Callable[..., None]) -> None:
    """By name: releases add and drop parameters."""
    release("0.33.0", {"core.py": KNOWN})
    assert find.call(find.find("vllm.core.blocks"), vllm_config=1, groups=2, builder=3) == (1, 2)


def test_a_parameter_that_we_do_not_know_is_said_by_name(release: Callable[..., None]) -> None:
    """The function, and what it now wants."""
    release("0.35.0", {"core.py": KNOWN})
    with pytest.raises(UnknownError, match=r"^vllm 0\.35\.0: vllm\.core\.blocks now wants 'groups', which tonnage\.oracle does not know$"):
        find.call(find.find("vllm.core.blocks"), vllm_config=1)


def test_an_argument_that_the_release_does_not_know_is_said_with_the_nearest(release: Callable[..., None]) -> None:
    """Before its own code is run."""
    arguments = "import dataclasses\n@dataclasses.dataclass\nclass EngineArgs:\n    async_scheduling: bool = True\n"
    release("0.33.0", {"engine/arg_utils.py": arguments, "usage/usage_lib.py": "class UsageContext: ...\n"})
    job = Job(Path("model"), Card(), 1, {"asinc_scheduling": False})
    with pytest.raises(UnknownError, match=r"vllm 0\.33\.0 has no engine argument 'asinc_scheduling'") as caught:
        engine_config(job)
    assert caught.value.hint == "closest is async_scheduling"


def test_no_vllm_is_one_line_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is installed."""
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InputError, match=r"^vLLM is not installed in this environment$") as caught:
        find.vllm()
    assert "no GPU is needed" in caught.value.hint


def test_a_vllm_that_breaks_while_it_is_imported_is_told_why(release: Callable[..., None]) -> None:
    """Its torch is another one, or a package of it is missing."""
    release("0.33.0", {"__init__.py": "import no_such_package_at_all\n"})
    with pytest.raises(InputError, match="it wants no_such_package_at_all"):
        find.vllm()
    _forget()
    release("0.33.0", {"__init__.py": "raise OSError('libtorch is not there')\n"})
    with pytest.raises(InputError, match=r"OSError: libtorch is not there"):
        find.vllm()
