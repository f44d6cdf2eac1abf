"""Figures and tables for a paper, from results that are kept."""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from calling import called
from leakbound import storage
from leakbound_lab.commands.export import _fits, _legible
from leakbound_lab.config import reading
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.drawn_table import latex
from leakbound_lab.steps.plot import picture_of

KEPT = "results/reference/photos"


def exported(out, *words):
    return called("export", *words, "--configfile", f"{KEPT}/config.yaml", "--results", KEPT, "--out", str(out))


def test_every_caption_and_title_is_ascii_for_latex_and_its_braces_match():
    config = reading.quick()
    for figure in reading.load_catalogue(config.catalogue, config).figures:
        for text in (figure.title, figure.caption):
            written = latex(text)
            assert written.isascii(), (figure.id, re.findall(r"[^\x00-\x7f]", written))
            assert written.count("$") % 2 == 0
            plain = re.sub(r"\\[{}]", "", written)
            assert plain.count("{") == plain.count("}")
            assert not re.search(r"(?<!\\)[%#&_](?!\{)", written)


def test_a_table_becomes_booktabs_with_the_numbers_of_its_picture(tmp_path):
    assert exported(tmp_path, "tan2024/table02", "--format", "tex,csv").code == 0
    text = (tmp_path / "tan2024-table02.tex").read_text()
    head, *lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert head == r" & undefended & natural & white & personalized & DP-SGD & DP-PSAC \\"
    rows = pd.read_csv(tmp_path / "tan2024-table02.csv")
    chosen = rows[(rows["model"] == "lenet") & (rows["defense"] == "natural")]
    lenet = next(line for line in lines if line.startswith("LeNet "))
    middle = chosen[chosen["metric"].str.startswith("ratio")]["value"].median()
    assert rf"$\times${middle:.2f}" in lenet
    assert "[paper 313" in lenet
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")
    assert "@misc{leakbound-photos-" in (tmp_path / "references.bib").read_text()


def test_a_picture_has_the_width_of_a_column_embedded_fonts_and_the_same_bytes_again(tmp_path):
    for folder in ("first", "again"):
        words = ("tan2024/fig09", "--format", "pdf,svg", "--width", "8.8cm")
        assert exported(tmp_path / folder, *words).code == 0
    first, again = ((tmp_path / folder / "tan2024-fig09.pdf").read_bytes() for folder in ("first", "again"))
    assert first == again
    written = {"tan2024-fig09.pdf", "tan2024-fig09.svg", "references.bib"}
    assert {path.name for path in (tmp_path / "first").iterdir()} == written  # a paper's folder has no seals
    assert b"/FontFile2" in first  # TrueType, embedded
    width = float(re.search(rb"/MediaBox \[ *0 0 ([\d.]+)", first)[1])
    assert width == pytest.approx(8.8 / 2.54 * 72, abs=0.01)
    assert "<text" not in (tmp_path / "first" / "tan2024-fig09.svg").read_text()  # letters are shapes


def test_a_short_caption_is_title_data_networks_and_replicas(tmp_path):
    captions = {}
    for kind in ("full", "short"):
        words = ("tan2024/fig09", "--format", "tex,csv", "--caption", kind)
        assert exported(tmp_path / kind, *words).code == 0
        assert not [*(tmp_path / kind).glob(".*")]
        text = (tmp_path / kind / "tan2024-fig09.tex").read_text()
        captions[kind] = re.search(r"\\caption\[(.*)\]\{(.*)\}\n", text).groups()
    title, short = captions["short"]
    assert short == rf"{title}. Data: cifar10, fashion\_mnist. Network: mlp. n = 12 replicas."
    assert title == captions["full"][0]
    assert len(captions["full"][1]) > 3 * len(short)


@pytest.mark.parametrize("key", ["fig14", "fig16", "fig09", "fig30"])
def test_no_text_of_a_picture_for_a_paper_is_small_or_outside(key):
    from matplotlib.text import Text

    config = reading.quick()
    figures = reading.load_catalogue(config.catalogue, config).figures
    figure = next(each for each in figures if (each.paper, each.id) == ("tan2024", key))
    rows = storage.read_rows(f"{KEPT}/figures/tan2024/{key}.parquet", sealed=False)
    with style.within(3.5), style.applied():
        picture = _legible(picture_of(figure, rows))
        assert picture.get_size_inches()[0] <= 3.5
        assert min(text.get_fontsize() for text in picture.findobj(Text)) == 7.0
        assert _fits(picture)
        picture.supxlabel("x" * 200)
        assert not _fits(picture)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("tan2024/fig_09",), "did you mean 'tan2024/fig09'"),
        (("--format", "pdf,docx"), "must be some of pdf,svg,png,csv,tex"),
        (("--width", "3.5inch"), "e.g. 3.5in, 8.8cm"),
        (("--width", "0.2in"), "must be 1.5in to 20in"),
        (("pmidp/fig03",), "run snakemake for this configuration first"),
    ],
)
def test_what_cannot_be_exported_is_named_and_nothing_is_written(tmp_path, words, problem):
    outcome = exported(tmp_path / "out", *words)
    assert (outcome.code, problem in outcome.message) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_study_that_no_figure_shows_has_nothing_to_export(tmp_path):
    study = {"datasets": ["digits"], "models": ["lenet"], "rounds": [20], "defenses": {"none": []}}
    catalogue = str(Path("config/figures").absolute())
    config = {"preset": "mine", "catalogue": catalogue, "datasets": {"digits": {}}, "studies": {"mine": study}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    outcome = called("export", "--configfile", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out"))
    assert (outcome.code, "makes the rows of no figure of its catalogue: nothing to export" in outcome.message) == (
        2,
        True,
    )
    assert not (tmp_path / "out").exists()
