"""What the package's own source is held to: sizes that a reader can take in, and one meaning for a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import mixupmp

SOURCE = Path(mixupmp.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
FILE_LINES, FUNCTION_LINES = 300, 60


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in TREES}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_is_too_long_without_its_docstring() -> None:
    found = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                docstring = ast.get_docstring(node) is not None
                written = (first.end_lineno or 0) - first.lineno + 1 if docstring else 0
                found[f"{path.relative_to(SOURCE)}:{node.name}"] = (node.end_lineno or 0) - node.lineno + 1 - written
    assert {name: lines for name, lines in found.items() if lines > FUNCTION_LINES} == {}


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: many for name, many in places.items() if len(many) > 1} == {}


def test_a_name_of_a_package_is_not_that_of_a_module_in_it() -> None:
    found = {}
    for path, tree in TREES.items():
        if path.name == "__init__.py":
            modules = {f"{one.stem}" for one in path.parent.iterdir() if one.name != "__pycache__"}
            from_inside = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
            package = ".".join(("mixupmp", *path.parent.relative_to(SOURCE).parts))
            names = {name.name for node in from_inside if node.module != package for name in node.names}
            found[package] = modules & names
    assert {package: both for package, both in found.items() if both} == {}
