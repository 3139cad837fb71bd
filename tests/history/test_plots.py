"""Plots of a thread: each shows what the public views say, however little or much there is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb import plots
from resumable_nb.errors import UsageError
from resumable_nb.journal import Row
from resumable_nb.thread import Thread
from tests.notebook.screen import OPEN, screen

STEPS = ["plan", "_draft", "$x$ of $y$", "report"]


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    from matplotlib import pyplot as plt

    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[Thread]:
    with resumable_nb.open("t $1$", db=tmp_path / "t.duckdb") as found:
        yield found


def call(step: str | None, number: int, model: str = "m") -> list[Row]:
    columns: dict[str, Any] = {"kind": "llm", "step": step, "key": f"{number}", "occurrence": 0}
    tokens = {"gen_ai_usage_input_tokens": 90, "gen_ai_usage_output_tokens": 10, "gen_ai_request_model": model}
    return [Row(phase="started", **columns), Row(phase="done", ref_seq=-1, duration_ms=5.0, **tokens, **columns)]


def recovery(done: int, again: int, ms: float) -> Row:
    return Row(
        kind="recovery", phase="done", duration_ms=ms, data=json.dumps({"calls_done": done, "calls_again": again})
    )


def words(ax: Any) -> str:
    legend = ax.get_legend()
    labels = [text.get_text().strip() for text in legend.get_texts()] if legend else []
    return "\n".join([ax.get_title(loc="left"), ax.get_ylabel(), *labels, *(text.get_text() for text in ax.texts)])


def height(ax: Any) -> float:
    """The top of what is stacked."""
    return float(max(path.vertices[:, 1].max() for area in ax.collections for path in area.get_paths()))


def test_nothing_yet_is_said(thread: Thread) -> None:
    """A thread without calls and interruptions has plots that say so."""
    assert "No LLM call yet" in words(thread.plot_spending())
    assert "Nothing was interrupted yet" in words(thread.plot_saved())
    assert "Nothing was interrupted yet" in words(thread.plot_recoveries())


@pytest.mark.parametrize("count", [1, 8])
def test_spending_adds_up_to_what_was_billed(thread: Thread, count: int) -> None:
    """The areas of all steps end at the sum of the view; names are text, whatever is in them."""
    thread.session.append(*(row for n in range(count) for row in call(STEPS[n % 4], n)))
    ax = thread.plot_spending()
    ax.figure.canvas.draw()

    assert height(ax) == 100 * count
    assert f"t $1$: {100 * count} tokens" in words(ax)
    assert words(ax).split("\n")[-min(count, 4) :] == STEPS[: min(count, 4)][::-1]


def test_many_steps_are_added_up(thread: Thread) -> None:
    """2,000 steps make one picture of few areas, and none of what they spent is missing."""
    large = [row for n in range(100) for row in call("large", n)]
    rows = [row for n in range(2000) for row in call(f"s{n}", n)] + large
    for start in range(0, len(rows), 500):
        thread.session.append(*rows[start : start + 500])
    ax = thread.plot_spending()

    assert height(ax) == 210_000
    assert "… 2,000 other steps" in words(ax)
    assert "large" in words(ax)
    assert sum(len(path.vertices) for area in ax.collections for path in area.get_paths()) < 4 * 2 * plots.MOMENTS * 2


def test_money_needs_prices(thread: Thread) -> None:
    """Where nobody knows a price, that is said with the model's name; the prices of a budget are used."""
    thread.session.append(*call("plan", 1, "mine"))
    with pytest.raises(UsageError, match=r"Nobody knows what mine costs.*Budget\(prices="):
        thread.plot_spending(unit="money")
    assert "$" not in words(thread.plot_spending()).replace("$1$", "")
    thread.append(Row(kind="notice", name="budget", data=json.dumps({"prices": {"mine": [1.0, 2.0]}})))
    ax = thread.plot_spending(unit="money")

    assert height(ax) == pytest.approx((90 * 1 + 10 * 2) / 1e6)
    assert "100 tokens, $0.0001" in words(ax)


@pytest.mark.parametrize("count", [1, 90])
def test_resumes_are_shown_as_the_view_has_them(thread: Thread, count: int) -> None:
    """Calls kept and made again add up to those of the view, in one bar or in groups; each resume has its dot."""
    thread.session.append(*(recovery(10, n % 2, 200.0 + n) for n in range(count)))
    saved, took = thread.plot_saved(), thread.plot_recoveries()
    bars: list[Any] = list(saved.patches)

    assert sum(bar.get_height() for bar in bars) == 10 * count
    assert len(bars) <= 2 * plots.BARS
    assert f"{10 * count - count // 2} LLM calls not made again" in words(saved)
    assert sorted(took.collections[0].get_offsets()[:, 1]) == [(200.0 + n) / 1e3 for n in range(count)]  # type: ignore[index,call-overload]
    assert ("median" in words(took)) == (count > 1)


def test_a_plot_goes_where_it_is_wanted(thread: Thread) -> None:
    """With `ax` it draws there and opens no other figure; without matplotlib it says what to install."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3)
    drawn = [thread.plot_spending(ax=axes[0]), thread.plot_saved(ax=axes[1]), thread.plot_recoveries(ax=axes[2])]

    assert drawn == list(axes)
    assert plt.get_fignums() == [figure.number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(UsageError, match="pip install matplotlib"):
            thread.plot_spending()


def test_the_magic_shows_a_picture_and_its_import_is_late(tmp_path: Path) -> None:
    """`%resumable plot` shows an image, each time; until then matplotlib is not imported."""
    with screen(tmp_path, open=OPEN) as nb:
        nb.run("open")
        loaded = nb.value("'matplotlib.pyplot' in __import__('sys').modules")
        shown = [nb.execute(f"%resumable plot {what}", "tool") for what in ("saved", "recoveries", "saved")]
        own = nb.execute("from matplotlib import pyplot\n_ = pyplot.plot([1])", "own")
        wrong = nb.execute("%resumable plot pie", "tool").text()

    assert not loaded
    for one in (*shown, own):
        assert any("image/png" in output.get("data", {}) for output in one.outputs)
    assert "'pie' is no plot" in wrong
