"""The offline page and the pages of the repository: whole by themselves, complete, and text where text is meant."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakbound.claims.claims import evaluate
from leakbound.claims.scoreboard import overall
from leakbound.config import reading
from leakbound.config.catalogue import ClaimConfig, FigureConfig
from leakbound.config.data import DatasetConfig
from leakbound.config.studies import StudyConfig
from leakbound.config.whole import Config
from leakbound.figures.drawing import figure_rows
from leakbound.figures.report import Report, ReportFigure, page
from leakbound.figures.report.drawing import HEIGHT, WIDTH, picture
from leakbound.figures.report.overview import category, families, levels
from leakbound.figures.report.pages import Kept, figures_page, readme_scoreboard, reference_of_readme
from leakbound.figures.report.planes import planes

ROOT = Path(__file__).parents[2]
EVIL = '<script>alert("x")</script>'
VOID = {"meta", "link", "img", "br", "input"}
SHOWN = ("fig09", "fig10", "fig10_gain", "fig11", "fig15", "fig15_gain", "fig16")


class Page(HTMLParser):
    """Elements of a page with their attributes; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice: {names}"
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> inside <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def catalogue() -> dict[str, FigureConfig]:
    found = reading.load_catalogue(ROOT / "config" / "figures", reading.quick())
    return {figure.id: figure for figure in found.figures if figure.paper == "tan2024"}


@pytest.fixture(scope="module")
def config() -> Config:
    study = StudyConfig(
        datasets=("digits",), models=("lenet",), defenses={"none": (), "natural": (1.0, 4.0)}, rounds=(600,)
    )
    return Config(datasets={"digits": DatasetConfig(members=400)}, studies={"comparison": study})


def drawn(figure: FigureConfig, table: pd.DataFrame) -> ReportFigure:
    return ReportFigure(figure, f"Caption of {figure.id}.", b"<svg/>", b"PNG", figure_rows(figure, table))


@pytest.fixture(scope="module")
def report(catalogue, config, study) -> Report:
    figures = [drawn(catalogue[name], study) for name in SHOWN]
    claims = pd.concat([evaluate(figure.config, study, alpha=0.05) for figure in figures], ignore_index=True)
    provenance = {
        "commits": {"abc123": 7},
        "dirty": True,
        "config_hash": "c0ffee",
        "devices": {"cpu": 7},
        "diverged_replicas": 2,
        "data": {"digits": "d" * 64},
        "versions": {"torch": "2.13.0"},
        "boxes": {"train": {"jobs": 7, "seconds": 12.3, "cpu_seconds": 11.0, "max_rss_mib": 800.0}},
    }
    runs = study["run"].unique()
    links = {run: f"http://127.0.0.1:5000/#/experiments/1/runs/{index}" for index, run in enumerate(runs)}
    return Report(config, figures, claims, provenance, {"runs": len(runs)}, links)


@pytest.fixture(scope="module")
def made(report) -> Page:
    return Page(page(report))


def test_page_asks_nobody_for_anything(report):
    text = page(report)
    made = Page(text)
    loaded = [element.get(name) for _, element in made.elements for name in ("src", "data", "poster", "srcset")]
    assert all(address is None or address.startswith("data:image/") for address in loaded)
    assert [link["href"] for link in made.all("link")] == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in made.all("meta"))


def test_every_name_within_the_page_is_there_once_and_every_link_to_one_leads_somewhere(made):
    names = [element["id"] for _, element in made.elements if "id" in element]
    assert len(names) == len(set(names))
    inside = {link["href"][1:] for link in made.all("a") if link["href"].startswith("#")}
    assert inside <= set(names)
    pointed = {element[key] for _, element in made.elements for key in ("aria-labelledby",) if key in element}
    assert pointed <= set(names)


def test_page_has_every_figure_with_its_picture_and_every_claim_with_its_verdict(report, made):
    assert {f"figure-tan2024-{name}" for name in SHOWN} <= {article["id"] for article in made.all("article")}
    sources = [image["src"].partition("base64,")[2] for image in made.all("img")]
    assert [base64.b64decode(source) for source in sources] == [b"<svg/>"] * len(SHOWN)
    assert all(image["alt"] for image in made.all("img"))
    for claim in overall(report.claims).itertuples():
        assert made.text.count(claim.text) >= 2  # on the scoreboard and at its figure
    listed = [row["data-verdict"] for row in made.all("tr") if "data-verdict" in row]
    assert listed == overall(report.claims)["verdict"].tolist()


