"""Plots of a thread: what was spent, what resuming has saved, how long it took. Extra `plots` (matplotlib).

Each function draws on `ax`, or on a figure of its own, and returns the axes. The data are those of the public views.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from math import floor, log10
from typing import TYPE_CHECKING, Any, Literal

from resumable_nb.errors import UsageError
from resumable_nb.llm.prices import price
from resumable_nb.terminal import counted, one_line, zone

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from resumable_nb.thread import Thread

Unit = Literal["tokens", "money"]
STEPS_SHOWN = 7
"""Steps that have a colour of their own; the others, and those with less than a fiftieth, are one area."""
MOMENTS = 400
"""Points in time: more calls than these are added up."""
BARS = 40
"""Bars: more resumes than these are added up."""
_OUTSIDE = "outside steps"
# Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), told apart by colour-blind people, on white and on black
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B3A100")
_OTHERS, _GREY = "#999999", "#7d7d7d"
_SPENT = """
WITH c AS (
    SELECT seq, epoch(ts) AS ended, epoch(ts) - coalesce(duration_ms, 0) / 1e3 AS began,
           coalesce(step, $outside) AS step, coalesce(gen_ai_response_model, gen_ai_request_model, '') AS model,
           coalesce(gen_ai_usage_input_tokens, 0) AS input, coalesce(gen_ai_usage_output_tokens, 0) AS output
    FROM llm_calls WHERE thread_id = $thread),
b AS (SELECT min(began) AS first, greatest(max(ended) - min(began), 1e-3) AS span FROM c)
SELECT first + span * ceil((ended - first) / span * $moments) / $moments AS moment, step, model, first,
       sum(input)::BIGINT AS input, sum(output)::BIGINT AS output, count(*) AS calls
