"""Cells as durable steps, in real kernels that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.screen import OPEN, Screen, screen

HIT = "_ = open('hits', 'a').write('x')\n"  # counts how often a body really ran


def hits(found: Screen) -> int:
    path = found.folder / "hits"
    return len(path.read_text()) if path.exists() else 0


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    """A notebook with a kernel of its own."""
    with screen(tmp_path, open=OPEN) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    """One kernel with an open thread, for tests that do not restart it. Each test has cells of its own."""
    with screen(tmp_path_factory.mktemp("shared"), open=OPEN) as found:
        assert found.run("open").status == "ok"
        yield found


def start(nb: Screen, **cells: str) -> Screen:
    """Put cells below the one that opens the thread, in place of what was there."""
    nb.cells = {"open": OPEN} | cells
    nb.save()
    return nb


# ---------------------------------------------------------------------------------------------------------- skip
def test_a_finished_step_is_skipped_after_a_kill(nb: Screen) -> None:
    """After SIGKILL a finished step is not run again: names, state and outputs are there, and a line says so."""
    body = HIT + "print('shown')\nx = [1]\nstate.update(findings=['f'])\nx"
    start(nb, a="%%resumable a\n" + body, b="print(x, state.findings)")
    first = nb.run_all()
    nb.restart()
    again = nb.run_all()

    assert hits(nb) == 1
    assert [o.get("text") or o["data"] for o in again["a"].own] == ["shown\n", {"text/plain": "[1]"}]
    assert "restored from checkpoint" in again["a"].said
    assert first["b"].text() == again["b"].text() == "[1] ['f']\n"


def test_a_step_killed_in_its_body_runs_again_from_its_entry(nb: Screen) -> None:
    """A step that was killed leaves no trace in the state."""
    start(nb, a="%%resumable a\n" + HIT + "state.update(findings=['f'])", b="print(state.findings)")
    nb.run("open")
    die = "%%resumable a\nstate.update(findings=['lost'])\nimport os; os.kill(os.getpid(), 9)"
    nb.send(die, "a")
    nb.client.stop_channels()
    nb.manager.shutdown_kernel(now=True)
    nb.start()

    assert nb.run_all()["b"].text() == "['f']\n"


def test_what_stands_around_the_step_line_does_not_matter(nb: Screen) -> None:
    """Comments, blank lines, `%%time` and `%%capture` around the step line leave the step a step."""
    heads = {
        "plain": "%%resumable plain\n",
        "comment": "# why\n\n%%resumable comment\n",
        "above": "%%time\n%%resumable above\n",
        "below": "%%resumable below\n\n%%time\n",
        "quoted": "%%resumable 'a b'  \n",
        "caught": "%%capture\n%%resumable caught\n",
    }
    start(nb, **{name: f"{head}{HIT}y = 2\ny" for name, head in heads.items()})
    first = nb.run_all()
    nb.restart()
    again = nb.run_all()

    assert [first[name].results for name in heads] == [["2"]] * 5 + [[]]
    assert all("restored" in again[name].said for name in heads)
    assert hits(nb) == len(heads)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("import asyncio\nawait asyncio.sleep(0.01)\nv = await asyncio.sleep(0.01, 5)\nv", "5"),
        ("import asyncio\nawait asyncio.sleep(0.01, 6)", "6"),
        ("v = 1;\nv + 1;", None),
        ("for v in (1, 2): pass", None),
        ("w = !echo a\nlist(w)", "['a']"),
        ("%time 3 + 4", "7"),
        ("None", None),
        ("# nothing", None),
        ("def f():\n    return 8\nf()", "8"),
    ],
)
def test_a_step_is_run_like_any_cell(shared: Screen, code: str, result: str | None) -> None:
    """Top-level await, a quiet last line, shell commands and line magics work in a step as ever."""
    name = f"like {hash(code)}"
    start(shared, **{name.replace(" ", ""): f"%%resumable '{name}'\n{code}"})
    first = shared.run(name.replace(" ", ""))
    again = shared.run(name.replace(" ", ""))

    assert (first.status, again.status) == ("ok", "ok"), first.text() + again.text()
    assert first.results == ([result] if result else [])
    assert [o["data"]["text/plain"] for o in again.own if "data" in o] == first.results


def test_an_error_points_at_its_line(shared: Screen) -> None:
    """A traceback names the line on which the statement stands on screen."""
    start(shared, line="# comment\n%%resumable line\n\nx = 1\n1 / 0")
    shown = shared.run("line")

    assert shown.error.startswith("ZeroDivisionError")
    assert "line 5" in shown.text()
    assert shown.text().count("ZeroDivisionError") == 2  # its head and its last line


def test_out_and_underscore_hold_the_value(shared: Screen) -> None:
    """The value of a step's last line is `_` and in `Out`, as for any cell."""
    start(shared, out="%%resumable out\n[1, 2]")
    shared.run("out")

    assert shared.value("_") == [1, 2]
    assert shared.value("list(Out.values())[-1]") == [1, 2]