def test_drawing_that_is_too_large_is_shown_as_a_picture(catalogue, study):
    large = ReportFigure(catalogue["fig09"], "", b" " * 600_000, b"PNG", study)
    assert large.source == f"data:image/png;base64,{base64.b64encode(b'PNG').decode()}"


def test_page_states_where_results_come_from(made):
    for fact in ("abc123", "with uncommitted changes", "c0ffee", "d" * 64, "torch 2.13.0", "2: left out of all means"):
        assert fact in made.text


def test_every_point_of_a_plane_leads_to_its_run_and_says_its_numbers(report, made, study):
    points = made.of_class("point")
    found = [plane for figure in report.figures for plane in planes(figure.config, figure.rows)]
    expected = [point for plane in found for point in plane.points]
    assert [point["href"] for point in points] == [report.links[point.run] for point in expected]
    assert all(link["rel"] == "noopener" for link in points)
    for shown, point in zip(points, expected, strict=True):
        assert point.run in shown["aria-label"]
        assert f"{point.x:.4g}" in shown["aria-label"]
        assert len(json.loads(shown["data-seeds"])) == 3


def test_runs_that_are_not_in_mlflow_are_points_without_a_link(report):
    made = Page(page(Report(report.config, report.figures, report.claims, report.provenance)))
    assert {point["tabindex"] for point in made.of_class("point")} == {"0"}
    assert not [link for link in made.all("a") if "point" in (link.get("class") or "")]
    assert "leakbound sync" in made.text


def test_names_are_text_and_never_markup(report, study):
    renamed = study.assign(dataset=f"d{EVIL}", run=study["run"] + f"'{EVIL}")
    options = {"x": {"metric": "gdc"}, "y": {"metric": "test_accuracy"}, "x_label": EVIL, "diagonal": True}
    claim = ClaimConfig(
        id="evil", text=f"{EVIL}.", test="increasing", options={"where": {"metric": "gdc", "defense": "natural"}}
    )
    figure = FigureConfig(
        id="evil", paper="beyond", title=EVIL, study="x", plot="plane", caption=EVIL, options=options, claims=(claim,)
    )
    evil = ReportFigure(figure, EVIL, b"<svg/>", b"", renamed)
    provenance = {"commits": {EVIL: 1}, "versions": {EVIL: EVIL}, "data": {"digits": EVIL}}
    links = {str(run): f'http://x/"{EVIL}' for run in renamed["run"].unique()}
    claims = evaluate(figure, renamed, alpha=0.05)
    made = Page(page(Report(report.config, [evil], claims, provenance, {EVIL: 1}, links)))
    assert len(made.all("script")) == 1
    assert EVIL in made.text
    assert made.of_class("point")[0]["data-run"].endswith(f"'{EVIL}")


def test_configuration_without_figures_and_claims_has_a_page(config):
    claims = pd.DataFrame(columns=["paper", "figure", "claim", "dataset", "model", "verdict"])
    made = Page(page(Report(config, [], claims, {})))
    assert "No figure of this configuration makes a claim" in made.text


def test_equal_reports_give_equal_pages(report):
    assert page(report) == page(report)


# -- planes --------------------------------------------------------------------------------------------------------


def test_plane_has_the_mean_of_each_run_and_its_seeds(catalogue, study):
    (plane,) = planes(catalogue["fig15"], figure_rows(catalogue["fig15"], study))
    point = next(point for point in plane.points if point.defense == "white" and point.name == "4")
    own = study[(study["defense"] == "white") & (study["level"] == 4.0)]
    accuracy = own[(own["metric"] == "test_accuracy") & (own["source"] == "training")]
    assert point.y == pytest.approx(accuracy["value"].mean())
    assert [seed.y for seed in point.seeds] == accuracy.sort_values("replica")["value"].tolist()
    names = [point.name for line in plane.lines for point in line if point.defense == "natural"]
    assert names == ["1", "4", "16"]


