import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from leakbound_lab.claims.selection import SelectionError, select
from leakbound_lab.claims.statistics import mean_interval
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.figures import style
from leakbound_lab.figures.notes import caption
from leakbound_lab.figures.plots.series import Middle, center_interval, mark_leaving
from leakbound_lab.papers.tan2024.noisy_pictures import picture_rows
from leakbound_lab.registries import PLOTS
from leakbound_lab.steps.plot import write_figure
from verdicts import entry

SHOWN = ("none", "natural", "white")
"""Defenses that a picture of accuracy shows."""
ACCURACY = {
    "where": {"defense": ["natural", "white"]},
    "controls": [{"label": "undefended", "where": {"defense": "none"}}],
}
PLANE = {"x": {"metric": "gdc"}, "y": {"metric": "test_accuracy"}}


def accuracy(study: pd.DataFrame) -> pd.DataFrame:
    return study[study["metric"] == "test_accuracy"]


def written(folder: Path, figure: FigureConfig, table: pd.DataFrame) -> dict[str, bytes]:
    write_figure(figure, select(table, figure.select), folder / "fig", formats=["png", "pdf"])
    return {kind: (folder / f"fig.{kind}").read_bytes() for kind in ("svg", "png", "pdf")}


@pytest.mark.parametrize(
    ("plot", "options", "conditions"),
    [("levels", ACCURACY, {"metric": "test_accuracy"}), ("plane", PLANE, {"metric": ["gdc", "test_accuracy"]})],
)
def test_equal_rows_give_equal_bytes(tmp_path, study, plot, options, conditions):
    figure = entry(plot=plot, options=options, select=conditions)
    first = written(tmp_path / "a", figure, study)
    second = written(tmp_path / "b", figure, study.sample(frac=1, random_state=0))
    assert first == second


def test_pictures_are_text_and_pixels_of_the_stated_size(tmp_path, study):
    found = written(tmp_path, entry(options=ACCURACY, select={"metric": "test_accuracy"}), study)
    assert re.search(rb"<text[^>]*>test accuracy</text>", found["svg"])
    assert not re.search(rb"<dc:date>", found["svg"])
    assert re.search(rb"/MediaBox \[ 0 0 (\d+)", found["pdf"])[1] == str(round(style.ONE_COLUMN * 72)).encode()
    with Image.open(tmp_path / "fig.png") as picture:
        assert picture.width == round(style.ONE_COLUMN * 160)
        assert picture.info["dpi"][0] == pytest.approx(160, abs=0.1)


def test_charts_have_a_palette_and_photographs_all_their_colors(tmp_path, study):
    written(tmp_path, entry(options=ACCURACY, select={"metric": "test_accuracy"}), study)
    with style.applied():
        picture = PLOTS.get("levels")(accuracy(study), options=ACCURACY)
        picture.savefig(tmp_path / "plain.svg")
        picture.set_layout_engine("none")  # pixels have the layout of the vector picture
        picture.savefig(tmp_path / "plain.png")
    with Image.open(tmp_path / "fig.png") as chart, Image.open(tmp_path / "plain.png") as plain:
        assert (chart.mode, chart.text["Title"]) == ("P", "A title")
        pixels, expected = (np.asarray(picture.convert("RGB"), dtype=float) for picture in (chart, plain))
    assert np.abs(pixels - expected).mean() < 0.5
    colors = np.random.default_rng(0).uniform(-1, 1, (10, 3, 32, 32))
    rows = pd.concat([picture_rows("none", np.nan, colors), picture_rows("released", 4.0, colors)])
    written(tmp_path, entry(plot="image_grid", options={"similarity": None}, select={}), rows)
    with Image.open(tmp_path / "fig.png") as photographs:
        assert photographs.mode == "RGB"


def test_no_picture_is_left_behind_when_drawing_fails(tmp_path, study):
    with pytest.raises(ConfigError):
        written(tmp_path, entry(options={"wheer": {}}, select={"metric": "test_accuracy"}), study)
    assert list(tmp_path.iterdir()) == []


