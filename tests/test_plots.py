"""Plots, by drawing them: what stands on the axes, and that there is a picture."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import roughformer as rf
from roughformer import plots
from roughformer.errors import InputError

image = pytest.importorskip("matplotlib.image")


def picture(path):
    """Its pixels ``(H, W)`` as lightness; it must not be blank, and have a white margin."""
    pixels = image.imread(path)[..., :3].mean(axis=2)
    assert (pixels < 0.9).mean() > 0.002
    assert (pixels[0] == 1).all()
    assert (pixels[-1] == 1).all()
    assert (pixels[:, 0] == 1).all()
    assert (pixels[:, -1] == 1).all()
    return pixels


def words(figure):
    """All texts of a figure in one."""
    import matplotlib.text

    return "\n".join(t.get_text() for t in figure.findobj(matplotlib.text.Text))


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 10, 40))
    values = rng.normal(size=(40, 3))
    values[10:20, 0] = np.nan
    values[:, 2] = np.nan
    return rf.SeriesBatch(
        np.tile(times, 2),
        np.tile(values, (2, 1)),
        [0, 40, 80],
        channels=["pulse", "$p$ressure", "never"],
        ids=["anna", "$bert$"],
        labels=["ill", "well"],
    )


def explanation(n_windows, channels, word_scores, sign=1):
    importance = np.linspace(0, 1, n_windows) * sign
    edges = np.linspace(0, 10, n_windows + 1)
    return SimpleNamespace(
        windows=importance,
        window_edges=edges,
        channels=channels,
        words=word_scores,
        prediction="ill (p = 0.83)",
    )


# Series


def test_a_series_has_one_axes_for_each_channel_and_says_which_it_is(batch, tmp_path):
    figure = plots.plot_series(batch, 0, windows=5, path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["pulse", r"\$p\$ressure", "never"]
    assert "series anna, label ill · 40 points · 5 windows" in words(figure)
    assert "never observed" in words(figure)
    assert figure.axes[-1].get_xlabel() == "time"


def test_missing_values_break_the_line_and_a_thin_one_bridges_them(batch):
    axes = plots.plot_series(batch, 0).axes[0]
    times, values = batch.series(0)
    seen = np.isfinite(values[:, 0])
    thin, line, marks, dropped = axes.lines
    assert thin.get_linestyle() == "--"
    np.testing.assert_array_equal(thin.get_xdata(), times[seen])
    np.testing.assert_array_equal(line.get_ydata(), values[:, 0])
    np.testing.assert_array_equal(marks.get_xdata(), times[seen])
    assert len(dropped.get_xdata()) == 0


def test_cut_lines_stand_at_the_cut_times(batch):
    figure = plots.plot_series(batch, 1, windows=rf.Windows.by_duration(2.0))
    lines = [line.get_xdata()[0] for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    np.testing.assert_allclose(lines, rf.Windows.by_duration(2.0).place(batch).of(1))


def test_dropped_points_are_crosses_off_the_line(batch):
    keep = np.arange(40) % 2 == 0
    figure = plots.plot_series(batch, 0, keep=keep, channels=["$p$ressure"])
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.lines[-1].get_xdata(), batch.series(0)[0][~keep])
    assert "20 dropped" in words(figure)
    assert "1 of 3 channels shown" in words(figure)
    with pytest.raises(InputError, match="keep must be 40 booleans"):
        plots.plot_series(batch, 0, keep=[True])


def test_of_many_channels_the_most_observed_twelve_are_drawn():
    values = np.ones((3, 37))
    values[1:, 5:] = np.nan
    values[1, 20:27] = 1
    figure = plots.plot_series(rf.SeriesBatch([0, 1, 2], values, [0, 3]))
    names = [f"x{c}" for c in [*range(5), *range(20, 27)]]
    assert [axes.get_ylabel() for axes in figure.axes] == names
    assert "12 of 37 channels shown" in words(figure)
    many = [f"x{c}" for c in range(13)]
    with pytest.raises(InputError, match="at most 12 channels fit"):
        plots.plot_series(rf.SeriesBatch([0, 1, 2], values, [0, 3]), channels=many)


def test_a_series_of_one_point_and_one_of_many_are_drawn(tmp_path):
    for n in (1, 5000):
        values = np.sin(np.arange(n))[:, None]
        one = rf.SeriesBatch(np.arange(n), values, [0, n], time_origin=np.datetime64("2024-03-01"))
        figure = plots.plot_series(one, windows=1, path=tmp_path / "a.png")
        picture(tmp_path / "a.png")
        assert figure.axes[0].get_xlabel() == "seconds since 2024-03-01 00:00:00"


def test_a_series_or_channel_that_is_not_there_is_refused(batch):
    with pytest.raises(InputError, match="there is no series 2: the batch has 2"):
        plots.plot_series(batch, 2)
    with pytest.raises(InputError, match="there is no channel 'q'; there are pulse"):
        plots.plot_series(batch, 0, channels=["q"])
    assert plots.plot_series(batch, -1).axes


# Training


def history(n, metric="accuracy"):
    return [
        {
            "epoch": e + 1,
            "train_loss": 1 / (e + 1),
            "valid_loss": 1.2 / (e + 1),
            "valid_metric": -((e - 3) ** 2) / 100,
            "metric": metric,
            "learning_rate": 1e-3,
        }
        for e in range(n)
    ]


@pytest.mark.parametrize("n", [1, 100])
def test_a_history_has_losses_and_a_metric(n, tmp_path):
    figure = plots.plot_history(history(n), path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    left, right, _ = figure.axes
    assert [len(line.get_xdata()) for line in left.lines] == [n, n]
    assert right.get_title(loc="left") == "validation accuracy, higher is better"


def test_the_best_epoch_is_marked_where_the_metric_is_best():
    assert "best 0\nepoch 4" in words(plots.plot_history(history(30)))
    lower = words(plots.plot_history(history(30, "rmse")))
    assert "validation rmse, lower is better" in lower
    assert "epoch 30" in lower
    chosen = plots.plot_history(history(30, "own"), higher_is_better=True)
    assert "epoch 4" in words(chosen)


def test_an_empty_history_and_one_without_validation_are_drawn(tmp_path):
    assert "no epochs yet" in words(plots.plot_history([], path=tmp_path / "a.png"))
    bare = [{"epoch": 1, "train_loss": 1.0, "valid_loss": None, "valid_metric": None, "metric": ""}]
    assert "no validation" in words(plots.plot_history(bare, path=tmp_path / "a.png"))
    picture(tmp_path / "a.png")
    with pytest.raises(InputError, match='under "epoch"'):
        plots.plot_history([{"train_loss": 1.0}])


# Explanation


def test_an_explanation_draws_itself_and_is_a_table(tmp_path):
    x = np.random.default_rng(0).normal(size=(12, 20, 2)).cumsum(axis=1)
    model = rf.RFormerClassifier(windows=4, epochs=1, random_state=0, training={"baselines": False})
    found = model.fit(x, np.arange(12) % 2).explain(x[3:5])[1]
    assert rf.SeriesBatch.of(x[4:5]).equals(found.series)
    assert "→" in words(found.plot(tmp_path / "a.png"))
    picture(tmp_path / "a.png")
    frame = found.to_frame()
    assert frame["kind"].value_counts()[["window", "channel", "word"]].tolist() == [4, 2, 20]
    windows = frame[frame["kind"] == "window"]
    np.testing.assert_array_equal(windows["importance"], found.windows)
    np.testing.assert_array_equal(windows["end"], found.window_edges[1:])
    html = found._repr_html_()
    assert "probability" in html
    assert html.count("<tr>") == 1 + 1 + 2 + 5  # head, window, channels, words
    assert "no epochs yet" not in words(plots.plot_history(model))


def test_batches_and_estimators_show_themselves_in_a_notebook(batch):
    html = batch._repr_html_()
    assert "<td>pulse</td>" in html
    assert "<td>never</td><td>100%</td><td>–</td>" in html
    assert "2 series" in html
    assert "RFormerClassifier" in rf.RFormerClassifier(windows=3)._repr_html_()
    assert "<table>" in rf.SeriesBatch.of(np.zeros((0, 3, 2)), layout="time_first")._repr_html_()


@pytest.mark.parametrize(("n_windows", "sign"), [(0, 1), (1, 1), (20, -1)])
def test_an_explanation_shows_windows_channels_and_words(n_windows, sign, batch, tmp_path):
    scores = {"pulse": 0.7, "$p$ressure": -0.2}
    found = explanation(n_windows, scores, {f"word {k}": k - 3.0 for k in range(20)}, sign)
    figure = plots.plot_explanation(found, batch, 1, path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    text = words(figure)
    assert r"series \$bert\$, label well  →  ill (p = 0.83)" in text
    assert "signature words (first 12 of 20)" in text
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels[:2] == ["pulse", r"\$p\$ressure"]
    shaded = figure.axes[0].collections
    assert [mesh.get_array().size for mesh in shaded] == [n_windows] * (n_windows > 0)


def test_an_explanation_without_channels_or_words_is_drawn(batch, tmp_path):
    figure = plots.plot_explanation(explanation(3, {}, {}), batch, 0, path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    assert words(figure).count("none") == 2
    bad = explanation(3, {}, {})
    bad.window_edges = np.arange(3)
    with pytest.raises(InputError, match=r"windows \(L,\) and window_edges \(L \+ 1,\)"):
        plots.plot_explanation(bad, batch, 0)


# Evaluation


@pytest.mark.parametrize("k", [1, 15, 60])
def test_a_confusion_matrix_has_a_cell_for_each_pair(k, tmp_path):
    matrix = np.eye(k, dtype=int) * 3
    matrix[0, -1] += 1
    figure = plots.plot_confusion(matrix, [f"class {c}" for c in range(k)], path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    assert figure.axes[0].images[0].get_array().shape == (k, k)
    right = "100.0" if k == 1 else f"{300 * k / (3 * k + 1):.1f}"
    assert f"{matrix.sum()} predictions, {right}% right" in words(figure)
    assert (f"class {k - 1}" in words(figure)) == (k <= 40)


def test_a_confusion_matrix_of_nothing_is_drawn_and_a_wrong_one_refused(tmp_path):
    plots.plot_confusion(np.zeros((0, 0)), [], path=tmp_path / "a.png")
    plots.plot_confusion(np.zeros((2, 2)), [0, 1], path=tmp_path / "a.png")
    with pytest.raises(InputError, match=r"matrix must be \(3, 3\) counts"):
        plots.plot_confusion(np.zeros((2, 2)), "abc")
    with pytest.raises(InputError, match="below zero"):
        plots.plot_confusion([[1, -1], [0, 1]], "ab")


@pytest.mark.parametrize(("n", "k"), [(0, 2), (1, 1), (7, 3), (500, 2)])
def test_calibration_is_drawn(n, k, tmp_path):
    p = np.random.default_rng(0).dirichlet(np.ones(k), n).reshape(n, k)
    plots.plot_calibration(np.zeros(n, int), p, path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    with pytest.raises(InputError, match="probabilities"):
        plots.plot_calibration(np.zeros(n + 1, int), p)


def test_the_calibration_error_is_the_mean_gap():
    p = np.repeat([0.2, 0.8], 100)
    figure = plots.plot_calibration(np.ones(200, int), np.stack([1 - p, p], axis=1), bins=2)
    assert "calibration error 0.500" in words(figure)  # (0.8 + 0.2) / 2


@pytest.mark.parametrize("n", [0, 1, 30_000])
def test_a_regression_is_drawn(n, tmp_path):
    rng = np.random.default_rng(0)
    y, error = rng.normal(size=n), rng.standard_t(2, size=n)
    ends = np.stack([y - 1, y + 1], axis=1)
    figure = plots.plot_regression(y, y + error, ends, path=tmp_path / "a.png")
    picture(tmp_path / "a.png")
    if n:
        assert f"{n:,} series; intervals hold 100.0%" in words(figure)
        assert f"RMSE {np.sqrt((error**2).mean()):.3g}" in words(figure)
        bars = figure.axes[1].patches
        assert sum(bar.get_height() for bar in bars) == n  # outliers are in the outermost bars


def test_an_unknown_truth_is_left_out_and_wrong_sizes_are_refused():
    assert "1 series" in words(plots.plot_regression([1.0, np.nan], [1.0, 2.0]))
    with pytest.raises(InputError, match="expected true"):
        plots.plot_regression([1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="interval must be"):
        plots.plot_regression([1.0], [1.0], [1.0])


# All of them


def test_the_users_settings_do_not_leak_in_and_ours_not_out(tmp_path):
    import matplotlib

    before = plots.plot_history(history(3), path=tmp_path / "a.png")
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30.0}):
        plots.plot_history(history(3), path=tmp_path / "b.png")
        assert matplotlib.rcParams["font.size"] == 30.0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert before.axes


def test_the_same_svg_twice_is_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        plots.plot_history(history(3), path=tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot save a picture as"):
        plots.plot_history([], path=tmp_path / "a.xyz")


def test_no_global_state_is_touched_and_matplotlib_comes_only_when_needed():
    code = (
        "import sys, roughformer.plots as p\n"
        "first = 'matplotlib' in sys.modules\n"
        "p.plot_history([])\n"
        "print(first, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'roughformer\[plots\]'"):
        plots.plot_history([])


def test_what_cannot_be_drawn_or_written_is_said_in_words(batch, tmp_path):
    with pytest.raises(InputError, match="a picture is drawn of a SeriesBatch, got ndarray"):
        plots.plot_series(np.zeros((2, 3, 4)))
    with pytest.raises(InputError, match=r"cannot save a picture as .*: No such file"):
        plots.plot_series(batch, path=tmp_path / "none" / "a.png")
