"""Group G of the public cases: runs without a browser."""

from __future__ import annotations

VALUES = {
    "code": "007",
    "n": "3",
    "when": "2024-01-01",
    "none": "None",
    "js": '{"a": [1, 2]}',
    "text": 'it"s """ \n {x} %s $HOME 日本',
    "bad": '"); import os; os.mkdir("pwned") #',
}


def given(**values: str) -> list[str]:
    return [word for name, value in values.items() for word in ("-p", name, value)]


def test_parameters_keep_their_type_and_stay_data(book):
    """G1: text arrives unchanged and runs nothing; only the step that reads a changed value runs again."""
    book.tags["values"] = ["parameters"]
    book.cells = {
        "values": "from resumable_nb import ask\nn = 0",
        "show": f"for name in {list(VALUES)}: print(name, repr(globals()[name]))",
        "one": "%%resumable one\nlength = len(text)",
        "two": "%%resumable two\nanswer = ask(f'Q1 {n}')",
    }
    first = book.run(*given(**VALUES))
    shown = dict(line.split(" ", 1) for line in first.shown("show").strip().split("\n"))

    assert first.code == 0, first.said
    assert shown == {
        "code": "'007'",
        "n": "3",
        "when": "'2024-01-01'",
        "none": "None",
        "js": "{'a': [1, 2]}",
        "text": repr(VALUES["text"]),
        "bad": repr(VALUES["bad"]),
    }
    assert not (book.folder / "pwned").exists()

    again = book.run(*given(**{**VALUES, "n": "4"}))

    assert again.code == 0, again.said
    assert "restored from checkpoint" in again.shown("one")
    assert "restored from checkpoint" not in again.shown("two")
    assert book.server.asked("Q1") == 2


def test_a_cell_that_always_kills_the_kernel(book):
    """G2: what was asked is asked once; the run stops after the third death and names the cell; the edit goes on."""
    kill = "import os\nos.kill(os.getpid(), 9)"
    book.cells = {
        "imports": "from resumable_nb import ask",
        "one": "%%resumable one\nprint(ask('Q0'))",
        "deadly": f"%%resumable deadly\nx = ask('Q1')\n{kill}",
    }
    ended = book.run("--max-restarts", "2")

    assert ended.code == 1
    assert "died 3 times, each time in cell 5 of 5 (step `deadly`, id deadly) by SIGKILL" in ended.stderr
    assert "AQ0-1" in ended.shown("one")
    assert (book.server.asked("Q0"), book.server.asked("Q1")) == (1, 1)

    book.cells["deadly"] = "%%resumable deadly\nx = ask('Q1')"
    again = book.run()

    assert again.code == 0, again.said
    assert book.server.asked("Q1") == 1


def test_a_cell_that_is_meant_to_fail(book):
    """G3: the error is shown and the run goes on; the step is not done, and each question is asked once."""
    book.tags["e"] = ["raises-exception"]
    book.cells = {
        "imports": "from resumable_nb import ask",
        "e": "%%resumable e\na = ask('Q1')\nstate.update(findings=['x'])\nraise ValueError('wanted')",
        "f": "%%resumable f\nb = ask('Q2')",
        "show": "print(len(state.findings))",
    }
    for _ in range(2):
        ran = book.run()

        assert ran.code == 0, ran.said
        assert "ValueError" in ran.shown("e")
        assert ran.shown("show").strip() == "0"
    assert (book.server.asked("Q1"), book.server.asked("Q2")) == (1, 1)