def test_lines_go_through_the_means_over_replicas_and_the_undefended_mean_is_a_horizontal_line(study):
    rows = accuracy(study)
    lines = PLOTS.get("levels")(rows, options=ACCURACY).axes[0].get_lines()
    (white,) = [line for line in lines if line.get_marker() == style.style_of("white").marker]
    expected = rows[rows["defense"] == "white"].groupby("level")["value"].mean()
    np.testing.assert_allclose(white.get_ydata(), expected)
    np.testing.assert_allclose(white.get_xdata(), expected.index)
    grey = [line for line in lines if line.get_color() == style.CONTROL_COLOR and line.get_linestyle() == "--"]
    undefended = rows.query("defense == 'none'")["value"].mean()
    assert [line.get_ydata() for line in grey] == [[undefended, undefended]]


def test_levels_can_be_lines_over_another_column_and_what_has_none_is_one_line():
    lines = {("none", np.nan): 0.9, ("natural", 300.0): 0.7, ("natural", 50.0): 0.4, ("dpsgd", 0.2): 0.1}
    rows = pd.DataFrame(
        [
            (defense, level, "mlp", "cifar10", batch, replica, "recovered", height / batch)
            for (defense, level), height in lines.items()
            for batch in (1, 2, 4)
            for replica in range(4)
        ],
        columns=["defense", "level", "model", "dataset", "batch_size", "replica", "metric", "value"],
    )
    options = {"x": "batch_size", "series": ["defense", "level"]}
    picture = PLOTS.get("levels")(rows, options=options)
    drawn = [line for line in picture.axes[0].get_lines() if len(line.get_xdata()) == 3]
    names = {"undefended", "natural, 50", "natural, 300", "DP-SGD, 0.2"}
    assert names <= {text.get_text() for text in picture.axes[0].texts}
    assert len({(line.get_color(), line.get_marker()) for line in drawn}) == 4
    heights = [0.9, 0.4, 0.7, 0.1]
    for line, height in zip(drawn, heights, strict=True):
        np.testing.assert_allclose(line.get_ydata(), [height, height / 2, height / 4])
    with pytest.raises(SelectionError, match="several rows at one batch_size: choose one by level"):
        PLOTS.get("levels")(rows, options={"x": "batch_size"})


def test_the_band_is_students_interval_over_replicas(make_study):
    rows = accuracy(make_study(replicas=4)).query("defense == 'natural'")
    picture = PLOTS.get("levels")(rows, options={})
    heights = picture.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    last = rows[rows["level"] == rows["level"].max()]["value"]
    half = 3.182446305284264 * last.std() / 2
    assert heights.min() < heights.max()
    assert min(abs(heights - min(1.0, last.mean() + half))) < 1e-9
    assert min(abs(heights - (last.mean() - half))) < 1e-9


def test_fewer_than_four_replicas_are_dots_and_have_no_band(study):
    rows = accuracy(study).query("defense == 'natural'")
    axes = PLOTS.get("levels")(rows, options={}).axes[0]
    assert not axes.collections
    dots = [tuple(point) for line in axes.get_lines() if line.get_linestyle() == "None" for point in line.get_xydata()]
    assert dots == sorted(rows[["level", "value"]].itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("metric", "values", "least", "most"),
    [
        ("test_accuracy", [0.9, 0.99, 1.0, 0.98], -math.inf, 1.0),
        ("mse", [0.0, 0.0, 0.1, 0.0], 0.0, math.inf),
        ("recovered", [0.0, 1.0, 1.0, 1.0], 0.0, 1.0),
        ("gain", [0.9, 1.0, 1.3, 0.8], -math.inf, math.inf),
    ],
)
def test_intervals_end_at_what_is_possible(metric, values, least, most):
    free = mean_interval(np.array(values))
    found = center_interval(pd.Series(values), "mean", metric)
    assert (found.low, found.high, found.few) == (max(free.low, least), min(free.high, most), False)


