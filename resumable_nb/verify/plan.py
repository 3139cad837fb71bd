"""Where trials are killed: every durable boundary that the uninterrupted run passed, or a stated sample of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from resumable_nb.verify.subject import Ended, Point

WAITING, TIME = "gate.waiting", "time"
DECIDING = ("approval.decide.before", "approval.decide.after")


def points(legs: Sequence[Ended]) -> list[Point]:
    """All of them, in the order in which they were passed.

    Args:
        legs: the processes of the uninterrupted run; each but the last one ended waiting for a person. Killed while it
            waits, and on both sides of the decision, are points too.
    """
    found = []
    for leg, ended in enumerate(legs):
        for passed in ended.passages:
            about = passed.about
            found.append(Point(name=passed.name, nth=passed.nth, leg=leg, about=about, is_marked=passed.is_marked))
        if ended.outcome == "waiting":
            found.append(Point(name=WAITING, leg=leg, is_marked=True))
            found += [Point(name=name, leg=leg, is_marked=True) for name in DECIDING]
    return found


def sample(found: Sequence[Point], size: int | None) -> list[Point]:
    """A sample of this size, spread evenly; always with the first, the last and both sides of effects, gates and steps.

    Args:
        found: all points, in order.
        size: how many; more, if so many must be in it; None: all.
    """
    if size is None or len(found) <= size:
        return list(found)
    chosen = {0, len(found) - 1} | {place for place, point in enumerate(found) if point.is_marked}
    others = [place for place in range(len(found)) if place not in chosen]
    room = max(0, min(size - len(chosen), len(others)))
    chosen |= {others[(2 * n + 1) * len(others) // (2 * room)] for n in range(room)}
    return [found[place] for place in sorted(chosen)]


def named(found: Sequence[Point], wanted: Sequence[str]) -> list[Point]:
    """The points that are called `NAME` or `NAME:N`, in any process."""
    return [point for point in found if point.name in wanted or f"{point.name}:{point.nth}" in wanted]


def at_random(legs: Sequence[Ended], size: int, *, seed: int) -> list[Point]:
    """Moments drawn over the life of all processes of the uninterrupted run: killed from outside, anywhere.

    Every other one is drawn evenly between two passages instead of over the time, most of which goes into starting.
    """
    draw, found = random.Random(seed), []  # noqa: S311 - repeatable on purpose
    lives = [max(0.001, ended.ended_at - ended.began_at) for ended in legs]
    for number in range(size):
        if number % 2 and (gaps := _gaps(legs)):
            leg, start, end = draw.choice(gaps)
            at = draw.uniform(start, end)
        else:
            at, leg = draw.uniform(0, sum(lives)), 0
            while at > lives[leg] and leg < len(lives) - 1:
                at, leg = at - lives[leg], leg + 1
        found.append(_moment(legs[leg], leg, at))
    return found


def _gaps(legs: Sequence[Ended]) -> list[tuple[int, float, float]]:
    """Leg, begin and end of all times between two passages, in seconds since the process began."""
    found = []
    for leg, ended in enumerate(legs):
        times = [passed.at - ended.began_at for passed in ended.passages]
        found += [(leg, max(0.0, one), max(0.0, other)) for one, other in itertools.pairwise(times)]
    return found


def _moment(ended: Ended, leg: int, at: float) -> Point:
    before = [passed.at - ended.began_at for passed in ended.passages if passed.at - ended.began_at <= at]
    delay_s = at - max(0.0, before[-1]) if before else at
    about = f"ms, {round(delay_s * 1000)} after passage {len(before)}"
    return Point(name=TIME, nth=max(1, round(at * 1000)), leg=leg, about=about, passed=len(before), delay_s=delay_s)