def test_a_fresh_step_asks_anew_at_every_run(nb: Screen) -> None:
    """`--fresh` retires what is recorded each time the cell runs."""
    start(nb, a=f"%%resumable a --fresh\n{HIT}x = 1")
    nb.run("open", "a", "a")

    assert hits(nb) == 2


# ---------------------------------------------------------------------------------------------------------- errors
def test_a_step_that_raises_is_not_done(nb: Screen) -> None:
    """A step that raises leaves the state as at its entry, stops the queue, and runs again."""
    code = "%%resumable a\nstate.update(findings=['f'])\nif not open_('ok'): raise ValueError('wanted')"
    start(nb, defs="import os\ndef open_(p): return os.path.exists(p)", a=code)
    shown = nb.run_all()["a"]
    assert shown.error == "ValueError: wanted"
    assert nb.value("list(state.findings)") == []
    (nb.folder / "ok").touch()

    assert nb.run("a").status == "ok"
    assert nb.value("list(state.findings)") == ["f"]


@pytest.mark.parametrize("magic", ["capture out", "capture", "time"])
def test_a_magic_that_swallows_an_error_does_not_make_a_step_done(shared: Screen, magic: str) -> None:
    """A step whose error is shown and passed over by a cell magic has failed all the same."""
    name = f"swallowed{len(magic)}"
    start(shared, **{name: f"%%{magic}\n%%resumable {name}\nstate.update(findings=['half'])\n1 / 0"})
    shown = shared.run(name)

    assert shown.error.startswith("ZeroDivisionError")
    assert shared.value("list(state.findings)") == []


def test_errors_of_tasks_are_seen_as_errors(shared: Screen) -> None:
    """A group of errors is shown as the errors in it; one alone stands for the group, and a pause before all else."""
    group = "raise ExceptionGroup('of tasks', [{}])"
    several = shared.execute(group.format("ValueError('one'), TypeError('two')"), "group")
    alone = shared.execute(group.format("ExceptionGroup('inner', [ValueError('one')])"), "group")
    paused = shared.execute(
        "from resumable_nb.errors import Paused\nraise BaseExceptionGroup('g', [ValueError(), Paused('waits')])",
        "group",
    )
    handle = "try:\n    {}\nexcept ExceptionGroup:\n    raise CallError('taken out')"
    taken = f"from resumable_nb.errors import CallError\n{handle}"
    ours = shared.execute(taken.format(group.format("ValueError('one')")), "group")

    assert several.error.startswith("ExceptionGroup")
    assert [o["ename"] for o in several.outputs] == ["ValueError", "TypeError"]
    assert (alone.error, [o["ename"] for o in alone.outputs]) == ("ValueError: one", ["ValueError"])
    assert (paused.error, [o["ename"] for o in paused.outputs]) == ("Paused: waits", ["Paused"])
    assert [o.get("ename") for o in ours.outputs] == ["CallError"]


