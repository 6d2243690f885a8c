"""Errors: split by whose fault, with the place in front and a next step behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import EndpointError, InputError, TonnageError, UnknownError, closest_hint, nearest

NAMES = ["qwen3.5-4b", "qwen3.5-9b", "gemma-3-27b-it", "Llama-3.1-8B"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(InputError, 2), (UnknownError, 2), (EndpointError, 3), (TonnageError, 2)],
    ids=["input", "unknown", "endpoint", "base"],
)
def test_an_error_has_its_exit_code_by_whose_fault_it_is(kind: type[TonnageError], code: int) -> None:
    """The contract: 2 for what the user gave, 3 for a server or program that failed."""
    error = kind("it is wrong")
    assert (error.exit_code, str(error), error.where, error.hint) == (code, "it is wrong", "", "")
    assert isinstance(error, TonnageError)


def test_the_message_begins_with_the_place() -> None:
    """design/style.md: where, then what is wrong with the value as given."""
    error = InputError("size '24' has no unit", where="gpus.toml: [l4] memory", hint="write it like '24 GiB'")
    assert str(error) == "gpus.toml: [l4] memory: size '24' has no unit"
    assert (error.problem, error.hint) == ("size '24' has no unit", "write it like '24 GiB'")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        pytest.param("qwen3.5-4", "qwen3.5-4b", id="cut"),
        pytest.param("QWEN3.5-9B", "qwen3.5-9b", id="case"),
        pytest.param("gemma3-27b", "gemma-3-27b-it", id="dash"),
        pytest.param("llama-3.1-8b", "Llama-3.1-8B", id="own-spelling-is-kept"),
    ],
)
def test_the_nearest_name_comes_first(name: str, first: str) -> None:
    """A typo is answered with what was meant, in the catalogue's own spelling."""
    assert nearest(name, NAMES)[0] == first


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("gemma-3-27b", "closest is gemma-3-27b-it", id="one"),
        pytest.param("zzzz", "see the list", id="none"),
        pytest.param("qwen3.5-5b", "closest are qwen3.5-9b and qwen3.5-4b", id="two"),
    ],
)
def test_a_hint_lists_what_is_close_or_says_otherwise(name: str, hint: str) -> None:
    """The example of design/style.md: qwen3.5-5b is close to two names."""
    assert closest_hint(name, NAMES[:3], "see the list") == hint


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=20), max_size=8), st.integers(1, 5))
def test_nearest_gives_known_names_only(name: str, known: list[str], count: int) -> None:
    """Never more than asked for, and never a name that is not known."""
    found = nearest(name, known, count)
    assert len(found) <= count
    assert set(found) <= set(known)