def test_there_is_a_plane_for_each_dataset_and_network(catalogue, make_study):
    rows = make_study(datasets=("digits", "mnist"), models=("lenet", "vgg16"), replicas=1)
    found = planes(catalogue["fig16"], figure_rows(catalogue["fig16"], rows))
    assert [(plane.dataset, plane.model) for plane in found] == [
        ("digits", "lenet"),
        ("digits", "vgg16"),
        ("mnist", "lenet"),
        ("mnist", "vgg16"),
    ]


def test_figures_of_another_kind_and_rows_without_numbers_give_no_plane(catalogue, study):
    assert planes(catalogue["fig09"], study) == []
    assert planes(catalogue["fig15"], study.assign(value=np.nan)) == []


def test_all_marks_lie_within_the_picture_in_the_order_of_their_values(catalogue, study):
    (plane,) = planes(catalogue["fig11"], figure_rows(catalogue["fig11"], study))
    shown = picture(plane)
    marks = [mark for line in shown.lines for mark in line.marks]
    places = [place for mark in marks for place in mark.seeds]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    by_x = sorted(marks, key=lambda mark: mark.value.x)
    by_y = sorted(marks, key=lambda mark: mark.value.y)
    assert [mark.x for mark in by_x] == sorted(mark.x for mark in marks)
    assert [mark.y for mark in by_y] == sorted((mark.y for mark in marks), reverse=True)
    texts = [tick.text for tick in shown.x_ticks]
    assert len(texts) == len(set(texts)) >= 3
    assert shown.start is not None


@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.003, 2.5, 4e5])
def test_ticks_tell_values_apart_on_any_scale(catalogue, study, spread):
    rows = figure_rows(catalogue["fig15"], study)
    accuracy = rows["metric"] == "test_accuracy"
    rows = rows.assign(value=np.where(accuracy, rows["value"] * spread, rows["value"]))
    (plane,) = planes(catalogue["fig15"], rows)
    texts = [tick.text for tick in picture(plane).y_ticks]
    assert len(texts) == len(set(texts)) >= 2


# -- order ---------------------------------------------------------------------------------------------------------


def test_twins_stand_behind_their_figure(catalogue):
    figures = [catalogue[name] for name in ("fig15", "fig16", "fig15_gain", "fig10_gain", "fig10")]
    assert families(figures) == [
        ["tan2024/fig15", "tan2024/fig15_gain"],
        ["tan2024/fig16"],
        ["tan2024/fig10", "tan2024/fig10_gain"],
    ]


def test_categories_and_levels_are_words(catalogue):
    assert category(catalogue["fig15"]) == "Study: comparison"
    assert category(catalogue["fig03"]) == "Closed forms and pictures"
    assert levels({"none": (), "natural": (50.0, 0.5)}) == "undefended; natural 50, 0.5"


# -- pages of the repository ---------------------------------------------------------------------------------------


def test_page_of_figures_shows_what_is_kept_and_lists_the_rest(catalogue, study):
    shown, other = catalogue["fig15"], catalogue["fig09"]
    rows = figure_rows(shown, study)
    kept = Kept("small", "../results/reference/small", rows, evaluate(shown, study, alpha=0.05))
    text = figures_page([other, shown], {"tan2024/fig15": kept})
    assert f"![{shown.title}](../results/reference/small/figures/tan2024/fig15.png)" in text
    assert shown.claims[0].text in text
    assert "natural 1, 4, 16" in text
    assert "Seeds: 3" in text
    assert f"- fig09: {other.title} (not drawn yet)" in text
    anchors = set(re.findall(r'<a id="([^"]+)">', text))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


def test_scoreboard_of_the_readme_is_replaced_between_its_markers(report):
    readme = "# x\n<!-- scoreboard of quick -->\nold\n<!-- end of scoreboard -->\nrest | old\n"
    assert reference_of_readme(readme) == "quick"
    text = readme_scoreboard(readme, "quick", report.claims)
    verdicts = overall(report.claims)["verdict"]
    assert f"| all | {(verdicts == 'reproduced').sum()} |" in text
    assert text.startswith("# x\n<!-- scoreboard of quick -->\n| paper |")
    assert text.endswith("<!-- end of scoreboard -->\nrest | old\n")
    assert readme_scoreboard(text, "quick", report.claims) == text
    with pytest.raises(ValueError, match="end of scoreboard"):
        readme_scoreboard(readme.replace("end of", "end"), "quick", report.claims)
    assert reference_of_readme("# x\n") is None
