"""The columns of a table as the inputs of an ONNX graph: categories as text, missing values as "" and NaN.

The graph encodes them as `core.columns.Column.encode` does, so that it takes what the estimator takes. Where no column
has categories the graph keeps its one input, (rows, columns) of numbers; else each column is an input (rows,) by name.
What only an error or a warning can say is not in a graph: infinities are not refused, and a new category, or a value
that was never missing in the fit, is encoded as `predict` encodes it, but nothing is said of it. Numbers are float32,
or float64 where a column is centered before it becomes float32.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mixupmp.core.arrays import Array
from mixupmp.core.column_warnings import ColumnWarning
from mixupmp.core.columns import Column, Columns, encode_columns
from mixupmp.core.errors import InvalidArgument, check
from mixupmp.core.spec import encode

if TYPE_CHECKING:
    import onnx

NUMBERS = "inputs"  # the one input of a table without categories
MISSING = ""  # a missing category
NEW = "a category that no fit has seen"
ENCODED = "mixupmp/"  # before all names inside the graph, as columns may have any name


def by_name(columns: Columns) -> bool:
    """Whether each column is an input of its own."""
    return any(column.kind == "category" for column in columns.columns)


def check_columns(columns: Columns, outputs: Sequence[str]) -> None:
    """Raise `InvalidArgument` where a graph cannot tell columns, or the missing values of one, apart."""
    if not by_name(columns):
        return
    names = [column.name for column in columns.columns]
    for name in names:
        free = name and names.count(name) == 1 and name not in outputs and not name.startswith(ENCODED)
        check(bool(free), "columns", name, "other than '', each other and the graph's outputs, for ONNX", "Rename it.")
    for column in columns.columns:
        if MISSING in column.categories:
            hint = "Write NaN for missing values, or another word for this category."
            raise InvalidArgument(f"column {column.name!r}", "the category ''", "text, for ONNX", hint)


def _kind(*columns: Column) -> Any:
    """Of an input of these columns of numbers."""
    return np.float64 if any(column.offset for column in columns) else np.float32


def column_metadata(columns: Columns) -> dict[str, str]:
    """What the inputs of a graph of columns are, and how they are encoded."""
    kind = _kind(*columns.columns).__name__
    described = f"{NUMBERS}: {kind} (rows, {len(columns.columns)}), NaN where a value is missing"
    if by_name(columns):
        text = "text (rows), '' where missing"
        kinds = [
            (c, text if c.kind == "category" else f"{_kind(c).__name__} (rows), NaN where missing")
            for c in columns.columns
        ]
        described = "; ".join(f"{c.name}: {kind}" for c, kind in kinds if c.kind != "empty")
    return {"mixupmp.inputs": described, "mixupmp.columns": json.dumps(encode(columns))}


def column_examples(columns: Columns, rows: int) -> tuple[dict[str, Array], Tensor]:
    """Random rows with new categories and missing values among them: as the graph is given them, and encoded."""
    generator = np.random.default_rng(0)
    drawn: list[Array] = []
    together = () if by_name(columns) else columns.columns  # of one input, and so of one type
    for column in columns.columns:
        if column.kind == "category":
            drawn.append(generator.choice(np.array([*column.categories, MISSING, NEW], dtype=object), rows))
        else:
            numbers = generator.normal(column.fill, 1, rows)
            numbers[generator.random(rows) < 0.2] = np.nan
            drawn.append(numbers.astype(_kind(column, *together)))
    values = [np.where(v == MISSING, None, v) if v.dtype == object else v for v in drawn]  # type: ignore[call-overload]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        encoded = torch.from_numpy(encode_columns(columns.columns, values, rows))
    if not by_name(columns):
        return {NUMBERS: np.stack(drawn, 1)}, encoded
    named = zip(columns.columns, drawn, strict=True)
    return {column.name: values for column, values in named if column.kind != "empty"}, encoded


def with_columns(model: onnx.ModelProto, columns: Columns, outputs: Sequence[str]) -> onnx.ModelProto:
    """A graph of encoded rows as one of the columns they are encoded from."""
    from onnx import compose, helper

    inner = model.graph.input[0].name
    model = compose.add_prefix(model, ENCODED)
    _rename(model.graph, {ENCODED + name: name for name in outputs})
    inputs, nodes = (_by_name if by_name(columns) else _together)(columns, ENCODED + inner)
    graph = model.graph
    rest = list(graph.node)
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend([*nodes, *rest])
    if by_name(columns) and not any(opset.domain == "ai.onnx.ml" for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Give the graph's outputs their names back."""
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def _together(columns: Columns, into: str) -> tuple[list[onnx.ValueInfoProto], list[onnx.NodeProto]]:
    """One input of numbers: NaN becomes the median; then columns are chosen from those and from where NaN was."""
    from onnx import TensorProto, helper

    count, chosen = len(columns.columns), []
    for place, column in enumerate(columns.columns):
        if column.kind == "number":
            chosen += [place, count + place] if column.missing else [place]
    part, both = f"{ENCODED}columns", f"{ENCODED}columns/both"
    nodes = [
        *_filled(columns.columns, NUMBERS, part),
        helper.make_node("Cast", [f"{part}/absent"], [f"{part}/missing"], to=TensorProto.FLOAT),
        helper.make_node("Concat", [part, f"{part}/missing"], [both], axis=1),
        _constant(f"{both}/chosen", np.array(chosen)),
        helper.make_node("Gather", [both, f"{both}/chosen"], [into], axis=1),
    ]
    return [_number_input(NUMBERS, ["rows", count], *columns.columns)], nodes