FROM c, b GROUP BY ALL ORDER BY moment, min(seq)
"""
_RECOVERIES = """
SELECT ts, coalesce(duration_ms, 0) / 1e3 AS seconds, coalesce(calls_done, 0) AS done, coalesce(calls_again, 0) AS again
FROM recoveries WHERE thread_id = $thread ORDER BY seq
"""
_MEAN = """
SELECT avg(coalesce(gen_ai_usage_input_tokens, 0) + coalesce(gen_ai_usage_output_tokens, 0)) AS tokens
FROM llm_calls WHERE thread_id = $thread AND phase = 'done'
"""


# ------------------------------------------------------------------------------------------ the plots
def plot_spending(thread: Thread, *, ax: Axes | None = None, unit: Unit = "tokens") -> Axes:
    """What was spent so far, over time, by step: `tokens`, or `money` in US dollars.

    Args:
        thread: an open thread.
        ax: where to draw; None: a figure of its own.
        unit: prices are those of the research's `Budget`, else of the package `genai-prices`.

    Raises:
        UsageError: matplotlib is missing, or the price of a model is not known.
    """
    if unit not in ("tokens", "money"):
        raise UsageError(f"unit={unit!r}: expected 'tokens' or 'money'.")
    rows = _ask(thread, _SPENT, moments=MOMENTS, outside=_OUTSIDE)
    costs = [_price(thread, row) for row in rows]
    if unit == "money" and None in costs:
        priced = zip(rows, costs, strict=True)
        unknown = sorted({row["model"] or "a model without a name" for row, cost in priced if cost is None})
        raise UsageError(
            f"Nobody knows what {', '.join(unknown)} costs: give them by `Budget(prices={{model: (input, output)}})`, "
            "in US dollars for a million tokens, or install `genai-prices`."
        )
    ax = _axes(ax)
    tokens = sum(row["input"] + row["output"] for row in rows)
    money = "" if None in costs else f", ${sum(x or 0 for x in costs):,.4f}"
    _title(ax, thread, f"{counted(tokens, 'token')}{money}")
    if not rows:
        return _empty(ax, "No LLM call yet")
    tokens_of = [row["input"] + row["output"] for row in rows]
    amounts = [float(x or 0) for x in (costs if unit == "money" else tokens_of)]
    _stack(ax, rows, amounts)
    ax.set_ylabel("US dollars, so far" if unit == "money" else "Tokens, so far")
    digits = _digits(sum(amounts)) if unit == "money" else 0
    ax.yaxis.set_major_formatter(("$" if unit == "money" else "") + f"{{x:,.{digits}f}}")
    return ax


def plot_saved(thread: Thread, *, ax: Axes | None = None) -> Axes:
    """What resuming has saved: at each resume after an interruption, the LLM calls kept, and those made again."""
    rows = _groups(_ask(thread, _RECOVERIES), BARS)
    ax = _axes(ax)
    kept = [sum(r["done"] - min(r["again"], r["done"]) for r in group) for group in rows]
    again = [sum(r["again"] for r in group) for group in rows]
    mean = _ask(thread, _MEAN)[0]["tokens"] or 0
    about = f", about {counted(round(sum(kept) * mean), 'token')}" if mean else ""
    _title(ax, thread, f"{counted(sum(kept), 'LLM call')} not made again{about}")
    if not rows:
        return _empty(ax, "Nothing was interrupted yet")
    places = range(1, len(rows) + 1)
    ax.bar(places, kept, color=_COLOURS[0], label="kept")
    ax.bar(places, again, bottom=kept, color=_COLOURS[1], hatch="///", edgecolor=_GREY, label="made again")
    many = max(map(len, rows))
    ax.set_xlabel("Resume" if many == 1 else f"Resumes, {many} to a bar")
    ax.set_ylabel("LLM calls")
    ax.set_xlim(0.25, max(len(rows), 5) + 0.75)
    ax.set_ylim(0, 1.25 * max(k + a for k, a in zip(kept, again, strict=True)) or 1)
    _whole_numbers(ax)
    _legend(ax)
    return ax


def plot_recoveries(thread: Thread, *, ax: Axes | None = None) -> Axes:
    """How long each resume took, from opening the thread to its first new call: one dot each, and their median."""
    rows = _ask(thread, _RECOVERIES)
    ax = _axes(ax)
    _title(ax, thread, f"{counted(len(rows), 'resume')} after an interruption")
    if not rows:
        return _empty(ax, "Nothing was interrupted yet")
    seconds = sorted(row["seconds"] for row in rows)
    median = seconds[len(seconds) // 2]
    alone = len(rows) == 1
    size = 36 if len(rows) <= 100 else 9
    moments: Any = [_moment(row["ts"]) for row in rows]
    ax.scatter(moments, [row["seconds"] for row in rows], s=size, color=_COLOURS[0], alpha=0.8)
    if not alone:
        ax.axhline(median, color=_COLOURS[5], linestyle="--", linewidth=1, label=f"median {median:.2g} s")
        _legend(ax)
    else:
        ax.set_xlim(moments[0] - timedelta(minutes=1), moments[0] + timedelta(minutes=1))
    ax.set_ylim(0, seconds[-1] * 1.25 or 1)
    ax.set_ylabel("Seconds to the first new call")
    _dates(ax, rows[-1]["ts"])
    return ax


# ------------------------------------------------------------------------------------------ data
def _ask(thread: Thread, query: str, **parameters: Any) -> list[dict[str, Any]]:
    names, rows = thread.store.rows(query, {"thread": thread.thread_id, **parameters})
    return [dict(zip(names, row, strict=True)) for row in rows]


def _price(thread: Thread, row: dict[str, Any]) -> float | None:
    table = (thread.fold.budget or {}).get("prices")
    return price(row["model"], row["input"], row["output"], table) if row["input"] + row["output"] else 0.0


def _groups(rows: Sequence[dict[str, Any]], most: int) -> list[Sequence[dict[str, Any]]]:
    """Neighbours together, so that there are no more than `most` groups."""
    size = -(-len(rows) // most) or 1
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def _moment(value: datetime | float) -> datetime:
    """In the person's time zone, as matplotlib takes it."""
    moment = datetime.fromtimestamp(value).astimezone() if isinstance(value, float | int) else value.astimezone()
    return moment.replace(tzinfo=None)


