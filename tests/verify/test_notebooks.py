"""The promises of the design, held by `resumable-nb verify` on the notebooks of this repository. In full, by hand:

resumable-nb verify notebooks/01_quickstart.ipynb --all --random 200
resumable-nb verify notebooks/02_effects_and_approvals.ipynb -p KILL False --all --random 200
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest

from resumable_nb import demo
from resumable_nb.journal import Store
from resumable_nb.verify import report
from tests.verify.books import failed, verified, write

NOTEBOOKS = demo._notebook().parent
EFFECTS = "02_effects_and_approvals.ipynb"
pytestmark = pytest.mark.slow


def command(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`resumable-nb verify` in a folder of its own."""
    if (NOTEBOOKS / name).exists():
        shutil.copy(NOTEBOOKS / name, folder)
    arguments = [sys.executable, "-m", "resumable_nb", "verify", name, *options]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True)


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    store = Store.open(folder / "verify.duckdb", create=False)
    found = store.rows(query)[1]
    store.close()
    return found


def test_the_quickstart_passes_and_everything_is_written_down(tmp_path):
    """Each trial is a line; the store, the report, the drawings and the JUnit file say the same."""
    done = command(tmp_path, demo.NOTEBOOK, "--sample", "0", "--random", "2", "--junit", "junit.xml", "--jobs", "1",
                   "--at", "http.receive.after:5", "--at", "step.commit.after:1")  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed: 4 trials" in done.stdout
    trials, passed, versions = rows(tmp_path, "SELECT trials, trials_passed, versions FROM verifications")[0]
    assert (trials, passed) == (4, 4)
    assert {"python", "duckdb", "resumable-nb"} <= json.loads(str(versions)).keys()
    judged = rows(
        tmp_path, "SELECT count(*), count(*) FILTER (result = 'fail'), max(calls_again) FROM verification_runs"
    )
    assert judged == [(4 * 7, 0, judged[0][2])]
    assert judged[0][2] in (0, 1)
    cases = ET.parse(tmp_path / "junit.xml").getroot()
    assert (cases.get("tests"), cases.get("failures")) == ("28", "0")
    html = (tmp_path / "01_quickstart.verify" / "report.html").read_text()
    assert html.count("<svg") == 3
    assert "src=" not in html
    assert "href=" not in html
    assert "all 4 trials passed" in (tmp_path / "01_quickstart.verify" / "report.md").read_text()
    assert not list(tmp_path.glob("*.executed.ipynb"))


def test_effects_gates_and_credentials_pass(tmp_path):
    """Killed at a gate, at a decision and on both sides of effects, with all credentials revoked meanwhile."""
    points = ["gate.waiting", "approval.decide.before", "effect.call.before:4", "effect.call.after:2"]
    options = [part for point in points for part in ("--at", point)]
    done = command(tmp_path, EFFECTS, "-p", "KILL", "False", "--jobs", "1", *options)

    assert done.returncode == 0, done.stdout + done.stderr
    counted = dict(
        rows(tmp_path, "SELECT criterion, count(*) FROM verification_runs WHERE result = 'pass' GROUP BY ALL")
    )
    assert counted["gates hold"] == counted["no repeated effect"] == counted["same result"] == 4
    assert counted["outside failure"] == 2


