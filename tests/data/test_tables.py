from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from mixupmp import MixupMPClassifier
from mixupmp.core.column_warnings import ColumnWarning
from mixupmp.core.columns import Columns
from mixupmp.core.errors import BadData, UnknownName
from mixupmp.data import load_path

pandas = pytest.importorskip("pandas")

FRAME = pandas.DataFrame(
    {
        "length": np.arange(40.0),
        "species": ["cat", "dog", "cow", "ant"] * 10,
        "count": np.arange(40) % 7,
        "wild": [True, False] * 20,
    }
)


def written(path, frame=FRAME):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        text = frame.to_csv(index=False, sep="\t" if ".tsv" in path.name else ",")
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["pets.csv", "pets.tsv", "pets.csv.gz", "pets.parquet"])
def test_a_table_by_its_label_column(tmp_path, name):
    dataset = load_path(written(tmp_path / name), label="species", seed=2)
    assert dataset.name == "pets"
    assert dataset.classes == ("ant", "cat", "cow", "dog")
    assert dataset.test.labels.bincount().tolist() == [2, 2, 2, 2]
    for part in (dataset.train, dataset.test):
        assert part.inputs.dtype == torch.float32
        at = part.inputs[:, 0].long()
        assert [dataset.classes[k] for k in part.labels] == [FRAME["species"][int(k)] for k in at]
        assert torch.equal(part.inputs[:, 1].long(), at % 7)
        assert torch.equal(part.inputs[:, 2], 1 - (at % 2).float())


def test_the_last_column_is_the_label_unless_named(tmp_path):
    dataset = load_path(written(tmp_path / "pets.csv", FRAME.drop(columns="species")))
    assert dataset.classes == ("False", "True")
    assert dataset.train.inputs.shape[1] == 2


def with_value(column, row, value):
    frame = FRAME.copy()
    frame[column] = frame[column].astype(object)
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize("name", ["pets.csv", "pets.parquet"])
@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.assign(color="red", length=FRAME["length"].replace(3, np.inf)), "'length' has infinity.* in row 3"),
        (FRAME.assign(length=FRAME["length"].replace(3, np.inf)), "column .length. has infinity.* row 3"),
        (with_value("species", 5, None), "species is empty in row 5"),
        (FRAME.assign(species="cat"), "1 class"),
        (FRAME[["species"]], "1 column:"),
        (FRAME.iloc[:0], "0 rows"),
    ],
)
def test_tables_that_cannot_be_used_are_named(tmp_path, name, frame, message):
    path = written(tmp_path / name, frame)
    with pytest.raises(BadData, match=message):
        load_path(path, label="species")


MIXED = FRAME.assign(
    length=FRAME["length"].where(FRAME["length"] % 4 != 3),
    color=["red", None, "blue", "red"] * 10,
    label=FRAME["species"],
)


@pytest.mark.parametrize("name", ["pets.csv", "pets.parquet"])
def test_categories_and_missing_values_are_encoded_as_the_estimators_do(tmp_path, name):
    dataset = load_path(written(tmp_path / name, MIXED.drop(columns="species")), seed=2)
    assert [column.name for column in dataset.encoder.columns] == ["length", "count", "wild", "color"]
    features = MIXED.drop(columns=["species", "label"])
    assert torch.equal(dataset.encoder(features), dataset.encoder(features.to_dict("records")))
    kept = dataset.encoder(features)[:, 1:]  # without the one median, which is of the training rows
    assert sorted(map(tuple, kept.tolist())) == sorted(
        tuple(row) for part in (dataset.train, dataset.test) for row in part.inputs[:, 1:].tolist()
    )
    model = MixupMPClassifier(ratio=1.0, epochs=1, members=1, calibrate=False, random_state=0)
    with pytest.warns(UserWarning, match="train longer"):
        model.fit(features, MIXED["label"])
    assert [c.categories for c in model.layout_.columns] == [c.categories for c in dataset.encoder.columns]