def test_intervals_and_replicas_beyond_the_axes_are_marked_at_the_frame():
    values = {1.0: [0.5, 0.5, 0.5, 0.51], 2.0: [0.1, 0.55, 0.56, 0.99], 4.0: [0.6, 0.6, 0.6, 0.61]}
    axes = Figure().subplots()
    axes.set(xlim=(0.0, 5.0), ylim=(0.4, 0.7))
    for level, own in values.items():
        mark_leaving(axes, Middle(level, level, level, few=False), center_interval(pd.Series(own), "mean"), "#000000")
    marks = {(float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_marker()) for line in axes.get_lines()}
    assert marks == {(2.0, 0.4, "v"), (2.0, 0.7, "^")}


def test_planes_mark_what_leaves_their_axes(make_study):
    table = make_study(replicas=8, defenses=("none", "natural", "white"))
    far = (table["metric"] == "gdc") & (table["replica"] == 0) & (table["defense"] == "white")
    picture = PLOTS.get("plane")(table.assign(value=table["value"].where(~far, -1e3)), options=PLANE)
    axes = picture.axes[0]
    marks = [line for line in axes.get_lines() if line.get_marker() == "<"]
    assert marks
    assert {float(line.get_xdata()[0]) for line in marks} == {axes.get_xlim()[0]}


def test_a_legend_is_lower_than_its_plot_and_lies_below_it(study, make_study):
    several = make_study(("cifar10", "fashion_mnist"), ("lenet",))
    levels = {"controls": ACCURACY["controls"], "where": {"level": [1.0, 4.0, 16.0]}}
    for plot, rows, options in (
        ("plane", study, PLANE),
        ("plane", several, PLANE),
        ("levels", accuracy(several), levels),
    ):
        picture = PLOTS.get(plot)(rows, options=options)
        picture.draw_without_rendering()
        legend = picture.legends[0].get_window_extent()
        bottom, top = min(axes.bbox.y0 for axes in picture.axes), max(axes.bbox.y1 for axes in picture.axes)
        assert legend.height < top - bottom
        assert legend.y0 >= -1
        assert legend.y1 <= min(axes.get_tightbbox().y0 for axes in picture.axes if axes.get_visible()) + 1


