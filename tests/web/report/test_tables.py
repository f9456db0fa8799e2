from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from mixupmp import Recipe, deep_ensemble, mixup_mp, plan_for
from mixupmp.cli import main
from mixupmp.decide.detect import PROBABILITY_SCORES, Detector
from mixupmp.metrics import METRICS, Metric
from mixupmp.train.run import fit
from mixupmp.web.report import ShiftPoint, render_report, runs, write_tables
from mixupmp.web.report.statistics import paired_difference
from mixupmp.web.report.table import ReportCell, ReportTable
from mixupmp.web.report.table_contents import detection_table

from .answers import made_up_run, picture_dataset, two_runs


def test_csv_has_a_column_for_standard_errors_and_latex_escapes_and_bolds() -> None:
    rows = [
        [ReportCell("a_b & 50%"), ReportCell("−1.20", "0.10", "best")],
        [ReportCell("c, d"), ReportCell("2.00", "0.20")],
    ]
    table = ReportTable("t", "A table", ("Run", "ACC (%)"), rows)
    assert list(csv.reader(table.csv().splitlines())) == [
        ["Run", "ACC (%)", "ACC (%) standard error"],
        ["a_b & 50%", "-1.20", "0.10"],
        ["c, d", "2.00", "0.20"],
    ]
    latex = table.latex()
    assert r"a\_b \& 50\% & \textbf{$-$1.20} {\scriptsize $\pm$ 0.10} \\" in latex
    assert r"\begin{tabular}{lr}" in latex


def test_every_table_is_written_and_has_the_numbers_of_the_page(tmp_path: Path) -> None:
    compared = [*two_runs(), made_up_run(mixup_mp(0.1), seed=5)]
    paths = write_tables(compared, tmp_path / "tables")
    assert {"metrics.csv", "metrics.tex", "differences.csv", "classes-3.tex"} <= {path.name for path in paths}
    assert len({path.name for path in paths}) == len(paths)
    lines = list(csv.DictReader((tmp_path / "tables" / "metrics.csv").read_text().splitlines()))
    assert len(lines) == 3
    for line, run in zip(lines, compared, strict=True):
        assert float(line["ACC (%)"]) == pytest.approx(100 * run.metrics.value("acc"), abs=0.005)
        assert f"{line['NLL']}" in render_report(compared)


def test_a_severity_has_its_own_column_where_others_were_left_out(tmp_path: Path) -> None:
    compared = two_runs()
    for k, severities in enumerate(((1, 3, 5), (3,))):
        points = tuple(ShiftPoint("fog", s, {"acc": 0.1 * s, "nll": 1.0, "ece": 0.2}) for s in severities)
        compared[k] = replace(compared[k], evaluation=replace(compared[k].evaluation, shifts=points))
    write_tables(compared, tmp_path)
    first, second = csv.DictReader((tmp_path / "shift-acc.csv").read_text().splitlines())
    assert (first["1"], first["3"], first["5"]) == ("10%", "30%", "50%")
    assert (second["1"], second["3"], second["5"]) == ("–", "30%", "–")


def test_one_best_is_bold_and_equals_of_it_are_too() -> None:
    good, same, bad = made_up_run(), made_up_run(), made_up_run(seed=1)
    bad.evaluation.members[:] = 1 / 3
    page = render_report([good, same, bad])
    accuracy = METRICS["acc"].format(good.metrics.value("acc"))
    assert page.count(f"<b>{accuracy}</b>") == 2


def test_a_metric_of_the_catalog_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric("top_confidence", "Top", "top confidence", per_row=lambda p, y: p.amax(1))
    monkeypatch.setitem(METRICS, metric.name, metric)
    assert '<th scope="col" class="number">Top</th>' in render_report(two_runs())


def test_a_metric_that_is_a_function_of_means_has_a_standard_error_and_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The root of the Brier score: its error by resampled rows is that of the mean, by the slope of the root."""
    root = Metric(
        "root",
        "Root",
        "root",
        False,
        per_row=lambda p, y: METRICS["brier"].per_row(p, y)[:, None],  # type: ignore[misc]
        of_mean=lambda mean: mean.squeeze(-1).sqrt(),
    )
    monkeypatch.setitem(METRICS, root.name, root)
    runs = two_runs()
    assert '<th scope="col" class="number">Root</th>' in render_report(runs)
    first, second = (run.metrics for run in runs)
    brier = first.summaries["brier"]
    assert first.value("root") == pytest.approx(brier.mean**0.5)
    assert first.summaries["root"].standard_error == pytest.approx(
        brier.standard_error / (2 * brier.mean**0.5), rel=0.25
    )
    assert paired_difference("root", first, second).mean == pytest.approx(first.value("root") - second.value("root"))


def test_the_command_writes_tables_and_loads_a_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, loaded = tmp_path / "run", []
    words = ["fit", "--out", str(folder), "--network", "mlp", "--rows", "60", "--epochs", "1", "--members", "2"]
    load = runs.load
    monkeypatch.setattr(runs, "load", lambda path: loaded.append(path) or load(path))
    page, tables = tmp_path / "report.html", tmp_path / "tables"
    asked = ["report", str(folder), "--data", "digits", "--out", str(page), "--tables", str(tables), "--json"]
    for command in (words, asked):
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(command)
        assert left.value.code == 0
    assert len(loaded) == 1
    assert str(tables / "metrics.csv") in json.loads(capsys.readouterr().out)["tables"]


def test_a_fit_in_memory_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "load", lambda path: pytest.fail("it is in memory"))
    dataset = picture_dataset()
    plan = plan_for(dataset, deep_ensemble(2), "mlp", Recipe(epochs=1))
    assert runs.report_fits([("DE", fit(plan, engine="inline"), None)], dataset, tmp_path / "r.html").exists()


def test_the_flagged_test_rows_are_counted() -> None:
    run = made_up_run()
    assert detection_table([run]) is None
    entropies = PROBABILITY_SCORES["entropy"](run.evaluation.members.double())
    detector = Detector({"entropy": entropies.sort().values}, refitted=True)
    table = detection_table([replace(run, detector=detector)])
    assert table is not None
    lines = [[cell.text for cell in line] for line in table.cells()]
    assert [line[1:4] for line in lines] == [["300", "1", "0.7"], ["300", "5", "4.7"], ["300", "10", "9.7"]]
    flagged = entropies > detector.threshold(0.1)
    right = run.evaluation.probabilities.argmax(1) == run.evaluation.labels
    assert lines[2][4] == f"{100 * float(right[flagged].double().mean()):.1f}"
    assert "Rows unlike the training rows" in render_report([replace(run, detector=detector)])
