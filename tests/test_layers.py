"""Does every module import only what stands above it, and does the core stay away from the world?

The order is the one of the layout in docs/design.md. Everything is read from the source with `ast`; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"

LAYERS = (
    "errors",
    "units",
    "facts",
    "workload",
    "settings",
    "calibration",
    "memory",
    "backtest",
    "oracle",
    "records",
    "stats",
    "sim",
    "capacity",
    "render",
    "lint",
    "monitor",
    "diagnose",
    "load",
    "fit",
    "adopt",
    "artifact",
    "standin",
    "report",
    "web",
    "cli",
    "__main__",
)
"""A layer is a module or a package of `tonnage`; it may import the ones before it, and itself."""

PURE = {"errors", "units", "facts", "workload", "settings", "memory", "stats", "sim", "capacity"}
"""Layers of values and functions: what they are told decides what they answer."""

SHELLS = {f"tonnage.facts.{name}" for name in ("cards", "catalog", "checkpoint", "hub", "overheads", "tables")}
"""The doors of the pure layers: they may hold paths, and reach further only inside the function that does."""

WORLD = {"time", "os", "socket", "subprocess", "asyncio", "random", "click", "rich"}
"""Clocks, processes, sockets, chance, screens: what makes an answer depend on where and when it is asked."""

SLOW = {"rich", "yaml", "huggingface_hub"}
"""Dependencies that a plain plan must not pay for: imported in the function that needs them."""


class Import(NamedTuple):
    """One imported module; `lazy` inside a function, `typing` under TYPE_CHECKING, where nothing runs."""

    target: str
    line: int
    lazy: bool
    typing: bool


class Module(NamedTuple):
    """One source file under its dotted name, parsed."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        """The layer that the module is in, or is."""
        return self.name.split(".")[1] if "." in self.name else ""


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((SRC / "tonnage").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, text, ast.parse(text))
    return found


def imports(module: Module) -> Iterator[Import]:
    """Yield what a module imports, at any depth; `from package import name` names the module where `name` is one."""
    todo: list[tuple[ast.AST, bool, bool]] = [(module.tree, False, False)]
    while todo:
        node, lazy, typing = todo.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = f"{'.' * node.level}{node.module or ''}"
            for target in {f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names}:
                yield Import(target, node.lineno, lazy, typing)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += [(child, lazy, True) for child in node.body] + [(child, lazy, typing) for child in node.orelse]
        else:
            inner = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            todo += [(child, inner, typing) for child in ast.iter_child_nodes(node)]


def own(module: Module) -> list[Import]:
    """Return the imports of our own modules."""
    return [found for found in imports(module) if found.target.split(".")[0] in {"tonnage", ""}]


def test_every_module_has_its_place_in_the_order() -> None:
    """A new layer is a decision: it is put into LAYERS, and into the layout, where it belongs."""
    assert {module.layer for module in modules().values()} - {"", *LAYERS} == set()


def test_a_module_imports_only_what_stands_above_it_or_beside_it() -> None:
    """Data goes one way. Imports inside functions count: a cycle hidden in a function is a cycle."""
    order = {layer: place for place, layer in enumerate(LAYERS)}
    wrong = []
    for module in modules().values():
        for found in own(module):
            layer = found.target.split(".")[1] if "." in found.target else ""
            if found.target.startswith("."):
                wrong.append(f"{module.name}:{found.line} imports {found.target}: write it in full")
            elif module.layer and layer and order.get(layer, 99) > order.get(module.layer, -1):
                wrong.append(f"{module.name}:{found.line} imports {found.target}, which stands below it")
            elif not module.layer and layer and not found.lazy:
                wrong.append(f"{module.name}:{found.line} imports {found.target}: the package itself imports nothing")
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At module level, inside a layer too."""
    edges = {m.name: {f.target for f in own(m) if not f.lazy and not f.typing} - {m.name} for m in modules().values()}
    left = dict(edges)
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == []


def test_the_pure_layers_do_not_touch_the_world() -> None:
    """No clock, chance, process, socket or screen in the core, not even inside a function; shells reach out lazily."""
    wrong = []
    for module in (m for m in modules().values() if m.layer in PURE):
        shell = module.name in SHELLS
        banned = WORLD if shell else {*WORLD, "pathlib"}
        for found in imports(module):
            if found.target.split(".")[0] in banned and not found.typing and not (shell and found.lazy):
                wrong.append(f"{module.name}:{found.line} imports {found.target}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"} and not shell:
                wrong.append(f"{module.name}:{node.lineno} calls {node.func.id}()")
    assert wrong == []


def test_what_is_slow_to_import_is_imported_where_it_is_used() -> None:
    """A plain plan answers before rich or a hub client would have been loaded."""
    found = [(m.name, f.line, f.target) for m in modules().values() for f in imports(m) if not f.lazy and not f.typing]
    assert [each for each in found if each[2].split(".")[0] in SLOW] == []


def test_no_module_is_called_utils() -> None:
    """A name that says nothing collects everything."""
    assert [name for name in modules() if re.search(r"\.(utils?|helpers?|common_utils|misc)\b", name)] == []


def test_a_module_above_400_lines_says_why() -> None:
    """In its docstring, with the word `lines`."""
    long = [module for module in modules().values() if module.text.count("\n") > 400]
    assert [module.name for module in long if "lines" not in (ast.get_docstring(module.tree) or "")] == []


def test_every_module_says_which_question_it_answers() -> None:
    """Every module with code has a docstring; every package's empty `__init__` is that: empty."""
    assert [m.name for m in modules().values() if m.text.strip() and not ast.get_docstring(m.tree)] == []


def test_nothing_in_the_source_is_left_for_later() -> None:
    """What is not done is not there: no marks, no functions that only say so."""
    later = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert [(m.name, found[0]) for m in modules().values() for found in later.finditer(m.text)] == []


def written() -> list[Path]:
    """Every file that people write: code, scripts and pages."""
    folders = ("src", "tests", "bench", "scripts", "docs", ".ci", "examples")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted({*inside, *ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"})


def test_no_file_names_a_place_on_one_machine() -> None:
    """A path below somebody's home is right on that machine only."""
    place = re.compile(r"(?<![\w.$}])/(?:home|Users|work)/\w+")
    wrong = []
    for path in (p for p in written() if "__pycache__" not in p.parts):
        text = path.read_bytes().decode("utf-8", errors="replace")
        wrong += [f"{path.relative_to(ROOT)}: {found[0]}" for found in place.finditer(text)]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("import time", ("time", False, False), id="top"),
        pytest.param("def f():\n    import os.path", ("os.path", True, False), id="inside a function"),
        pytest.param("class C:\n    import rich", ("rich", False, False), id="a class body runs at import"),
        pytest.param("if TYPE_CHECKING:\n    import click", ("click", False, True), id="for types only"),
        pytest.param("try:\n    import yaml\nexcept ImportError:\n    pass", ("yaml", False, False), id="in a try"),
        pytest.param("from tonnage import errors", ("tonnage.errors", False, False), id="a module of a package"),
        pytest.param("from tonnage.units import GIB", ("tonnage.units", False, False), id="a name of a module"),
        pytest.param("from . import units", (".", False, False), id="relative"),
    ],
)
def test_imports_are_read_as_python_reads_them(source: str, expected: tuple[str, bool, bool]) -> None:
    """The reader itself, on one import each: what, inside a function, for types only."""
    module = Module("tonnage.errors", Path("errors.py"), source, ast.parse(source))
    assert [(found.target, found.lazy, found.typing) for found in imports(module)] == [expected]
