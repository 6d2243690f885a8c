"""What does a script run? Words as a shell splits them, with their places, and nothing executed."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.lint.place import Source
from tonnage.lint.shell import statements


def words(text: str) -> list[list[str]]:
    """Return the words of each statement."""
    return [[word.text for word in statement.words] for statement in statements(Source("s", text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a b  c\n", [["a", "b", "c"]], id="blanks"),
        pytest.param("a \\\n  b\n", [["a", "b"]], id="continuation"),
        pytest.param("a 'b c' \"d e\"f g\\ h", [["a", "b c", "d ef", "g h"]], id="quotes"),
        pytest.param("a # b c\nd", [["a"], ["d"]], id="comment"),
        pytest.param("a#b", [["a#b"]], id="a hash inside a word is none"),
        pytest.param("a && b; c | d & e || f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]], id="operators"),
        pytest.param("a > out 2>&1 < in b", [["a", "b"]], id="redirections"),
        pytest.param("a &> log", [["a"]], id="both streams"),
        pytest.param("cat <<EOF > x\nvllm serve\nEOF\nb", [["cat"], ["b"]], id="here-document"),
        pytest.param("M=/x; a $M ${M}/y", [["a", "/x", "/x/y"]], id="variables"),
        pytest.param("a ${M:-z} ${N}", [["a", "z", "${N}"]], id="defaults, and what nobody set"),
        pytest.param("ARGS='--a 1'\nb $ARGS \"$ARGS\"", [["b", "--a", "1", "--a 1"]], id="splitting"),
        pytest.param('X=(--a "b c"\n # note\n --d)\ne "${X[@]}"', [["e", "--a", "b c", "--d"]], id="arrays"),
        pytest.param("X=(a)\nX+=(b)\nc ${X[@]}", [["c", "a", "b"]], id="arrays that grow"),
        pytest.param("a $(cat /run/key) `b c`", [["a", "$(cat /run/key)", "`b c`"]], id="substitutions stay"),
        pytest.param("if a; then b; fi", [["a"], ["b"]], id="keywords"),
        pytest.param("a 'unclosed", [["a", "unclosed"]], id="an open quote ends with the file"),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    """A table of what shells do."""
    assert words(text) == expected


def test_places_are_those_of_the_file() -> None:
    """Line and column of each word, over continuations."""
    statement = statements(Source("run.sh", "#!/bin/sh\nvllm serve \\\n    --port 1\n"))[0]
    assert [(word.text, word.place.line, word.place.column) for word in statement.words] == [
        ("vllm", 2, 1), ("serve", 2, 6), ("--port", 3, 5), ("1", 3, 12),
    ]  # fmt: skip


def test_environments_of_a_line_of_exports_and_of_neither() -> None:
    """A prefix is for its command, an export for all later ones, a plain assignment for none."""
    text = "PLAIN=1\nexport OUT=2\nOWN=3 a\nb"
    first, second = statements(Source("s", text))
    assert {name: word.text for name, word in first.environment.items()} == {"OUT": "2", "OWN": "3"}
    assert {name: word.text for name, word in second.environment.items()} == {"OUT": "2"}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="$`\x00\r"), min_size=1), min_size=1, max_size=6))
def test_what_shlex_joins_is_split_again(texts: list[str]) -> None:
    """parse(print(x)) == x, for words that hold no substitution."""
    assert words("x " + shlex.join(texts)) == [["x", *texts]]


@given(st.text(alphabet="ab \\\n'\"$(){}[]<>|&;#=`@0-", max_size=300))
def test_any_text_is_read(text: str) -> None:
    """No text fails, and no word stands outside the file."""
    for statement in statements(Source("s", text)):
        for word in statement.words:
            assert 1 <= word.place.line <= text.count("\n") + 1
