"""`mixupmp report`: one HTML file that says what was trained, what it is worth, and where not to trust it."""

from mixupmp.web.report.evaluation import Evaluation, ShiftPoint, evaluate
from mixupmp.web.report.page import render_report, write_report
from mixupmp.web.report.runs import keep_evaluation, read_run, report_fits
from mixupmp.web.report.subject import Subject, subject_of

__all__ = [
    "Evaluation",
    "ShiftPoint",
    "Subject",
    "evaluate",
    "keep_evaluation",
    "read_run",
    "render_report",
    "report_fits",
    "subject_of",
    "write_report",
]