def test_other_rows_are_encoded_as_those_of_a_fit(tmp_path):
    columns = load_path(written(tmp_path / "pets.csv", MIXED.drop(columns="species"))).encoder
    other = MIXED[["label", "color", "wild", "count", "length"]].assign(color="green")
    with pytest.warns(ColumnWarning, match="'color' has the new category 'green'"):
        found = load_path(written(tmp_path / "other.csv", other), label="label", encoder=columns)
    assert found.encoder is columns
    with pytest.raises(BadData, match=r"other\.csv: the column 'wild' is not there"):
        load_path(written(tmp_path / "other.csv", other.drop(columns="wild")), label="label", encoder=columns)
    with pytest.raises(BadData, match="4 values in this order"):
        columns([[1.0, 2.0]])


def test_a_number_that_is_no_class_is_named(tmp_path):
    frame = FRAME.drop(columns="species").assign(price=FRAME["length"] + 0.25)
    with pytest.raises(BadData, match=r"found the number 0\.25.*MixupMPRegressor"):
        load_path(written(tmp_path / "pets.csv", frame))


def test_an_unknown_column_gets_the_nearest_name(tmp_path):
    with pytest.raises(UnknownName, match="Did you mean 'species'"):
        load_path(written(tmp_path / "pets.csv"), label="specie")


def test_a_parquet_file_cut_short_is_named(tmp_path):
    path = written(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BadData, match=r"a\.parquet cannot be read as a table"):
        load_path(path)


@pytest.mark.parametrize("content", [b"", b'a,b\n1,"2\n', b"a,b\n1,2\n3,4,5,6\n", b"\xff\xfe\x00\x01,\n"])
def test_files_that_are_no_tables_are_named(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"a\.csv"):
        load_path(path)


@pytest.mark.parametrize("name", ["time", "0"])
def test_numbers_far_from_zero_keep_their_distances(tmp_path, name):
    time = 1_700_000_000 + np.arange(40)
    pandas.DataFrame({name: time, "label": np.arange(40) % 2}).to_csv(tmp_path / "t.csv", index=False)
    found = load_path(tmp_path / "t.csv", seed=1)
    assert len(torch.unique(torch.cat([found.train.inputs, found.test.inputs]))) == 40
    np.savez(tmp_path / "t.npz", X=time[:, None].astype(float), y=np.arange(40) % 2)
    again = load_path(tmp_path / "t.npz", seed=1, encoder=found.encoder)
    assert torch.equal(again.test.inputs, found.test.inputs)
    with pytest.warns(ColumnWarning, match="column '0' has 40 distinct values, of which 1 are left"):
        load_path(tmp_path / "t.npz")


@pytest.mark.parametrize("label", [None, "species"])
def test_another_separator_is_named(tmp_path, label):
    FRAME.to_csv(tmp_path / "pets.csv", index=False, sep=";")
    with pytest.raises(BadData, match=r"40 rows and 1 column: .* Is ';' its separator\? Save it with commas"):
        load_path(tmp_path / "pets.csv", label=label)


def test_dates_as_text_are_named(tmp_path):
    days = ["2024-01-01", "2024-01-02"] * 20
    with pytest.warns(ColumnWarning, match="column 'day' has dates as text"):
        load_path(written(tmp_path / "pets.csv", FRAME.assign(day=days)), label="species")


def test_numbers_that_become_categories_by_a_few_other_values_are_remarked_on(tmp_path):
    age = ["?" if row in (3, 7) else "unknown" if row > 35 else str(20 + row % 5) for row in range(40)]
    frame = pandas.DataFrame({"age": age, "doors": ["2", "4", "5more", "more"] * 10, "label": [0, 1] * 20})
    frame.loc[0, "age"] = None
    with pytest.warns(ColumnWarning) as said:
        dataset = load_path(written(tmp_path / "people.csv", frame), seed=1)
    (text,) = [str(one.message) for one in said if "taken as categories" in str(one.message)]
    assert text.startswith("column 'age' is taken as categories, because not all values are numbers")
    assert "of 31 are '?', 'unknown'. Where" in text
    assert "leave the cell empty" in text
    assert isinstance(dataset.encoder, Columns)
    assert dataset.encoder.columns[0].kind == "category"
    Columns.of(frame[["age"]].astype("category"))  # which was chosen, and is not remarked on
    Columns.of(frame[["age"]].iloc[10:30])  # numbers alone, as text
