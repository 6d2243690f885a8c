"""The page for the budget review: from a plan and from a search, as Markdown and as one file of HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from tonnage.cli import main

SEARCH = ["plan", "qwen3-8b", "--gpu", "l40s,l4", "--users", "64", "--context", "8k", "--spare", "1"]
ALONE = ["plan", "qwen3-8b", "--gpu", "l40s", "--users", "9", "--context", "8k"]


class Balanced(HTMLParser):
    """Counts what is open, and what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag; void ones stay closed."""
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        """Close the last one that was opened."""
        assert self.open.pop() == tag


@pytest.mark.parametrize("ask", [SEARCH, ALONE], ids=["search", "plan"])
def test_the_page_answers_the_question(ask: list[str], tmp_path: Path) -> None:
    """Question, answer, ledger, how sure, sources; options where cards were searched; whole and self-contained HTML."""
    file = tmp_path / "plan.json"
    assert CliRunner().invoke(main, [*ask, "--out", str(file)]).exit_code == 0
    text = CliRunner().invoke(main, ["report", str(file)]).stdout
    for heading in ("## Question", "## Answer", "## Memory of one card", "## How sure", "## What would change the answer", "## Sources"):
        assert heading in text
    assert ("## Options" in text) == (ask is SEARCH)
    assert ("USD a month" in text) == (ask is SEARCH)
    page = CliRunner().invoke(main, ["report", str(file), "--to", "html"]).stdout
    reader = Balanced()
    reader.feed(page)
    assert reader.open == [] and reader.fetched == [] and "http" not in page.split("<h2>Sources")[0]
    assert page.count("<rect") >= 6


def test_names_are_escaped(tmp_path: Path) -> None:
    """A folder may be called anything."""
    file = tmp_path / "plan.json"
    CliRunner().invoke(main, [*ALONE, "--out", str(file)])
    file.write_text(file.read_text().replace('"Qwen/Qwen3-8B"', '"<script>alert(1)</script>"'))
    page = CliRunner().invoke(main, ["report", str(file), "--to", "html"]).stdout
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_what_is_no_plan_is_said(tmp_path: Path) -> None:
    """In a sentence, with exit code 2."""
    file = tmp_path / "plan.json"
    for text in ("", "{}", "[]", '{"schema": "tonnage.plan/1"}'):
        file.write_text(text)
        made = CliRunner().invoke(main, ["report", str(file)])
        assert made.exit_code == 2 and made.stderr.startswith("error: ")
