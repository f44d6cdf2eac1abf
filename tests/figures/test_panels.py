"""Several datasets, networks and quantities in one figure, and tables as pictures."""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from leakbound_lab.claims.selection import SelectionError
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import log
from leakbound_lab.registries import PLOTS

FOUR = ("svhn", "cifar10", "fashion_mnist", "celeba")
NATURAL = {"where": {"defense": "natural"}, "series": ["defense", "model"]}


def accuracy(study: pd.DataFrame) -> pd.DataFrame:
    return study[study["metric"] == "test_accuracy"]


def names_above(picture) -> list[str]:
    return [text.get_text() for axes in picture.axes for text in axes.texts if text.get_text() in style.NAMES.values()]


def legend(picture) -> list[str]:
    return [text.get_text() for text in picture.legends[0].get_texts()]


@pytest.fixture(scope="module")
def wide(make_study):
    return make_study(FOUR, ("lenet", "vgg16"), defenses=("none", "natural"))


def test_datasets_stand_in_the_papers_order_two_in_a_row_each_with_its_own_axis(wide):
    picture = PLOTS.get("levels")(accuracy(wide), options=NATURAL)
    assert names_above(picture) == ["CIFAR-10", "CelebA", "SVHN", "Fashion-MNIST"]
    assert len({axes.get_position().x0 for axes in picture.axes}) == 2
    assert len({axes.get_ylim() for axes in picture.axes}) == 4


def test_networks_are_lines_with_looks_of_their_own(wide):
    options = {**NATURAL, "controls": [{"label": "undefended", "where": {"defense": "none"}}]}
    picture = PLOTS.get("levels")(accuracy(wide), options=options)
    assert legend(picture) == ["LeNet", "VGG16", "undefended"]
    for name in ("lenet", "vgg16"):
        drawn = [line for line in picture.axes[0].get_lines() if line.get_color() == style.style_of(name).color]
        lines = [line for line in drawn if line.get_linestyle() != "None"]
        assert [line.get_marker() for line in lines] == [style.style_of(name).marker, "None"]  # itself, and its control


def test_one_network_alone_leaves_the_look_to_the_defense(make_study):
    rows = accuracy(make_study(("cifar10",), ("vgg16",), defenses=("natural",)))
    assert (
        PLOTS.get("levels")(rows, options=NATURAL).axes[0].get_lines()[0].get_color() == style.style_of("natural").color
    )


def test_rows_of_panels_show_their_own_rows_and_controls(study):
    options = {
        "where": {"defense": "natural"},
        "rows": {"AUC": {"metric": "auc", "variant": "strongest"}, "accuracy": {"metric": "test_accuracy"}},
        "controls": [{"label": "undefended", "where": {"defense": "none"}}],
        "chance": 0.5,
        "chance_rows": ["AUC"],
    }
    picture = PLOTS.get("levels")(study, options=options)
    assert [axes.get_ylabel() for axes in picture.axes] == ["AUC", "accuracy"]
    for axes, metric, variant in zip(picture.axes, ("auc", "test_accuracy"), ("strongest", ""), strict=True):
        own = study[(study["metric"] == metric) & (study["variant"] == variant)]
        heights = [line.get_ydata()[0] for line in axes.get_lines() if line.get_color() == style.CONTROL_COLOR]
        undefended = own[own["defense"] == "none"]["value"].mean()
        assert heights == pytest.approx([undefended, 0.5] if metric == "auc" else [undefended])


def of_lengths(study: pd.DataFrame) -> pd.DataFrame:
    """The undefended run and one of natural noise, trained for several numbers of rounds."""
    runs = study[(study["defense"] == "none") | (study["defense"] == "natural") & (study["level"] == 16.0)]
    return pd.concat(
        runs.assign(rounds=n, run=runs["run"] + f"-{n}", value=runs["value"] * (1 - 1 / n)) for n in (2, 4, 8, 16)
    )


def test_the_undefended_run_of_each_length_is_a_control_of_the_rounds(study):
    rows = accuracy(of_lengths(study))
    options = {**NATURAL, "x": "rounds", "controls": [{"label": "undefended", "where": {"defense": "none"}}]}
    picture = PLOTS.get("levels")(rows, options=options)
    grey = [line for line in picture.axes[0].get_lines() if line.get_color() == style.CONTROL_COLOR]
    (control,) = [line for line in grey if line.get_linestyle() == "--"]
    expected = rows[rows["defense"] == "none"].groupby("rounds")["value"].mean()
    np.testing.assert_allclose(control.get_xdata(), expected.index)
    np.testing.assert_allclose(control.get_ydata(), expected)


def test_values_may_stand_at_equal_distances_with_their_own_names(study):
    rows = accuracy(study).query("defense == 'natural'")
    axes = PLOTS.get("levels")(rows, options={"even_x": True}).axes[0]
    assert axes.get_lines()[-1].get_xdata().tolist() == [0.0, 1.0, 2.0]
    ticks = axes.xaxis.get_major_locator()()
    assert [axes.xaxis.get_major_formatter()(tick) for tick in ticks] == ["1", "4", "16"]


def test_points_of_one_level_stand_side_by_side_each_with_its_name(make_study):
    names = ("natural", "white", "personalized", "natural_frozen", "rate_distortion", "least_power")
    rows = accuracy(make_study(("digits",), ("lenet",), defenses=("none", "natural")))
    level = rows[(rows["defense"] == "natural") & (rows["level"] == 4.0)]
    rows = pd.concat([level.assign(defense=name, run=name) for name in names])
    picture = PLOTS.get("levels")(rows, options={})
    axes = picture.axes[0]
    ticks = axes.xaxis.get_major_locator()()
    found = {axes.xaxis.get_major_formatter()(tick).replace("\n", " ") for tick in ticks}
    assert found == {style.style_of(name).label.replace("rate-", "rate- ") for name in names}
    middles = [line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 1]
    assert sorted(middles) == [0, 1, 2, 3, 4, 5]
    assert axes.get_xlabel() == "capacity per use κ (nats): 4"


