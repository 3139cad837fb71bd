"""The comparison with others: every contestant does the work, and goes on after it was killed."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from peers import checks, report
from peers.contestants import CONTESTANTS
from peers.steps import NO_HISTORY, Child

from resumable_nb.verify.subject import Point
from resumable_nb.verify.world import World


@pytest.mark.parametrize("name", CONTESTANTS)
def test_a_contestant_goes_on_after_a_kill(name, tmp_path):
    """Steps done before SIGKILL are not done again, and the next one follows on them."""
    missing = [m for m in CONTESTANTS[name].imports.split() if importlib.util.find_spec(m.partition(".")[0]) is None]
    if missing:
        pytest.skip(f"{missing[0]} is installed only where the peers are compared: benchmarks/peers/requirements.txt")
    first = Child(name, tmp_path, 0)
    first.ask("open")
    took = first.ask("steps 5")
    first.kill()
    second = Child(name, tmp_path, 5)
    second.ask("open")
    second.ask("steps 2")
    found = 4 if name in NO_HISTORY else second.ask("appeared 4")[0]
    second.close()

    assert len(took) == 5 and found == 4
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 7 * 1000


@pytest.mark.parametrize(("name", "repeats"), [("JSON lines", True), ("JSON lines, look-up by hand", False)])
def test_the_story_of_others_is_judged(name, repeats, tmp_path):
    """Killed after the ticket was closed and before that is written, a plain loop closes it twice; one that looks does not."""
    (case,) = (case for case in checks.cases() if case.name == name)
    with World() as world:
        world.record(checks.answers())
        checks.prepare(case, tmp_path, world, sample=0, random=0)
        checks.trial_of(case, Point(name="effect.call.after", leg=1), tmp_path / "trial", world)
    (judged,) = case.judged
    failed = {check for check, (result, _) in judged.results.items() if result == "fail"}

    assert judged.injection.killed.outcome == "killed"
    assert failed == ({"no repeated effect"} if repeats else set())
    assert (judged.lost, judged.calls_again) == (0, 0)


def test_a_report_replaces_the_one_before(tmp_path, monkeypatch):
    """A new run's tables stand where the last ones stood, and nothing else of the README changes."""
    monkeypatch.setattr(report, "ROOT", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- peers: x -->\nold\n<!-- end of peers: x -->\nb\n")
    report.into_readme("peers: x", report.markdown(["n"], [[report.digits(1.234)], [None]]))

    assert (
        readme.read_text() == "a\n<!-- peers: x -->\n\n| n |\n| --- |\n| 1.23 |\n| - |\n\n<!-- end of peers: x -->\nb\n"
    )
    with pytest.raises(ValueError, match="no lines"):
        report.into_readme("peers: y", "")
