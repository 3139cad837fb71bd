"""A checker that cannot fail proves nothing: broken notebooks, and a broken library, each caught by the right check.

Broken parts of the library come into the kernels by a startup file of IPython, never by a switch in the product.
"""

from __future__ import annotations

import pytest

from tests.verify.books import failed, plug, verified, write

ASKS = "%%resumable research\nfrom resumable_nb import ask\nfor n in range(1, 4):\n    state.update(findings=[ask(f'Q{n}?')])"
pytestmark = pytest.mark.slow


def test_a_sound_notebook_is_not_accused(tmp_path):
    """The same notebook that broken libraries are tried on passes every check with a sound one."""
    done = verified(write(tmp_path / "nb.ipynb", ASKS), "http.receive.after:3", "step.commit.after:1")

    assert failed(done) == {}
    assert done.passed
    assert [one.injection.was_reached for one in done.judged] == [True, True]


def test_an_effect_outside_effect_is_caught(tmp_path):
    """What is done outside without `@effect` is done again when its step goes on."""
    act = "from resumable_nb.verify import ledger\nledger().act('mail', key='mail-1', arguments={'to': 'lab'})"
    path = write(tmp_path / "nb.ipynb", f"%%resumable send\n{act}\nfrom resumable_nb import ask\nx = ask('Q1?')")

    assert "`mail-1` was done 2 times" in failed(verified(path, "http.send.before:1"))["no repeated effect"]


def test_state_in_a_global_that_is_not_restored_is_caught(tmp_path):
    """What a skipped step left in the process is missing in the next kernel, and the result is another."""
    path = write(
        tmp_path / "nb.ipynb",
        "%%resumable search\nimport os\nos.environ['FOUND'] = 'honey'\nstate.update(plan=['look'])",
        "%%resumable write\nstate.update(findings=[os.environ.get('FOUND', 'nothing')])",
    )

    assert "`findings` of the final state" in failed(verified(path, "step.commit.after:1"))["same result"]


def test_the_time_of_day_in_a_prompt_is_caught(tmp_path):
    """After the restart everything is asked in other words, although the answers were kept."""
    asks = ASKS.replace("f'Q{n}?'", "f'Q{n} at {time.time_ns()}?'").replace("from res", "import time\nfrom res")

    why = failed(verified(write(tmp_path / "nb.ipynb", asks), "http.receive.after:2"))["no repeated effect"]

    assert "2 questions more were sent after the kill than had no answer, 3 of them in other words than before" in why


def test_a_gate_in_memory_only_is_caught(tmp_path, monkeypatch):
    """Only the process that asked knows that it waits: the next one walks through."""
    broken = """
from resumable_nb.asking import Question
from resumable_nb.gates import Answer
sound = Question.pass_or_pause
def forgetful(self, **how):
    gate = self.look()
    if gate is not None and gate.waits:
        return Answer(True, self.payload, "", "", "")
    return sound(self, **how)
Question.pass_or_pause = forgetful
"""
    path = write(tmp_path / "nb.ipynb", "%%resumable send --approve 'Send?'\nstate.update(findings=['sent'])")
    for name, value in plug(tmp_path, broken).items():
        monkeypatch.setenv(name, value)

    why = failed(verified(path, "gate.waiting"))["gates hold"]

    assert "killed while it waited, it did not wait after the restart: done" in why
    assert "`send` went on before anybody had decided" in why


def test_a_store_that_drops_the_last_row_is_caught(tmp_path, monkeypatch):
    """An acknowledged row that a kill takes away is missed, also where the library itself cannot notice."""
    broken = """
import os, pathlib
kill = os.kill
def lossy(pid, number):
    if pid == os.getpid():
        from resumable_nb.journal import session
        for one in list(session.live.values()):
            lease = one._lease
            with lease.using() as con:
                con.execute("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
            lease.close()
            pathlib.Path(str(lease.path) + ".seen").unlink()
    kill(pid, number)
os.kill = lossy
"""
    for name, value in plug(tmp_path, broken).items():
        monkeypatch.setenv(name, value)

    why = failed(verified(write(tmp_path / "nb.ipynb", ASKS), "step.commit.after:1"))["state consistency"]

    assert "1 row acknowledged before the kill is not in the store" in why


def test_a_transport_that_commits_after_handing_on_the_answer_is_caught(tmp_path, monkeypatch):
    """A kill then takes more answers than can be in flight, all of them paid for."""
    broken = """
from resumable_nb.calls.recording import Call
def late(self, row):
    self.scope.before_commit(lambda: self.scope.append(row))
Call._complete = late
"""
    for name, value in plug(tmp_path, broken).items():
        monkeypatch.setenv(name, value)

    why = failed(verified(write(tmp_path / "nb.ipynb", ASKS), "http.send.after:3"))["freshness"]

    assert "the kill lost 3 answers; at most 1 can be in flight" in why


def test_a_skip_that_ignores_a_changed_closure_is_caught(tmp_path, monkeypatch):
    """A function whose closure was edited while the kernel was dead changes the result; a sound library sees it."""
    step = "%%resumable count\nstate.update(findings=[str(count())])"
    make = "def make(n):\n    def count():\n        return n\n    return count\ncount = make({0})"
    old = write(tmp_path / "old.ipynb", make.format(1), step)
    new = write(tmp_path / "nb.ipynb", make.format(2), step)
    assert failed(verified(new, "step.commit.after:1", before=old)) == {}
    broken = "from resumable_nb.fingerprint.stand_ins import StandIns\nStandIns._closure = lambda self, function: ''"
    for name, value in plug(tmp_path, broken).items():
        monkeypatch.setenv(name, value)

    why = failed(verified(new, "step.commit.after:1", before=old))["same result"]

    assert "`findings` of the final state is not that of an uninterrupted run" in why


def test_a_context_that_cannot_be_made_again_is_caught(tmp_path, monkeypatch):
    """What the model was told depends on the process, so that the store alone does not give it any more."""
    broken = """
import os
from resumable_nb.state import State
sound = State.context
State.context = lambda self, max_tokens=None: f"{sound(self, max_tokens)} in process {os.getpid()}"
"""
    for name, value in plug(tmp_path, broken).items():
        monkeypatch.setenv(name, value)

    why = failed(verified(write(tmp_path / "nb.ipynb", ASKS), "http.receive.after:1"))["completeness"]

    assert "what the model was told in row" in why
    assert "cannot be made again from the store" in why


def test_a_credential_that_is_assumed_to_be_valid_is_caught(tmp_path):
    """Kept in a file and never probed, it is used after it was revoked, and the work stops there."""
    login = """
from pathlib import Path
from resumable_nb import ask, effect, resource
from resumable_nb.verify import ledger

def stale():
    kept = Path("token")
    if not kept.exists():
        kept.write_text(ledger().token())
    return kept.read_text()

login = resource("login", acquire=stale)

@effect(key="mail-{n}", lookup=lambda key: ledger().find(key), rehearsal="own")
def mail(n, *, idempotency_key):
    return ledger().act("mail", key=idempotency_key, token=login.get())
"""
    send = "%%resumable send\nfor n in range(2):\n    mail(n)"

    why = failed(verified(write(tmp_path / "nb.ipynb", login, send), "effect.call.before:2"))["outside failure"]

    assert "with its credentials revoked while it was dead, it did not come to its end" in why