def test_a_failing_checkpoint_fails_the_cell(nb: Screen) -> None:
    """Where the store cannot take a checkpoint, the cell fails, for a step and for an edit alike."""
    start(nb, a="%%resumable a\nstate.update(findings=['f'])", b="state.query = 'new'")
    nb.run("open")
    (nb.folder / "t.duckdb").rename(nb.folder / "moved.duckdb")
    step, edit = nb.run("a"), nb.run("b")

    assert "StoreReplaced" in step.error
    assert edit.status == "error"


def test_a_thread_that_is_not_open_is_asked_for(tmp_path: Path) -> None:
    """Without an open thread a step is one clear block, and other cells run."""
    with screen(tmp_path, load="%load_ext resumable_nb", a="%%resumable a\nx = 1", b="y = 1\ny") as nb:
        nb.run("load")
        step, plain = nb.run("a"), nb.run("b")

    assert step.error.startswith("UsageError: No thread is open")
    assert len(step.outputs[0]["traceback"]) == 1
    assert plain.results == ["1"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("", "needs a name"), ("a b", "more than one word"), ("a --aprove x", "no option"), ("it's", "quote")],
)
def test_a_wrong_step_line_is_one_clear_block(shared: Screen, line: str, complaint: str) -> None:
    """A step line that cannot be read stops the cell with the usage line; its code does not run."""
    shown = shared.execute(f"%%resumable {line}\nraise SystemError", "wrong")

    assert shown.error.startswith("UsageError")
    assert complaint in shown.text()
    assert "usage: %%resumable NAME" in shown.text()


# ---------------------------------------------------------------------------------------------------------- disturbance
def test_runs_inside_a_cell_are_no_cells(shared: Screen) -> None:
    """Code run by run_cell, `%run` and exec inside a step, also an empty one or one that fails, leaves it one step."""
    (shared.folder / "other.py").write_text("from_file = 1\n")
    inner = "ip.run_cell('a1 = 1')\nip.run_cell('')\nip.run_cell('1 / 0')\nip.run_cell('a2 = 2', store_history=True)\n"
    start(shared, inner="%%resumable inner\nip = get_ipython()\n" + inner + "%run other.py\na1 + a2 + from_file")
    first, again = shared.run("inner"), shared.run("inner")

    assert first.results == ["4"], first.text()
    assert "restored" in again.said


def test_a_step_line_inside_another_cell_is_refused(shared: Screen) -> None:
    """A step line that is reached by `run_cell` or below an unknown magic says that it is no step there."""
    shown = shared.execute("get_ipython().run_cell('%%resumable inside\\nx = 1')", "refused")

    assert "is no step there" in shown.text()
    assert "inside" not in shared.value("thread.fold.step_names()")


def test_a_cell_whose_end_was_not_seen_does_not_swallow_the_next(shared: Screen) -> None:
    """After an interrupt in the very moment in which a cell ends, the next cell is a cell of its own."""
    start(
        shared,
        unseen="hooks, ours = get_ipython().events, get_ipython().resumable_nb\n"
        "hooks.unregister('post_run_cell', ours.post_run_cell)",
        next="%%resumable next\nx = 1",
    )
    shared.run("unseen")
    shared.execute("hooks.register('post_run_cell', ours.post_run_cell)", store_history=False)
    shared.run("next")

    assert "restored" in shared.run("next").said


@pytest.mark.parametrize("options", [{"silent": True}, {"store_history": False}])
def test_requests_of_tools_are_no_cells(shared: Screen, options: dict[str, bool]) -> None:
    """What a front end's tools execute beside the cells neither is checked nor leaves a trace."""
    before = shared.value("thread.session.head")
    shown = shared.execute("tool = 1", **options)

    assert shown.status == "ok"
    assert shared.value("thread.session.head") == before


