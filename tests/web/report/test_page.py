from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from mixupmp import Recipe, deep_ensemble, mc_dropout, mixup_ensemble, mixup_mp, plan_for
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.methods import Method
from mixupmp.store.record import read_record
from mixupmp.web.png import is_wave, png, wave_picture
from mixupmp.web.report import EvaluatedRun, Evaluation, ShiftPoint, render_report, write_report
from mixupmp.web.report.snippet import snippet

from .answers import made_up_run, picture_dataset, two_runs


class Outline(HTMLParser):
    """Checks that elements nest, and keeps what the tests ask about."""

    VOID = frozenset({"meta", "link", "img", "input", "br", "hr", "col", "wbr"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [given for name, given in self.elements if name == tag]


def test_everything_is_in_the_file_and_every_picture_has_words() -> None:
    page = render_report(two_runs())
    outline = Outline(page)
    for tag, attribute in (("img", "src"), ("link", "href"), ("script", "src")):
        assert all((given.get(attribute) or "data:").startswith("data:") for given in outline.all(tag))
    charts = [given for given in outline.all("svg") if given.get("aria-hidden") != "true"]
    assert len(charts) > 8
    assert all(given["role"] == "img" and len(given["aria-label"] or "") > 20 for given in charts)
    assert all(given.get("alt") for given in outline.all("img"))
    targets = {given["id"] for _, given in outline.elements if "id" in given}
    links = {given["href"] or "" for given in outline.all("a") if "download" not in given}
    assert links <= {f"#{name}" for name in targets}
    assert all((given["href"] or "").startswith("data:") for given in outline.all("a") if "download" in given)


def test_class_names_are_text_and_never_markup() -> None:
    page = render_report(two_runs())
    assert "<i>" not in page  # the class is called <i>&
    assert "&lt;i&gt;&amp;" in page
    hostile = made_up_run(title="</script><script>alert(1)</script>")
    assert "<script>alert" not in render_report([hostile])


def test_it_says_in_words_what_the_numbers_are() -> None:
    members = torch.tensor([[0.9, 0.1]] * 100)[None]
    labels = torch.tensor([0] * 84 + [1] * 16)
    shown = torch.empty(0, dtype=torch.int64)
    evaluation = Evaluation("coins", ("heads", "tails"), members, labels, shown, torch.empty(0), "rows")
    plain = EvaluatedRun("Toss", made_up_run().record, evaluation)
    page = render_report([plain])
    assert "When it says 90%, it is right 84% of the time" in page
    assert "is over-confident" in page


@pytest.mark.parametrize(
    "method", [deep_ensemble(2), mixup_mp(0.1, 0.4), mixup_mp(float("inf"), 1.0), mixup_ensemble(2.0), mc_dropout(8)]
)
def test_the_snippet_makes_the_same_plan(method: Method) -> None:
    dataset = picture_dataset()
    recipe = Recipe(epochs=2, batch_size=16, schedule="steps", milestones=(1,), weight_decay=0.0)
    plan = plan_for(dataset, method, "cnn", recipe, seed=7)
    text = snippet(read_record(plan.document()), "made-up")
    assert text is not None
    made: dict[str, object] = {}
    code = text.replace('mixupmp.data.load("made-up")', "dataset").replace("mixupmp.data.load('made-up')", "dataset")
    exec(code.rpartition("\n")[0], {"dataset": dataset}, made)  # all but the fit itself
    again = made["plan"].document()  # type: ignore[attr-defined]
    assert again == plan.document()


def test_runs_of_one_name_are_told_apart() -> None:
    page = render_report([made_up_run(), made_up_run(seed=3)])
    assert "Deep ensemble (1)" in page
    assert "Deep ensemble (2)" in page


def test_shift_curves_start_from_the_clean_test_set() -> None:
    plain = made_up_run()
    scores = {"acc": 0.5, "nll": 1.25, "ece": 0.25}
    points = tuple(ShiftPoint("fog", severity, scores) for severity in (1, 2))
    old = plain.evaluation
    shifted = Evaluation(
        old.dataset, old.classes, old.members, old.labels, old.shown, old.inputs, old.fingerprint, points
    )
    page = render_report([EvaluatedRun(plain.title, plain.record, shifted)])
    assert "NLL by severity" in page
    assert "At severity 2" in page
    assert 'id="shift"' not in render_report([plain])


def test_other_test_rows_are_not_paired() -> None:
    first, second = two_runs()
    other = Evaluation(**{**second.evaluation.__dict__, "fingerprint": "others"})
    page = render_report([first, EvaluatedRun(second.title, second.record, other)])
    assert "cannot be paired" in page
    assert "Difference from" not in page


def test_a_missing_member_is_said() -> None:
    plain = made_up_run()
    page = render_report([EvaluatedRun(plain.title, plain.record, plain.evaluation, members="3 of 4")])
    assert "Only 3 of 4 networks are left" in page


def test_a_posterior_with_no_story_can_be_reported() -> None:
    record = replace(made_up_run().record, recipe=None, rows=None, sha256=None, versions={})
    bare = EvaluatedRun("Mine", record, made_up_run().evaluation)
    assert "Mine" in render_report([bare])


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="at least one run"):
        render_report([])
    with pytest.raises(InvalidArgument, match=r"\.html"):
        write_report([made_up_run()], tmp_path / "report.pdf")
    odd = made_up_run()
    fewer = Evaluation(**{**odd.evaluation.__dict__, "classes": ("a", "b", "c")})
    with pytest.raises(BadData, match="different classes"):
        render_report([odd, EvaluatedRun("x", odd.record, fewer)])


def test_ten_thousand_rows_make_a_small_page_soon(tmp_path: Path) -> None:
    runs = two_runs(rows=10_000)
    started = time.perf_counter()
    path = write_report(runs, tmp_path / "deep" / "report.html")
    assert time.perf_counter() - started < 10
    assert path.stat().st_size < 1_000_000


def test_png_holds_the_pixels() -> None:
    pillow = pytest.importorskip("PIL.Image")
    import io

    gray = torch.arange(12, dtype=torch.uint8).view(1, 3, 4)
    color = torch.randint(0, 256, (3, 5, 2), dtype=torch.uint8)
    for image in (gray, color):
        shown = torch.tensor(list(pillow.open(io.BytesIO(png(image))).convert("RGB").tobytes())).view(
            image.shape[1], image.shape[2], 3
        )
        assert torch.equal(shown.permute(2, 0, 1).to(torch.uint8), image.expand(3, -1, -1))
    stretched = png(torch.linspace(-2, 2, 4).view(1, 2, 2))
    assert pillow.open(io.BytesIO(stretched)).getextrema() == (0, 255)


def test_every_chart_keeps_its_marks_inside() -> None:
    page = render_report(two_runs())
    for chart in re.findall(r'<svg viewBox="0 0 380 (\d+)"(.*?)</svg>', page, flags=re.S):
        height = float(chart[0])
        for x, y in re.findall(r'c?x="(-?[\d.]+)" c?y="(-?[\d.]+)"', chart[1]):
            assert -5 <= float(x) <= 385
            assert -5 <= float(y) <= height + 5


def test_runs_of_several_seeds_are_summed_up() -> None:
    runs = [made_up_run(seed=seed) for seed in (0, 1, 2)]
    runs = [replace(run, record=replace(run.record, seed=seed)) for seed, run in enumerate(runs)]
    page = render_report([*runs, made_up_run(mixup_mp(1.0))])
    assert "Deep ensemble, 3 seeds" in page
    assert "MixupMP r=1 α=2, 1" not in page
    accuracies = [100 * run.metrics.value("acc") for run in runs]
    assert f"{sum(accuracies) / 3:.2f} <small>± " in page
    assert "Mean over seeds" not in render_report(two_runs())


@pytest.mark.parametrize(
    ("method", "members", "color"),
    [
        (deep_ensemble(4), 4, "de"), (mixup_mp(0.0), 4, "de"), (mixup_mp(0.0), 1, "nn"), (mixup_mp(1.0), 4, "mp"),
        (mixup_mp(float("inf")), 4, "me"), (mc_dropout(4), 4, "mc"),
    ],
)  # fmt: skip
def test_a_method_has_its_own_color(method: Method, members: int, color: str) -> None:
    assert made_up_run(method, members=members).color == color


def test_a_wave_is_drawn_between_its_least_and_greatest_values() -> None:
    silent = torch.zeros(1, 960)
    loud = torch.where(torch.arange(960) < 480, torch.tensor([1.0, -1.0]).repeat(480), 0.0).view(1, -1)
    assert is_wave(loud)
    assert not is_wave(torch.zeros(1, 8, 8))
    ink = (wave_picture(loud)[0] < 255).float()
    assert ink[:, :48].mean() == 1
    assert 0 < ink[:, 48:].mean() < 0.05  # a line
    assert (wave_picture(silent) < 255).any(1).all()