@pytest.mark.parametrize(
    ("limits", "expected", "never"),
    [
        ((18, 350), {"20", "100", "300"}, "$"),
        ((1e-8, 1e7), {"1", r"$\mathdefault{10^{-6}}$"}, "e"),
        ((3e-4, 2e-3), {"0.001", "0.002"}, "{-3."),  # 4e-4 was written as a power of -3.40
    ],
)
def test_logarithmic_axes_have_plain_numbers_where_those_are_short(limits, expected, never):
    figure = Figure()
    axes = figure.subplots()
    log(axes, "y")
    axes.set_ylim(*limits)
    figure.draw_without_rendering()
    labels = {label.get_text() for label in axes.yaxis.get_ticklabels(which="both")}
    assert expected <= labels
    assert not any(never in label.replace("mathdefault", "") for label in labels)


def test_numbers_side_by_side_on_a_long_logarithmic_axis_do_not_touch():
    figure = Figure(figsize=(3.2, 3.0))
    axes = figure.subplots()
    log(axes, "x")
    axes.set_xlim(4e-4, 8.5e-3)
    FigureCanvasAgg(figure).draw()
    labels = [label for label in axes.xaxis.get_ticklabels(which="both") if label.get_text()]
    boxes = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in labels))
    assert len(boxes) >= 3
    assert all(before < after for (_, before), (after, _) in pairwise(boxes))


def test_planes_follow_the_rounds(study):
    options = {"along": "rounds", "x": {"metric": "auc", "variant": "strongest"}, "y": {"metric": "test_accuracy"}}
    picture = PLOTS.get("plane")(of_lengths(study), options=options)
    assert {text.get_text() for text in picture.axes[0].texts} >= {"2", "16"}
    grey = [line for line in picture.axes[0].get_lines() if line.get_color() == style.CONTROL_COLOR]
    lines = [line for line in grey if line.get_linestyle() != "None"]
    assert [len(line.get_xdata()) for line in lines] == [4]  # the undefended run of each length


def test_heatmaps_of_datasets_stand_under_each_other_within_two_columns(gradients):
    rows = gradients.query("metric == 'mse' and unit == -1")
    both = pd.concat([rows, rows.assign(dataset="fashion_mnist")])
    picture = PLOTS.get("heatmap")(both, options={"where": {"variant": "attack"}})
    titles = [axes.get_title() for axes in picture.axes if axes.get_title()]
    assert titles == ["Fashion-MNIST", "digits"]
    assert picture.get_size_inches()[0] <= style.TWO_COLUMNS


TIMES = pd.DataFrame(
    product(("vgg16", "lenet"), ("dpsgd",), (0, 1, 2), ("ratio", "seconds")),
    columns=["model", "defense", "replica", "metric"],
).assign(value=lambda rows: rows["replica"] + 1.0)


def test_tables_have_means_with_intervals_and_what_the_paper_prints():
    cells = [{"where": {"metric": "ratio"}, "text": "×{mean:.2f} [{low:.2f}, {high:.2f}]"}]
    options = {"cells": cells, "printed": {"lenet": {"dpsgd": "paper ×1.57"}}}
    words = [text.get_text() for text in PLOTS.get("table")(TIMES, options=options).axes[0].texts]
    interval = "×2.00 [-0.48, 4.48]"  # Student's t of 2: 4.303
    assert list(filter(None, words)) == ["DP-SGD", "LeNet", interval, "paper ×1.57", "VGG16", interval]
    half = {"cells": [{"where": {"metric": "ratio"}, "text": "± {half:.2f}"}]}
    words = [text.get_text() for text in PLOTS.get("table")(TIMES, options=half).axes[0].texts]
    assert words.count("± 2.48") == 2  # half of the interval's width
    with pytest.raises(SelectionError, match="several rows of one replica"):
        PLOTS.get("table")(TIMES, options={"cells": [{"text": "{mean}"}]})
    with pytest.raises(SelectionError, match="no format of its numbers"):
        PLOTS.get("table")(TIMES, options={"cells": [{"where": {"metric": "ratio"}, "text": "{median}"}]})


def test_a_ratio_with_one_slow_turn_has_a_median_and_a_positive_interval():
    turns = pd.DataFrame({"model": "lenet", "defense": "dpsgd", "replica": range(6), "metric": "ratio"})
    turns["value"] = [1.9, 2.0, 2.0, 2.0, 2.1, 26.0]
    cell = {"where": {"metric": "ratio"}, "center": "median", "text": "×{median:.2f} [{low:.2f}, {high:.2f}]"}
    words = [text.get_text() for text in PLOTS.get("table")(turns, options={"cells": [cell]}).axes[0].texts]
    assert words[-1] == "×2.00 [1.90, 26.00]"


@pytest.mark.parametrize("background", ["#ffffff", "#15181c"])
def test_lines_of_the_page_have_enough_contrast_in_both_modes(background):
    assert style.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)  # WCAG's own example of AA
    for name in ("none", "stopped", "early_stopping", "dpsgd", "dppsac", "natural", "least_power"):
        color = str(style.style_of(name).color)
        seen = style.visible_on(color, background)
        assert style.contrast(seen, background) >= 3
        assert (seen == color.lower()) == (style.contrast(color, background) >= 3)