def test_code_run_by_a_widget_is_no_cell(shared: Screen) -> None:
    """A callback of a widget may run code while no cell runs."""
    setup = (
        "from comm import create_comm, get_comm_manager\n"
        "seen = []\n"
        "def opened(comm, msg):\n"
        "    get_ipython().run_cell('seen.append(1)', store_history=True)\n"
        "get_comm_manager().register_target('widget', opened)"
    )
    start(shared, widget=setup, after="%%resumable after\nstate.update(findings=['w'])")
    shared.run("widget")
    message = shared.client.session.msg("comm_open", {"comm_id": "c", "target_name": "widget", "data": {}})
    shared.client.shell_channel.send(message)

    assert shared.run("after").status == "ok"
    assert shared.value("seen") == [1]


def test_cells_sent_while_another_runs_wait_their_turn(nb: Screen) -> None:
    """Cells queued behind a running one each get their own place and outputs."""
    slow = "import time; time.sleep(0.5)\nprint('a')\nstate.update(findings=['a'])"
    start(
        nb, a="%%resumable a\n" + slow, b="%%resumable b\nprint('b')\nstate.update(findings=['b'])", c="state.findings"
    )
    sent = [nb.send(text, cell_id) for cell_id, text in nb.cells.items()]
    shown = [nb.result(msg_id) for msg_id in sent]

    assert [s.status for s in shown] == ["ok"] * 4
    assert [s.own[0].get("text") for s in shown[1:3]] == ["a\n", "b\n"]
    assert shown[3].results == ["['a', 'b']"]


@pytest.mark.parametrize("body", ["import time; time.sleep(30)", "import asyncio; await asyncio.sleep(30)"])
def test_an_interrupt_ends_a_step(nb: Screen, body: str) -> None:
    """Ctrl-C ends a step at once, also while it awaits; the state is as at its entry, and it runs again."""
    stop = "import os, signal, threading\nthreading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    start(nb, a=f"%%resumable a\nstate.update(findings=['half'])\n{stop}{body}", b="state.findings")
    nb.run("open")
    shown = nb.run("a")

    assert shown.error.split(":")[0] in ("KeyboardInterrupt", "CancelledError")
    assert nb.value("list(state.findings)") == []
    assert nb.execute("%%resumable a\nstate.update(findings=['f'])", "a").status == "ok"


def test_reset_takes_nothing_away(shared: Screen) -> None:
    """After `%reset` the thread is still open, and `state` and `thread` are there."""
    start(shared, reset="%reset -f", then="%%resumable then\nstate.update(findings=['r'])\nthread.thread_id")

    assert shared.run("reset", "then").results == ["'t'"]


# ---------------------------------------------------------------------------------------------------------- the state
def test_an_edit_is_kept(nb: Screen) -> None:
    """What an ordinary cell changes in the state is there after a kill, and seen from its place on."""
    start(nb, a="state.query = 'edited'", b="state.query")
    nb.run_all()
    nb.restart()
    shown = nb.run("open")

    assert "edited" in shown.said
    assert nb.run("a", "b").results == ["'edited'"]


def test_a_change_in_the_opening_cell_is_not_lost_silently(nb: Screen) -> None:
    """A state change in the cell that opens the thread is said not to be kept."""
    start(nb, open=OPEN + "\nstate.query = 'lost'", a="state.query")
    shown = nb.run("open")

    assert "not kept" in shown.said
    assert nb.run("a").results == ["'q'"]


# ---------------------------------------------------------------------------------------------------------- places
def test_a_step_below_an_unfinished_one_names_it(nb: Screen) -> None:
    """A step stops when one above it has not ended, and names it."""
    start(nb, a="%%resumable a\nx = 1", b="%%resumable b\ny = 1")
    nb.run("open")
    shown = nb.run("b")

    assert shown.error.startswith("RunFirst")
    assert "`a`" in shown.text()
    assert nb.run("a", "b").status == "ok"


def test_the_order_on_screen_counts_when_it_is_sent(nb: Screen) -> None:
    """With the JupyterLab extension an unsaved new cell above is known."""
    start(nb, b="%%resumable b\ny = 1")
    nb.run("open")
    told = {"cellOrder": ["open", "new", "b"], "cellSources": [OPEN, "%%resumable new\nx = 1", nb.cells["b"]]}
    shown = nb.execute(nb.cells["b"], "b", metadata=told | {"notebookPath": "nb.ipynb"})

    assert shown.error.startswith("RunFirst")
    assert "`new`" in shown.text()