# ------------------------------------------------------------------------------------------ drawing
def _axes(ax: Axes | None) -> Axes:
    """The given axes, or new ones that can be read on a light page and on a dark one."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise UsageError("Plots need matplotlib: `pip install matplotlib`, then run this again.") from None
    if ax is not None:
        return ax
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    colours: dict[Any, str] = dict.fromkeys(names, _GREY)
    # the first figure of a kernel starts matplotlib's back end, whose settings the end of `rc_context` would undo
    figure = plt.figure(figsize=(8, 4), layout="constrained")
    with plt.rc_context(colours):
        made = figure.subplots()
    figure.patch.set_alpha(0)
    made.patch.set_alpha(0)
    made.spines[["top", "right"]].set_visible(False)
    return made


def _title(ax: Axes, thread: Thread, words: str) -> None:
    ax.set_title(f"{one_line(thread.thread_id, 40)}: {words}", loc="left", parse_math=False)


def _legend(ax: Axes) -> None:
    """In the colour of the axes' own words, in the order in which the areas lie on each other."""
    handles, labels = ax.get_legend_handles_labels()
    shown = ax.legend(handles[::-1], labels[::-1], frameon=False, labelcolor=ax.title.get_color(), loc="upper left")
    for text in shown.get_texts():
        text.set_parse_math(False)


def _empty(ax: Axes, words: str) -> Axes:
    """Nothing to draw yet, and the plot says so."""
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=ax.title.get_color())
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def _stack(ax: Axes, rows: Sequence[dict[str, Any]], amounts: Sequence[float]) -> None:
    """Areas on each other, one for each of the steps that spent most, and one for the others."""
    totals: dict[str, float] = {}
    for row, amount in zip(rows, amounts, strict=True):
        totals[row["step"]] = totals.get(row["step"], 0) + amount
    large = [step for step in totals if totals[step] * 50 >= sum(totals.values())]
    most = {*sorted(large, key=lambda step: -totals[step])[:STEPS_SHOWN]}
    shown = [step for step in totals if step in most]  # in the order in which they began
    others = len(totals) - len(shown)
    moments = sorted({row["first"] for row in rows} | {row["moment"] for row in rows})
    moments.append(moments[-1] + (moments[-1] - moments[0]) / 2 / len(moments))  # so that the last one can be seen
    at = {moment: place for place, moment in enumerate(moments)}
    gained = {step: [0.0] * len(moments) for step in [*shown, None]}
    for row, amount in zip(rows, amounts, strict=True):
        gained[row["step"] if row["step"] in most else None][at[row["moment"]]] += amount
    if not others:
        del gained[None]
    # a label that begins with `_` would be left out by matplotlib
    labels = [
        (f"… {counted(others, 'other step')}" if shown else counted(others, "step"))
        if step is None
        else f" {one_line(step, 30)}"
        for step in gained
    ]
    colours = [_OTHERS if step is None else _COLOURS[place] for place, step in enumerate(gained)]
    times: Any = [_moment(moment) for moment in moments]
    ax.stackplot(times, *map(_so_far, gained.values()), labels=labels, colors=colours, step="post", linewidth=0)
    ax.margins(x=0)
    ax.set_ylim(bottom=0)
    _legend(ax)
    _dates(ax, datetime.fromtimestamp(rows[-1]["moment"], UTC))


def _so_far(gained: Iterable[float]) -> list[float]:
    return list(accumulate(gained))


def _digits(total: float) -> int:
    """Of US dollars, so that the marks of the axis differ."""
    return 2 if total >= 1 or not total else 2 - floor(log10(total))


def _dates(ax: Axes, newest: datetime) -> None:
    """Moments along the axis; the zone is the one at the newest."""
    from matplotlib import dates

    places: Any = dates.AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]  # matplotlib has no hints there
    ax.xaxis.set_major_locator(places)
    ax.set_xlabel(f"Time, {zone(newest)}")
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(places))  # type: ignore[no-untyped-call]  # as above


def _whole_numbers(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
        axis.set_major_formatter("{x:,.0f}")