def test_the_research_assistant_passes(tmp_path):
    """Killed while it waits for its plan to be approved."""
    done = command(tmp_path, "03_research.ipynb", "--at", "gate.waiting", "--jobs", "1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert rows(tmp_path, "SELECT trials = trials_passed AND trials >= 2 FROM verifications") == [(True,)]


def test_effects_that_would_reach_the_real_world_are_refused(tmp_path):
    """They are named, with what to do, and no cell is run."""
    write(tmp_path / "nb.ipynb", "open('ran', 'w').close()", "@effect(key='k')\ndef send_mail(): ...")
    done = command(tmp_path, "nb.ipynb")

    assert done.returncode == 2
    assert "effects that would reach the real world: `send_mail` in cell 3 of 3. Nothing was run" in done.stderr
    assert "rehearsal=True" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_notebook_that_fails_by_itself_cannot_be_verified(tmp_path):
    """The message is that of its cell; the record says that it was broken off."""
    write(tmp_path / "nb.ipynb", "%%resumable x\nraise ValueError('no bees')")
    done = command(tmp_path, "nb.ipynb")

    assert done.returncode == 1
    assert "does not come to its end without any kill" in done.stderr
    assert "ValueError: no bees" in done.stderr
    assert rows(tmp_path, "SELECT phase, trials FROM verifications") == [("started", None)]


def test_what_fails_is_told_everywhere_as_plain_text(tmp_path):
    """Exit code 1 and the reason in all reports; text of a notebook is no markup in them."""
    cell = "%%resumable x\nimport os\nfrom resumable_nb import ask\nask('Q1?')\nstate.update(findings=[f'<b>|{os.getpid()}'])"
    done = verified(write(tmp_path / "nb.ipynb", cell), "http.receive.after:1")
    markdown, html, junit = report.markdown(done, []), report.html(done, []), report.junit(done)

    assert "`findings` of the final state" in failed(done)["same result"]
    assert not done.passed
    for text in (markdown, html, junit):
        assert "of the final state is not that of an uninterrupted run" in text
        assert "<b>" not in text
    assert ET.fromstring(junit.partition("\n")[2]).get("failures") == "1"
    assert "1 of 1 trials failed" in markdown


def test_with_a_live_model_a_judge_compares_meaning(environment, tmp_path):
    """Each trial asks anew and gets other words; the judge gets both states, and its word is the result."""
    cell = "%%resumable x\nfrom resumable_nb import ask\nstate.update(findings=[ask('Q1?'), ask('Q2?')])"
    path, seen = write(tmp_path / "nb.ipynb", cell), []

    def judge(usual, now):
        seen.append((usual["findings"], now["findings"]))
        return "not a word in common" if len(seen) > 1 else True

    done = verified(path, "http.receive.after", is_live=True, means_the_same=judge)

    assert environment.asked("Q1") == 3
    assert seen[0] == (["AQ1-1", "AQ2-1"], ["AQ1-2", "AQ2-2"])
    assert failed(done) == {
        "same result": "http.receive.after:2: the judge says of the final state: not a word in common"
    }


@pytest.mark.parametrize("options", [["--at", "http.stream.after:9"], ["--judge", "nothing"], ["--keep", "."]])
def test_what_was_given_wrongly_is_said_in_one_line(tmp_path, options):
    """Exit code 2, and what would be right."""
    write(tmp_path / "nb.ipynb", "%%resumable x\nstate.update(findings=['a'])")
    done = command(tmp_path, "nb.ipynb", *options)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert options[0] in done.stderr or "name a new folder" in done.stderr


def test_ctrl_c_ends_all_kernels_and_leaves_a_record(tmp_path):
    """Exit code 130 at once; no kernel and no folder of trials is left; what was judged by then is in the store."""
    path = write(tmp_path / "nb.ipynb", "%%resumable x\nstate.update(findings=['a'])", "import time\ntime.sleep(0.5)")
    (tmp_path / "tmp").mkdir()
    arguments = [sys.executable, "-u", "-m", "resumable_nb", "verify", path.name, "--all"]
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    run = subprocess.Popen(arguments, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    while not (line := run.stdout.readline()).startswith("2/"):
        assert line, "it ended before the second trial"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=200)
    found = psutil.process_iter(["environ", "status"])
    kernels = [p for p in found if str(tmp_path) in str(p.info["environ"]) and p.info["status"] != "zombie"]

    assert run.returncode == 130
    assert kernels == []
    assert list((tmp_path / "tmp").glob("resumable-nb-verify-*")) == []
    assert int(str(rows(tmp_path, "SELECT count(DISTINCT seq) FROM verification_runs")[0][0])) >= 2
