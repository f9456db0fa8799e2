"""`mixupmp report`: one HTML file that says what was trained, what it is worth, and where not to trust it."""

from mixupmp.web.report.evaluated import EvaluatedRun, evaluated_run
from mixupmp.web.report.evaluation import Evaluation, ShiftPoint, evaluate
from mixupmp.web.report.page import render_report, write_report, write_tables
from mixupmp.web.report.runs import keep_evaluation, read_run, report_fits

__all__ = [
    "EvaluatedRun",
    "Evaluation",
    "ShiftPoint",
    "evaluate",
    "evaluated_run",
    "keep_evaluation",
    "read_run",
    "render_report",
    "report_fits",
    "write_report",
    "write_tables",
]
