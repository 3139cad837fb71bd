"""A picture that is drawn anew in a cell, with a real kernel behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.screen import OPEN, screen

STEP = """
%%resumable s
from resumable_nb.research.watching import Watch
with Watch("looking", ["why?", "how?"]) as watch:
    watch.log("searched why?")
    watch.ended("why?", "1 finding")
    FAILS
    watch.end("that is all")
print("after")
"""


@pytest.mark.parametrize("fails", ["", "1 / 0"])
def test_the_last_picture_stays(fails: str, tmp_path: Path) -> None:
    """One output, which was updated: without what mattered on the way, or with the reason why it went no further."""
    with screen(tmp_path, a=OPEN, s=STEP.strip().replace("FAILS", fails or "pass")) as nb:
        nb.run("a")
        shown = nb.run("s")

    (picture,) = [data["text/plain"] for data in shown.updated.values() if "looking" in data["text/plain"]]
    told = "that is all" if not fails else "not finished"
    assert picture.splitlines()[0] == f"looking: 1 of 2 sub-questions, 0 findings, {told}"
    assert "searched" not in picture
    assert len([output for output in shown.own if "data" in output]) == 1


def test_a_skip_shows_the_last_picture_again(tmp_path: Path) -> None:
    """After a restart: the same text and the same page, once."""
    with screen(tmp_path, a=OPEN, s=STEP.strip().replace("FAILS", "pass")) as nb:
        nb.run("a")
        before = nb.run("s")
        nb.restart()
        nb.run("a")
        again = nb.run("s")

    pictures = [output["data"] for output in again.own if "data" in output]
    assert "restored" in again.said and len(pictures) == 1
    assert pictures[0] in before.updated.values()