def _number_input(name: str, shape: list[str | int], *columns: Column) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(_kind(*columns))), shape)


def _filled(columns: Sequence[Column], given: str, part: str) -> list[onnx.NodeProto]:
    """Numbers with the median in place of NaN, float32 and centered, as `part`; where NaN was, as `part`/absent."""
    from onnx import TensorProto, helper

    kind = _kind(*columns)
    nodes = [
        _constant(f"{part}/fill", np.array([column.fill for column in columns], kind)),
        helper.make_node("IsNaN", [given], [f"{part}/absent"]),
        helper.make_node("Where", [f"{part}/absent", f"{part}/fill", given], [f"{part}/filled"]),
    ]
    if kind is np.float32:
        return [*nodes, helper.make_node("Identity", [f"{part}/filled"], [part])]
    return [
        *nodes,
        _constant(f"{part}/offset", np.array([column.offset for column in columns], kind)),
        helper.make_node("Sub", [f"{part}/filled", f"{part}/offset"], [f"{part}/centered"]),
        helper.make_node("Cast", [f"{part}/centered"], [part], to=TensorProto.FLOAT),
    ]


def _by_name(columns: Columns, into: str) -> tuple[list[onnx.ValueInfoProto], list[onnx.NodeProto]]:
    """An input for each column that had values in the fit."""
    from onnx import TensorProto, helper

    inputs, nodes, parts = [], [_constant(f"{ENCODED}axis", np.array([1]))], []
    for place, column in enumerate(columns.columns):
        if column.kind == "empty":
            continue
        text, part = column.kind == "category", f"{ENCODED}column/{place}"
        as_text = helper.make_tensor_value_info(column.name, TensorProto.STRING, ["rows"])
        inputs.append(as_text if text else _number_input(column.name, ["rows"], column))
        nodes += (_category if text else _number)(column, part)
        parts += [part, f"{part}/missing"] if column.missing and not text else [part]
    nodes.append(helper.make_node("Concat", parts, [into], axis=1))
    return inputs, nodes


def _number(column: Column, part: str) -> list[onnx.NodeProto]:
    """(rows,) with NaN to (rows, 1) with the median, and to where it was missing if the fit had such rows."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Unsqueeze", [column.name, f"{ENCODED}axis"], [f"{part}/value"]),
        *_filled([column], f"{part}/value", part),
    ]
    if column.missing:
        nodes.append(helper.make_node("Cast", [f"{part}/absent"], [f"{part}/missing"], to=TensorProto.FLOAT))
    return nodes


def _category(column: Column, part: str) -> list[onnx.NodeProto]:
    """(rows,) text to indicators: of each category, of all others, of missing ones, where the fit has them."""
    from onnx import helper

    categories, synonyms = list(column.categories), column.synonyms
    width = len(column.categories) + column.other + column.missing
    beyond = width  # an index out of range has no indicator
    return [
        helper.make_node(
            "LabelEncoder",
            [column.name],
            [f"{part}/index"],
            domain="ai.onnx.ml",
            keys_strings=[*categories, *synonyms, MISSING],
            values_int64s=[
                *range(len(categories)),
                *map(categories.index, synonyms.values()),
                width - 1 if column.missing else beyond,
            ],
            default_int64=len(categories) if column.other else beyond,
        ),
        _constant(f"{part}/width", np.array([width])),
        _constant(f"{part}/indicator", np.array([0, 1], np.float32)),
        helper.make_node("OneHot", [f"{part}/index", f"{part}/width", f"{part}/indicator"], [part], axis=-1),
    ]


def _constant(name: str, values: Array) -> onnx.NodeProto:
    from onnx import helper, numpy_helper

    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values))
