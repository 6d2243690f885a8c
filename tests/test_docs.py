"""Do the pages say what the program does?

`README.md` is run: in its code blocks every line `$ tonnage ...` (or `tonnage ...` in a block of shell) is a command,
run in order in one folder, and what stands under it is what it must print; a line `...` stands for any lines.
"""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    import click

ROOT = Path(__file__).parents[1]
SHELL = {"console", "sh", "bash", "shell"}

needs_cli = pytest.mark.skipif(find_spec("tonnage.cli") is None, reason="there is no command line yet")


class Example(NamedTuple):
    """A command in a page, where it stands, and what the page says it prints ("" where it says nothing)."""

    line: int
    command: str
    output: str


def examples(text: str) -> Iterator[Example]:
    """Yield the commands in the shell blocks of a Markdown page; a backslash at the end joins lines."""
    for block in re.finditer(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", text, re.MULTILINE | re.DOTALL):
        if block[1] not in SHELL:
            continue
        first = text[: block.start(2)].count("\n") + 1
        lines = block[2].splitlines()
        starts = [n for n, line in enumerate(lines) if line.startswith("$ ") or (block[1] != "console" and line.startswith("tonnage "))]
        for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
            stop = start
            while lines[stop].endswith("\\"):
                stop += 1
            command = " ".join(line.removesuffix("\\").strip() for line in lines[start : stop + 1]).removeprefix("$ ")
            shown = lines[stop + 1 : end] if block[1] == "console" else []
            yield Example(first + start, command, "\n".join(shown).strip("\n"))


def agrees(shown: str, printed: str) -> bool:
    """Whether what a page shows is what was printed, blanks at line ends and empty lines around it aside.

    >>> agrees("Fits.\\n...\\nnext: render", "Fits.\\n  a\\n  b\\nnext: render\\n"), agrees("Fits.", "Fits.\\nAnd more.")
    (True, False)
    """
    lines = [line.rstrip() for line in shown.strip("\n").splitlines()]
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in lines)
    tidy = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, tidy) is not None


def contexts() -> list[click.Context]:
    """Return a context for every command but the outermost, as scripts/generate-docs finds them."""
    generator = runpy.run_path(str(ROOT / "scripts" / "generate-docs"))
    return list(generator["contexts"](generator["main"]))[1:]


@needs_cli
def test_the_reference_is_current() -> None:
    """docs/cli.md and docs/rules.md are what `make docs` would write."""
    generator = runpy.run_path(str(ROOT / "scripts" / "generate-docs"))
    for path, made in generator["PAGES"].items():
        assert path.read_text(encoding="utf-8") == made(), "run `make docs`"


@needs_cli
def test_every_command_has_help_and_an_example() -> None:
    """Help says what a command answers, and shows it being called: a line `tonnage NAME ...` beside the usage."""
    for context in contexts():
        said = f"{context.command.help or ''}\n{context.command.epilog or ''}"
        assert context.command.help, context.command_path
        assert re.search(rf"^\s*(\$ )?{re.escape(context.command_path)}( |$)", said, re.MULTILINE), context.command_path


@needs_cli
def test_every_command_stands_in_the_readme_s_table() -> None:
    """As `tonnage NAME` in a row of a table."""
    rows = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    paths = [context.command_path for context in contexts()]
    assert [path for path in paths if not any(re.search(rf"`{re.escape(path)}\b", row) for row in rows)] == []


@needs_cli
def test_every_command_in_the_readme_does_what_it_shows(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each runs and ends well (0) or with a finding (1), and prints what stands under it."""
    found = [each for each in examples((ROOT / "README.md").read_text(encoding="utf-8")) if each.command.startswith("tonnage")]
    assert found, "README.md shows no command"
    monkeypatch.chdir(tmp_path)
    for example in found:
        where = f"README.md:{example.line}: {example.command}"
        words = shlex.split(example.command, comments=True)
        assert not {"|", ">", ">>", "&&", ";"} & set(words), f"{where}: only plain commands can be tested"
        code, stdout, stderr = run(*words[1:])
        assert code in (0, 1), f"{where}\nexit {code}\n{stderr or stdout}"
        assert not example.output or agrees(example.output, stdout), f"{where}\nshown:\n{example.output}\nprinted:\n{stdout}"


def test_examples_are_found_in_shell_blocks_only() -> None:
    """The reader itself: commands, their output, lines joined; other blocks and other programs' lines left as they are."""
    text = (
        "```console\n$ tonnage plan a \\\n    --gpu l4\nFits.\n\n$ make demo\n```\n"
        "```python\ntonnage = 1\n```\n```sh\npip install tonnage\ntonnage gpus\n```\n"
    )
    assert list(examples(text)) == [
        Example(2, "tonnage plan a --gpu l4", "Fits."),
        Example(6, "make demo", ""),
        Example(13, "tonnage gpus", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        pytest.param("a\nb", "a\nb\n", True, id="equal"),
        pytest.param("a\nb", "a  \nb\n\n", True, id="blanks at the ends"),
        pytest.param("a\n...", "a\n", True, id="an ellipsis may be nothing"),
        pytest.param("a\n...\nd", "a\nb\nc\nd", True, id="an ellipsis may be many lines"),
        pytest.param("a\n...\nd", "a\nb\nc", False, id="what follows an ellipsis counts"),
        pytest.param("a...", "abc", False, id="three dots in a line are three dots"),
        pytest.param("a", "a\nb", False, id="more was printed"),
        pytest.param("47 users", "48 users", False, id="another number"),
    ],
)
def test_shown_output_is_compared_line_by_line(shown: str, printed: str, expected: bool) -> None:
    """The comparison itself."""
    assert agrees(shown, printed) is expected
