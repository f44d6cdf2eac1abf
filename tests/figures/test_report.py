"""The offline page and the pages of the repository: whole by themselves, complete, and text where text is meant."""

import base64
import dataclasses
import math
import re
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from figure_pages import KeptFigure, figures_pages
from leakbound_lab.claims.scoreboard import overall
from leakbound_lab.claims.selection import select
from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.federated import FederatedConfig
from leakbound_lab.config.studies import StudyConfig
from leakbound_lab.config.whole import Config
from leakbound_lab.figures.plots.planes import numbers
from leakbound_lab.figures.report.opening import outcome_lines, sentences
from leakbound_lab.figures.report.overview import datasets
from leakbound_lab.figures.report.page import Report, ReportFigure, in_words, page
from leakbound_lab.steps.plot import write_figure
from verdicts import entry, evaluate
from whole_catalogue import whole_catalogue

ROOT = Path(__file__).parents[2]
EVIL = '<script>alert("x")</script>'
VOID = {"meta", "link", "img", "br", "input"}
PLANES = ("fig11", "fig15", "fig15_gain", "fig16")
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
    return {figure.id: figure for figure in whole_catalogue().figures if figure.paper == "tan2024"}


@pytest.fixture(scope="module")
def config() -> Config:
    study = StudyConfig(
        datasets=("digits",), models=("lenet",), defenses={"none": (), "natural": (1.0, 4.0)}, rounds=(600,)
    )
    return Config(datasets={"digits": DatasetConfig(members=400)}, studies={"comparison": study})


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Figures as the page gets them; only planes are drawn."""

    def made(figure: FigureConfig, table: pd.DataFrame) -> ReportFigure:
        rows, drawing = select(table, figure.select), b"<svg/>"
        if figure.plot == "plane":
            stem = tmp_path_factory.mktemp("drawn") / "fig"
            write_figure(figure, rows, stem)
            drawing = stem.with_suffix(".svg").read_bytes()
        return ReportFigure(figure, f"Caption of {figure.id}.", drawing, rows)

    return made


@pytest.fixture(scope="module")
def report(catalogue, config, study, drawn) -> Report:
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
        "steps": {"train": {"jobs": 7, "seconds": 12.3, "cpu_seconds": 11.0, "max_rss_mib": 800.0}},
    }
    runs = study["run"].unique()
    links = {run: f"http://127.0.0.1:5000/#/experiments/1/runs/{index}" for index, run in enumerate(runs)}
    return Report(config, figures, claims, provenance, links, {"capacity": study})


@pytest.fixture(scope="module")
def made(report) -> Page:
    return Page(page(report))


def test_page_asks_nobody_for_anything(report):
    text = page(report)
    made = Page(text)
    loaded = [element.get(name) for _, element in made.elements for name in ("src", "data", "poster", "srcset")]
    assert all(address is None or address.startswith("data:image/") for address in loaded)
    assert [link["href"] for link in made.all("link")] == ["data:,"]
    assert set(re.findall(r"url\((.)", text)) == {"#"}  # within the page
    assert "@import" not in text
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in made.all("meta"))


def test_every_name_within_the_page_is_there_once_and_every_link_to_one_leads_somewhere(made):
    names = [element["id"] for _, element in made.elements if "id" in element]
    assert len(names) == len(set(names))
    inside = {link["href"][1:] for link in made.all("a") if link["href"].startswith("#")}
    assert inside <= set(names)
    assert {element["aria-labelledby"] for _, element in made.elements if "aria-labelledby" in element} <= set(names)


def test_page_has_every_figure_with_its_picture_and_every_claim_with_its_verdict(report, made):
    assert {f"figure-tan2024-{name}" for name in SHOWN} <= {article["id"] for article in made.all("article")}
    first, *others = [image["src"] for image in made.all("img")]
    assert first == next(figure.source for figure in report.figures if figure.key == "tan2024/fig15_gain")
    expected = [b"<svg/>"] * (len(SHOWN) - len(PLANES))
    assert [base64.b64decode(source.partition("base64,")[2]) for source in others] == expected
    assert all(image["alt"] for image in made.all("img"))
    assert len(made.of_class("drawing")) == len(PLANES)
    assert all(drawing["aria-label"] for drawing in made.of_class("drawing"))
    for claim in overall(report.claims).itertuples():
        assert made.text.count(claim.text) >= 2  # on the scoreboard and at its figure
    listed = [row["data-verdict"] for row in made.all("tr") if "data-verdict" in row]
    assert listed == overall(report.claims)["verdict"].tolist()


def test_variants_fold_behind_their_figure_and_say_their_verdicts(report):
    text = page(report)
    first, folded = (text.index(f'id="figure-tan2024-{name}"') for name in ("fig15", "fig15_gain"))
    summary = text[text.rindex('<details class="more">', first, folded) : folded].partition("</summary>")[0]
    assert "fig15_gain: " in summary
    claims = overall(report.claims).query("figure == 'fig15_gain'")
    assert len(claims) == sum(summary.count(f'title="{verdict}"') for verdict in set(claims["verdict"])) > 0


def test_navigation_folds_and_leads_to_every_part_and_figure(report, made):
    nav = page(report).partition("<nav")[2].partition("</nav>")[0]
    assert '<details id="contents" open>' in nav  # at the side, or folded by the script where there is no room
    wanted = {section["id"] for section in made.all("section")} | {article["id"] for article in made.all("article")}
    assert set(re.findall(r'href="#([^"]+)"', nav)) == wanted
    marks = [re.findall(r'title="([^"]+)">[^\d<]*(\d*)<', line) for line in nav.splitlines()]
    assert all(len({verdict for verdict, _ in line}) == len(line) for line in marks)  # a mark for each verdict
    assert sum(int(count or 1) for line in marks for _, count in line) == len(overall(report.claims))


def test_few_blocks_are_said_in_words_in_place_of_an_interval():
    claim = {"blocks": 2, "exact": False, "verdict": "undecided", "effect": 0.349, "low": 0.308, "high": 0.391}
    claim |= {"unit": "dB per doubling", "claimed": -1}
    effect = "+0.349 dB per doubling [0.308, 0.391], against the claim"
    stated = pd.Series({"effect [95 %]": effect, "Δ": "0.5 dB per doubling", "p (Holm)": "0.062"})
    few = in_words(pd.Series(claim), stated, 0.05)  # the claim's text states the least p
    assert few == "+0.349 dB per doubling, against the claim; Δ 0.5 dB per doubling; 2 blocks, too few for a verdict"
    corrected = in_words(pd.Series({**claim, "blocks": 8}), stated, 0.05)
    assert "[0.308, 0.391]" in corrected
    assert "this claim alone" in corrected
    reached = in_words(pd.Series({**claim, "blocks": 8, "verdict": "contradicted"}), stated, 0.05)
    assert reached == f"{effect}; Δ 0.5 dB per doubling; p = 0.062 after Holm, 8 blocks"


def test_page_opens_with_what_came_out(report, made):
    totals = {"reproduced": 0}
    assert (said := sentences(report.tables, report.bounds, totals, report.config))
    assert all(sentence in made.text for sentence in said)
    opening = page(report).partition('id="outcome"')[2].partition("</section>")[0]
    head, *lines = outcome_lines(report.tables, report.bounds)
    assert [*re.findall(r'<th scope="col">([^<]*)<', opening)] == head
    assert len(re.findall(r'<th scope="row">', opening)) == len(lines) > 2
    assert opening.count("<img") == 1


def test_pictures_state_their_size_so_that_nothing_jumps_when_they_appear(report, catalogue, study):
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="331.2pt" height="216pt"></svg>'
    figure = ReportFigure(catalogue["fig09"], "", drawing, study)
    assert figure.size == {"width": 331, "height": 216}
    text = page(dataclasses.replace(report, figures=[figure]))
    assert text.count('width="331" height="216"') == 2  # where the page opens, and in its place


def test_roc_of_defenses_has_logarithmic_axes_down_to_the_least_rate(report):
    rates = np.array([0.01, 0.1, 1.0])
    curves = {"none": (rates, np.array([0.1, 0.5, 1.0])), "natural": (rates, rates)}
    text = page(dataclasses.replace(report, curves=curves))
    drawing = text.partition('<svg class="roc"')[2].partition("</svg>")[0]
    side = float(re.search(r'y2="([\d.]+)"', drawing)[1])
    assert re.findall(r'text-anchor="middle">([\d.]+)<', drawing) == ["1", "0.1", "0.01"]
    points = re.findall(r'points="([^"]*)"><title>(undefended|natural)<', drawing)
    assert [name for _, name in points] == ["undefended", "natural"]
    places = [[float(value) for value in point.split(",")] for point in points[0][0].split()]
    expected = [[0, side / 2], [side / 2, side * -math.log10(0.5) / 2], [side, 0]]
    assert np.allclose(places, expected, atol=0.06)
    assert '<svg class="roc"' not in page(report)


def test_drawing_that_is_too_large_is_shown_as_a_picture(catalogue, study):
    large = ReportFigure(catalogue["fig09"], "", b" " * 600_000, study, picture=b"PNG")
    assert large.source == f"data:image/png;base64,{base64.b64encode(b'PNG').decode()}"


def test_page_states_where_results_come_from(made):
    for fact in ("abc123", "with uncommitted changes", "c0ffee", "d" * 64, "torch 2.13.0", "2: left out of all means"):
        assert fact in made.text


def test_every_point_of_a_plane_leads_to_its_run_and_says_its_numbers(report, made):
    points = made.of_class("point")
    planes = [numbers(figure.rows, figure.config.options) for figure in report.figures if figure.config.id in PLANES]
    expected = {(run, x, y) for _, lines in planes for run, _, x, y, _ in lines}
    assert [point["href"] for point in points] == [report.links[point["data-run"]] for point in points]
    assert all(link["rel"] == "noopener" for link in points)
    shown = set()
    for point in points:
        assert "of 3 replicas; run" in point["aria-label"]
        shown |= {(run, x, y) for run, x, y in expected if all(part in point["aria-label"] for part in (run, x, y))}
    assert shown == expected
    assert len(points) == sum(len(lines) for _, lines in planes)
    assert all(made.text.count(x) >= 2 for _, x, _ in expected)  # in words at the point, and in its table


def test_runs_that_are_not_in_mlflow_are_points_without_a_link(report):
    made = Page(page(Report(report.config, report.figures, report.claims, report.provenance)))
    assert {point["tabindex"] for point in made.of_class("point")} == {"0"}
    assert not [link for link in made.all("a") if "point" in (link.get("class") or "")]
    assert "leakbound sync" in made.text


def test_names_are_text_and_never_markup(report, study, drawn):
    renamed = study.assign(dataset=f"d{EVIL}", run=study["run"] + f"'{EVIL}")
    options = {"x": {"metric": "gdc"}, "y": {"metric": "test_accuracy"}, "x_label": EVIL, "diagonal": True}
    claim = {"id": "evil", "text": f"{EVIL}.", "test": "increasing", "delta": 0.01, "unit": EVIL}
    claim |= {"options": {"where": {"metric": "gdc", "defense": "natural"}}}
    figure = entry(paper="beyond", title=EVIL, plot="plane", caption=EVIL, options=options, claims=[claim])
    evil = dataclasses.replace(drawn(figure, renamed), caption=EVIL)
    provenance = {"commits": {EVIL: 1}, "versions": {EVIL: EVIL}, "data": {"digits": EVIL}}
    links = {str(run): f'http://x/"{EVIL}' for run in renamed["run"].unique()}
    claims = evaluate(figure, renamed, alpha=0.05)
    made = Page(page(Report(report.config, [evil], claims, provenance, links)))
    assert len(made.all("script")) == 1
    assert EVIL in made.text
    assert made.of_class("point")[0]["data-run"].endswith(f"'{EVIL}")


NO_CLAIMS = pd.DataFrame(columns=["paper", "figure", "claim", "dataset", "model", "verdict"])


def test_equal_reports_give_equal_pages(report):
    assert page(report) == page(dataclasses.replace(report))


def test_results_of_other_settings_are_said_first(report):
    """A run that looked at the times of files alone kept them, and the page did not say so."""
    others = dataclasses.replace(report, provenance={**report.provenance, "jobs": 28, "other_settings": 3})
    first = "Made by other settings than this configuration's: 3 of 28 results. leakbound verify names them"
    assert others.sentences[0].startswith(first)
    assert first in Page(page(others)).text
    assert others.sentences[1:] == report.sentences


def test_page_explains_the_levels_and_the_noise_that_it_has_and_no_others(config, report):
    """An own run of a defense without noise once read that its noise came from seeds, and of nats and multipliers."""
    sentences = {
        "channel": ("shapes of a channel", "capacity κ in nats per use for channels"),
        "dp": ("The level of DP is", "the noise multiplier for DP"),
        "noise": ("The noise came from seeds",),
    }
    swept = {
        ("none", "natural"): {"channel", "noise"},
        ("none", "dpsgd"): {"dp", "noise"},
        ("natural", "dpsgd"): {"channel", "dp", "noise"},
        ("none", "gradient_compression"): set(),
    }
    for names, expected in swept.items():
        study = config.studies["comparison"].model_copy(update={"defenses": dict.fromkeys(names, ())})
        changed = config.model_copy(update={"studies": {"comparison": study}})
        text = Page(page(Report(changed, [], NO_CLAIMS, {}, tables=report.tables))).text
        for kind, said in sentences.items():
            assert [words in text for words in said] == [kind in expected] * len(said), (names, kind)


def test_configuration_without_figures_and_claims_has_a_page(config):
    made = Page(page(Report(config, [], NO_CLAIMS, {})))
    assert "No figure of this configuration makes a claim" in made.text


# -- planes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [3, 4])
def test_numbers_of_a_plane_are_the_middle_of_each_run_with_its_interval_or_the_range_of_few(
    catalogue, make_study, replicas
):
    figure, study = catalogue["fig15"], make_study(replicas=replicas)
    own = study[(study["defense"] == "white") & (study["level"] == 4.0)]
    accuracy = own[(own["metric"] == "test_accuracy") & (own["source"] == "training")]["value"]
    mean, half, ends = accuracy.mean(), 3.182446305284264 * accuracy.std() / 2, (accuracy.min(), accuracy.max())
    expected = {"mean": (mean, mean - half, mean + half) if replicas == 4 else (mean, *ends)}
    expected["median"] = (accuracy.median(), *ends)
    form = "{:.4g} [{:.4g}, {:.4g}]" if replicas == 4 else "{:.4g} ({:.4g} to {:.4g})"
    for center, values in expected.items():
        head, lines = numbers(select(study, figure.select), {**figure.options, "center": center})
        assert head[:2] + head[-1:] == ["run", "point", "replicas"]
        (line,) = [line for line in lines if line[1] == "white 4"]
        assert line[3:] == [form.format(*values), str(replicas)]
        assert [line[1] for line in lines if line[1].startswith("natural")] == ["natural 1", "natural 4", "natural 16"]


def test_a_plane_has_the_points_of_every_dataset_and_network(catalogue, make_study, drawn):
    rows = make_study(("digits", "mnist"), ("lenet", "vgg16"), replicas=1, defenses=("none", "natural", "dpsgd"))
    figure = drawn(catalogue["fig16"], rows)
    _, lines = numbers(figure.rows, figure.config.options)
    settings = {tuple(line[0].split("/")[:2]) for line in lines}
    assert settings == {*product(("digits", "mnist"), ("lenet", "vgg16"))}
    assert all(f'id="run:{line[0]}"'.encode() in figure.drawing for line in lines)


def test_figures_of_another_kind_and_rows_without_numbers_have_no_points(catalogue, study, drawn, config):
    undefined = study.assign(value=study["value"].where(study["metric"] != "gdc"))
    figures = [drawn(catalogue["fig09"], study), drawn(catalogue["fig15"], undefined)]
    assert not Page(page(Report(config, figures, NO_CLAIMS, {}))).of_class("point")
    assert numbers(figures[1].rows, figures[1].config.options) == ([], [])


# -- pages of the repository ---------------------------------------------------------------------------------------


def test_page_of_figures_shows_what_is_kept_and_lists_the_rest(catalogue, study):
    shown, other = catalogue["fig15"], catalogue["fig09"]
    rows = select(study, shown.select)
    kept = KeptFigure("small", "../../results/reference/photos", rows, evaluate(shown, study, alpha=0.05), pixels=True)
    again = dataclasses.replace(kept, preset="other", folder="../../results/reference/other")
    pages = figures_pages([other, shown], {"tan2024/fig15": [kept, again]}, None)
    text = pages["figures/tan2024.md"]
    for run in ("photos", "other"):
        assert text.count(f"![{shown.title}](../../results/reference/{run}/figures/tan2024/fig15.png)") == 1
    assert text.count(" ".join(shown.caption.split())) == 1
    assert shown.claims[0].text in text
    assert "natural 1, 4, 16" in text
    assert "Replicas: 3" in text
    assert f"- fig09: {other.title} (not drawn yet)" in pages["figures.md"]
    anchors = set(re.findall(r'<a id="([^"]+)">', text))
    assert set(re.findall(r"\]\(figures/tan2024\.md#([^)]+)\)", pages["figures.md"])) == anchors


def test_size_of_a_pool_is_stated_only_where_it_is_known_and_clients_of_federated_averaging_beside_the_members():
    held = {
        "digits": DatasetConfig(members=100, test=300, aux=500),
        "own": DatasetConfig(reader="parquet", members=100),
        "sized": DatasetConfig(reader="parquet", members=100, pool=400),
    }
    drawn = [line[1] for line in datasets(reading.quick().model_copy(update={"datasets": held}), {})]
    assert [text.partition("validation")[2] for text in drawn] == [", of 997", "", ", of 400"]
    held = {name: DatasetConfig(members=100, test=300, aux=500) for name in ("digits", "mnist")}
    section = FederatedConfig(models={"mnist": "mlp"}, n_clients=10, client_counts=[5, 20])
    both = reading.quick().model_copy(update={"datasets": held, "federated": section})
    drawn = [line[1] for line in datasets(both, {})]
    assert "federated" not in drawn[0]
    assert drawn[1].endswith("; in federated averaging up to 20 clients with 5 each")