def test_a_guessed_place_is_said(nb: Screen) -> None:
    """A step that the saved notebook does not have says that its place is a guess."""
    nb.run("open")

    assert "Save the notebook" in nb.execute("%%resumable new\nx = 1", "new").said


def test_two_steps_of_one_name_are_refused(nb: Screen) -> None:
    """The second cell with a name that is in use is refused."""
    start(nb, a="%%resumable a\nx = 1", b="%%resumable a\ny = 1")

    assert nb.run("open", "a", "b").error.startswith("NameTaken")


def test_cells_above_the_opening_one_need_not_run_again(nb: Screen) -> None:
    """Imports and definitions above the cell that opens the thread are known to the steps below."""
    nb.cells = {"above": "import json\ndef f(): return json.dumps([1])", "open": OPEN, "a": "%%resumable a\nf()"}
    nb.save()

    assert nb.run_all()["a"].results == ["'[1]'"]


def test_a_console_without_cell_ids_works(nb: Screen) -> None:
    """Without cell ids steps are done in the order of execution, and skipped in the next session."""

    def session() -> list[str]:
        codes = [OPEN, f"%%resumable a\n{HIT}x = 1", "x += 1", f"%%resumable b\n{HIT}x + 1"]
        return [nb.execute(code).said for code in codes]

    session()
    nb.restart()
    again = session()

    assert hits(nb) == 2
    assert ["restored" in said for said in again] == [False, True, False, True]


# ---------------------------------------------------------------------------------------------------------- cases
def test_edits_that_mean_nothing(nb: Screen) -> None:
    """A2: comments, quotes, line breaks, new cell ids and a new cell on top leave the steps done."""
    steps = {n: f"%%resumable {n}\n{HIT}state.update(findings=['{n}'])\nv{n} = len('{n}')" for n in "abc"}
    start(nb, **steps)
    nb.run_all()
    nb.cells = {"new": OPEN, "json": "import json"}
    for n in "abc":
        body = f'# why\n{HIT}state.update(\n    findings=["{n}"]  # more\n)\n\nv{n} = (len("{n}"))'
        nb.cells[f"other{n}"] = f"# on top\n%%resumable {n}\n{body}"
    nb.save()
    nb.restart()
    again = nb.run_all()

    assert [again[f"other{n}"].status for n in "abc"] == ["ok"] * 3, [s.text() for s in again.values()]
    assert all("restored" in again[f"other{n}"].said for n in "abc")
    assert hits(nb) == 3


def test_plain_cells_see_what_they_saw_before(nb: Screen) -> None:
    """A5: an ordinary cell between two steps sees the state of its place; run twice, the step below is not skipped."""
    start(
        nb,
        a=f"%%resumable a\n{HIT}found = ['x']\nstate.update(findings=['f1'])",
        plain="found.append('y'); print('seen', len(state.findings))",
        b=f"%%resumable b\n{HIT}r2 = ','.join(found)\nstate.update(findings=['f2'])",
    )
    nb.run_all()
    nb.restart()
    again = nb.run_all()
    assert (again["plain"].text(), nb.value("found"), hits(nb)) == ("seen 1\n", ["x", "y"], 2)
    nb.run("plain")
    shown = nb.run("b")

    assert "restored" not in shown.said
    assert "a" in (shown.error or shown.said)


def test_a_step_that_is_meant_to_fail_leaves_nothing(nb: Screen) -> None:
    """G3: a step that raises leaves no finding, and the one below runs from the same state."""
    nb_cells = {
        "e": "%%resumable e\nstate.update(findings=['x'])\nraise ValueError('wanted')",
        "f": "%%resumable f\nlen(state.findings)",
    }
    start(nb, **nb_cells)
    nb.run("open")

    assert nb.run("e").error == "ValueError: wanted"
    assert "`e`" in nb.run("f").error or nb.run("f").results == ["0"]
