"""Every public name is in the API reference, and its docstring says what goes in and what comes out (numpydoc)."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import mixupmp
from mixupmp.core.base_measures import BASE_MEASURES
from mixupmp.core.kernels import KERNELS
from mixupmp.core.sampler_catalog import SAMPLERS

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = ("data", "estimators", "metrics", "networks", "plots", "web.report", "web.serve")
NOT_OBJECTS = {"__version__", "decide", "export", *(name for name in PACKAGES if "." not in name)}
FIRST = {
    "mixupmp.data.load",
    "mixupmp.data.load_path",
    "mixupmp.decide.search.Search",
    "mixupmp.decide.select.select",
    "mixupmp.export.distill.compare",
    "mixupmp.export.distill.distill",
    "mixupmp.export.onnx.export_onnx",
    "mixupmp.metrics.detection",
    "mixupmp.metrics.evaluate",
    "mixupmp.store.sign.sign",
    "mixupmp.store.sign.verify",
    "mixupmp.web.serve.served_model",
}
LISTED = re.findall(r"^::: (mixupmp[\w.]*)$", "\n".join(p.read_text() for p in DOCS.glob("api/*.md")), re.MULTILINE)


def public_names() -> set[str]:
    """What `__init__.pyi` names and the packages export; a package's second names for the first are left out."""
    stub = ast.parse((Path(mixupmp.__file__).parent / "__init__.pyi").read_text())
    top = {name.asname or name.name for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names}
    names = {f"mixupmp.{name}" for name in top - NOT_OBJECTS}
    for package in PACKAGES:
        exported = set(import_module(f"mixupmp.{package}").__all__)
        names |= {f"mixupmp.{package}.{name}" for name in exported - top}
    return names


def resolve(path: str) -> Any:
    parent, _, name = path.rpartition(".")
    return getattr(import_module(parent), name)


def section(docstring: str, title: str) -> str:
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^[A-Z][\w ]+\n-{{3,}}$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def listed_parameters(docstring: str) -> set[str]:
    """Names under Parameters or Attributes."""
    lines = section(docstring, "Parameters") + section(docstring, "Attributes")
    heads = re.findall(r"^([*\w][^:\n]*?)(?: : .*)?$", lines, re.MULTILINE)
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


def missing(name: str, thing: Any) -> list[str]:
    """What the docstring of a function, class or method leaves out."""
    text = inspect.cleandoc(thing.__doc__ or "")
    known = listed_parameters(text)
    is_error = inspect.isclass(thing) and issubclass(thing, BaseException)
    parameters = [] if is_error else inspect.signature(thing).parameters
    taken = [one for one in parameters if one not in ("self", "cls") and not one.startswith("_")]
    out = [f"{name}: Parameters lacks {one}" for one in taken if one not in known]
    if inspect.isfunction(thing) and "." not in thing.__qualname__:
        returns = inspect.signature(thing).return_annotation
        if returns not in (None, "None") and not section(text, "Returns"):
            out.append(f"{name} has no section Returns")
    return out


def test_every_public_name_is_in_the_reference_once() -> None:
    assert sorted(set(LISTED)) == sorted(LISTED)
    assert public_names() - set(LISTED) == set()


def test_what_is_in_a_catalog_is_exported_and_in_the_reference() -> None:
    values = (*BASE_MEASURES.values(), *KERNELS.values())
    types = {type(value).__name__ for value in values} | {sampler.__name__ for sampler in SAMPLERS.values()}
    wanted = types | {constructor.__name__ for constructor in mixupmp.ALL_METHODS}
    assert {f"mixupmp.{name}" for name in wanted} - (public_names() & set(LISTED)) == set()


@pytest.mark.parametrize("name", LISTED)
def test_each_has_a_docstring(name: str) -> None:
    found = resolve(name)
    assert found.__doc__ or not (inspect.isclass(found) or inspect.isfunction(found))
    # The docstring that `dataclass` makes of the fields says nothing.
    assert not (found.__doc__ or "").startswith(f"{getattr(found, '__name__', '')}(")


def complete() -> Iterator[tuple[str, Any]]:
    """Names directly under `mixupmp`, what a user calls first of the rest, and the methods of what they return."""
    methods = {function.__name__ for function in mixupmp.ALL_METHODS}
    for path in LISTED:
        found = resolve(path)
        direct = path.count(".") == 1 and path.removeprefix("mixupmp.") not in methods
        if (direct or path in FIRST) and (inspect.isclass(found) or inspect.isfunction(found)):
            yield path, found
    for owner in (mixupmp.MixupMPClassifier, mixupmp.MixupMPRegressor, mixupmp.Posterior):
        for name, value in inspect.getmembers(owner, inspect.isroutine):
            if not name.startswith("_") and value.__module__.startswith("mixupmp."):
                yield f"mixupmp.{owner.__name__}.{name}", value


@pytest.mark.parametrize(("name", "thing"), list(complete()))
def test_docstrings_say_what_goes_in_and_what_comes_out(name: str, thing: Any) -> None:
    assert missing(name, thing) == []


def test_the_arguments_of_methods_are_in_the_table() -> None:
    table = (DOCS / "api" / "methods.md").read_text().partition("## A method")[0]
    listed = set(re.findall(r"`(\w+)`", table))
    for constructor in mixupmp.ALL_METHODS:
        assert set(inspect.signature(constructor).parameters) <= listed, constructor.__name__