def test_names_at_the_ends_of_lines_keep_apart_and_have_the_colors_of_these(make_study):
    rows = accuracy(make_study(replicas=4, defenses=("natural", "white", "personalized"))).copy()
    last = rows["level"] == rows["level"].max()
    rows.loc[last, "value"] = 0.5  # all lines end at one height
    picture = PLOTS.get("levels")(rows, options={})
    assert not picture.legends
    picture.draw_without_rendering()
    names = {text.get_text(): text for text in picture.axes[0].texts if text.get_text()}
    assert {name: text.get_color() for name, text in names.items()} == {
        style.style_of(name).label: style.style_of(name).color for name in ("natural", "white", "personalized")
    }
    boxes = [text.get_window_extent() for text in names.values()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert all(box.x0 >= picture.axes[0].bbox.x1 for box in boxes)


def test_every_setting_gets_a_panel_with_shared_axes_and_one_legend(make_study):
    table = accuracy(make_study(("cifar10", "fashion_mnist"), ("lenet",), defenses=SHOWN))
    picture = PLOTS.get("levels")(table, options={**ACCURACY, "share_y": True})
    assert len(picture.axes) == 2
    assert picture.axes[0].get_ylim() == picture.axes[1].get_ylim()
    low, high = picture.axes[0].get_ylim()
    drawn = np.concatenate([line.get_ydata() for axes in picture.axes for line in axes.get_lines()])
    assert low <= drawn.min() < drawn.max() <= high
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels == ["natural", "white", "undefended"]
    assert picture.legends[0].get_title().get_text() == "capacity per use κ (nats)"  # else it lies on the legend


def test_planes_name_the_ends_of_every_line_and_mark_the_undefended_run(study):
    picture = PLOTS.get("plane")(study[study["defense"].isin(["none", "natural", "white", "dpsgd"])], options=PLANE)
    names = Counter(text.get_text() for text in picture.axes[0].texts if text.get_text())
    assert (names["1"], names["16"], names["0.5"], names["2"]) == (2, 2, 1, 1)
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels == ["natural", "white", "DP-SGD", "undefended"]


def test_crowded_planes_have_their_levels_in_the_legend_and_points_that_darken_and_grow(study):
    picture = PLOTS.get("plane")(study, options=PLANE)
    assert not [text.get_text() for text in picture.axes[0].texts if text.get_text()]
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels[:4] == ["natural (1, 4, 16)", "white (1, 4, 16)", "personalized (1, 4, 16)", "DP-SGD (2, 1.5, 0.5)"]
    dpsgd = study[(study["defense"] == "dpsgd") & (study["metric"] == "gdc")].groupby("level")["value"].mean()
    marker = style.style_of("dpsgd").marker
    lines = [line for line in picture.axes[0].get_lines() if line.get_marker() == marker]
    points = {round(float(line.get_xdata()[0]), 9): line for line in lines if len(line.get_xdata()) == 1}
    ordered = [points[round(dpsgd[level], 9)] for level in (2.0, 1.5, 0.5)]
    assert len(points) == 3
    assert ordered == sorted(ordered, key=lambda line: line.get_markersize())
    assert ordered == sorted(ordered, key=lambda line: -sum(to_rgb(line.get_markerfacecolor())))
    assert "pale" in picture.legends[0].get_title().get_text()


def test_crowded_planes_with_one_level_a_line_do_not_explain_shades(study):
    strongest = study["level"].isin([0.0, 1.0]) | study["defense"].eq("dpsgd") & study["level"].eq(2.0)
    picture = PLOTS.get("plane")(study[strongest], options=PLANE)
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels[:4] == ["natural (1)", "white (1)", "personalized (1)", "DP-SGD (2)"]
    assert picture.legends[0].get_title().get_text() == ""


def test_names_of_levels_keep_off_each_other_and_inside_the_panel():
    rows = []
    for index, (name, x) in enumerate((("natural", 0.1), ("white", 0.3), ("dpsgd", 0.5))):
        for level, y in ((1.0, 0.5), (2.0, 0.7), (3.0, 0.9)):
            for metric, value in (("gdc", x + 0.02 * level), ("test_accuracy", y - 0.05 * index)):
                rows.append((f"{name}-{level}", name, level, 0, metric, value))
    table = pd.DataFrame(rows, columns=["run", "defense", "level", "replica", "metric", "value"])
    picture = PLOTS.get("plane")(table, options=PLANE)
    picture.draw_without_rendering()
    boxes = [text.get_window_extent() for text in picture.axes[0].texts if text.get_text()]
    assert len(boxes) == 9
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    frame = picture.axes[0].bbox
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_heatmap_numbers_contrast_with_their_cells(gradients):
    rows = gradients[(gradients["metric"] == "mse") & (gradients["unit"] == -1)]
    picture = PLOTS.get("heatmap")(rows, options={"where": {"variant": "attack"}})
    colors = {text.get_text(): text.get_color() for text in picture.axes[0].texts}
    assert colors[min(colors)] == "white"  # the lowest value has the darkest cell
    assert colors[max(colors)] == "black"


def test_a_heatmap_says_what_its_small_numbers_are(gradients):
    rows = gradients[(gradients["metric"] == "mse") & (gradients["unit"] == -1)]
    options = {"where": {"variant": "attack"}, "beside": {"variant": "geiping"}, "floor": {"variant": "oracle"}}
    (said,) = PLOTS.get("heatmap")(rows, options=options).legends
    assert said.get_title().get_text() == "small numbers: above, Geiping et al., tuned; below, oracle"
    assert PLOTS.get("heatmap")(rows, options={"where": {"variant": "attack"}}).legends == []


def test_colors_beyond_the_bar_are_none_of_its_own_and_it_has_an_arrow_there(gradients):
    rows = gradients[(gradients["metric"] == "mse") & (gradients["unit"] == -1)].copy()
    rows.loc[rows["variant"] == "prior", "value"] = 1e3
    options = {"where": {"variant": "attack"}, "constants": {"prior": {"variant": "prior"}}}
    picture = PLOTS.get("heatmap")(rows, options=options)
    picture.draw_without_rendering()
    *cells, prior = picture.axes[0].collections
    inside = {tuple(color) for mesh in cells for color in mesh.get_facecolors()}
    assert not {tuple(color) for color in prior.get_facecolors()} & inside
    assert prior.norm.vmax < 1e3  # the other cells keep their contrast
    (bar,) = (axes for axes in picture.axes if hasattr(axes, "_colorbar"))
    assert bar._colorbar.extend == "max"
    assert PLOTS.get("heatmap")(rows, options={"where": {"variant": "attack"}}).axes[-1]._colorbar.extend == "neither"


def test_where_nothing_is_left_the_picture_says_why(study):
    rows = study[study["metric"].isin(["gdc", "test_accuracy"])]
    undefined = rows.assign(value=rows["value"].where(rows["metric"] != "gdc"))
    picture = PLOTS.get("plane")(undefined, options=PLANE)
    (text,) = picture.texts
    assert text.get_text().startswith("Nothing to show: no value of gdc is defined")
    picture = PLOTS.get("levels")(accuracy(study), options={**ACCURACY, "where": {"defense": "nobody's"}})
    reason = picture.texts[0].get_text().replace("\n", " ")
    assert reason.startswith('Nothing to show: select.defense = "nobody\'s" leaves no row')


def test_a_missing_column_or_condition_is_named(study):
    with pytest.raises(SelectionError, match="needs the column 'level'"):
        PLOTS.get("levels")(accuracy(study).drop(columns="level"), options=ACCURACY)
    rows = study[(study["metric"] == "auc") & (study["source"] == "membership")]
    with pytest.raises(SelectionError, match=r"several rows at one level: choose one by variant"):
        PLOTS.get("levels")(rows, options={"where": {"defense": "natural"}})


def test_every_series_has_a_color_and_marker_of_its_own_and_frozen_noise_those_of_its_fresh_twin():
    defenses = ["natural", "white", "personalized", "personalized_printed", "least_power", "rate_distortion"]
    looks = [style.style_of(name) for name in [*defenses, "dpsgd", "dppsac", "none"]]
    assert len({look.color for look in looks}) == len(looks)
    assert len({look.marker for look in looks}) == len(looks)
    frozen, fresh = style.style_of("natural_frozen"), style.style_of("natural")
    assert (frozen.color, frozen.marker, frozen.dashed) == (fresh.color, fresh.marker, True)


def test_drawing_leaves_the_users_settings_alone(study):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    PLOTS.get("levels")(accuracy(study), options=ACCURACY)
    assert dict(mpl.rcParams) == before


def test_a_small_error_under_a_picture_is_not_rounded_to_none():
    rows = [
        picture_rows(name, level, np.zeros((1, 3, 32, 32))) for name, level in (("none", np.nan), ("released", 4.0))
    ]
    rows.append(rows[1][:1].assign(metric="mse", value=0.0048))
    picture = PLOTS.get("image_grid")(pd.concat(rows), options={"similarity": "mse"})
    assert picture.axes[0].get_xticklabels()[1].get_text() == "4\n0.0048"


def test_records_with_few_rows_are_lines_of_their_values_on_the_networks_scale():
    values = np.random.default_rng(0).uniform(-1, 1, (2, 1, 1, 7))
    parts = [picture_rows("none", np.nan, values)]
    parts += [picture_rows(name, level, values * level / 9) for name in ("released", "attack") for level in (4.0, 8.0)]
    picture = PLOTS.get("image_grid")(pd.concat(parts), options={"similarity": None})
    assert len(picture.axes) == 4  # two records at two levels
    record, attack, released = picture.axes[3].get_lines()
    np.testing.assert_allclose(record.get_ydata(), values[1].ravel())
    np.testing.assert_allclose(released.get_ydata(), values[1].ravel() * 8 / 9)
    assert attack.get_color() == style.style_of("attack").color


def test_captions_tell_data_network_and_number_of_replicas(study):
    rows = accuracy(study)
    assert caption(entry(), rows) == "Text. Data: digits. Network: lenet. n = 3 replicas."
    fewer = rows[~((rows["defense"] == "white") & (rows["replica"] == 0))]
    assert caption(entry(), fewer).endswith("n = 2 to 3 replicas.")
