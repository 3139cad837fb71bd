"""Groups A and B of the public cases: what an edit means, and what it does not mean."""

from __future__ import annotations

from tests.cases.book import Book

ASK = "from resumable_nb import ask\n"


def test_edits_that_mean_nothing_change_nothing(book: Book) -> None:
    """A2: comments, quotes, line breaks, new cell ids and a cell on top skip all steps; one word runs its step and what follows."""
    book.cells = {
        "imports": ASK,
        "a": "%%resumable a\nr1 = ask('Q1 of solar')\nstate.update(findings=[r1])",
        "b": "%%resumable b\nr2 = ask('Q2 of wind')\nstate.update(findings=[r2])",
        "c": "%%resumable c\nr3 = ask('Q3 of water')\nstate.update(findings=[r3])",
        "end": "print(state.findings)",
    }
    first = book.run()
    assert first.code == 0, first.said
    book.cells = {
        "top": "import json",
        "imports2": ASK,
        "a2": '%%resumable a\n# why\nr1 = ask("Q1 of solar")\nstate.update(\n    findings=[r1],\n)',
        "b2": '%%resumable b\nr2 = (ask("Q2 of wind"))  # ask\n\nstate.update(findings=[r2])',
        "c2": '%%resumable c\nr3 = ask("Q3 of water")\nstate.update(findings = [r3])',
        "end2": "print(state.findings)",
    }
    again = book.run()

    assert again.code == 0, again.said
    assert book.server.asked() == 3
    assert all("restored from checkpoint" in again.shown(cell) for cell in ("a2", "b2", "c2"))
    assert again.shown("end2") == first.shown("end")

    book.cells["b2"] = book.cells["b2"].replace("Q2 of wind", "Q2 of storm")
    edited = book.run()

    assert edited.code == 0, edited.said
    assert book.server.asked("Q2") == 2
    assert "restored" in edited.shown("a2")
    assert "its code changed" in edited.shown("b2")
    assert "restored" not in edited.shown("c2")


def test_ordinary_cells_see_what_they_saw_before(book: Book) -> None:
    """A5: an ordinary cell between steps sees the state and the values of its place, also when the steps are skipped."""
    book.cells = {
        "imports": ASK,
        "a": "%%resumable a\nfound = ['x']\nr1 = ask('Q1')\nstate.update(findings=['f1'])",
        "plain": "found.append('y')\nprint('seen', len(state.findings), found)",
        "b": "%%resumable b\nr2 = ask('Q2 ' + ','.join(found))\nstate.update(findings=['f2'])",
    }
    first = book.run()
    again = book.run()

    assert (first.code, again.code) == (0, 0), first.said + again.said
    assert book.server.asked() == 2
    assert "seen 1 ['x', 'y']" in first.shown("plain")
    assert "seen 1 ['x', 'y']" in again.shown("plain")


CHAT = """%%resumable NAME
import openai, resumable_nb
NAME = resumable_nb.OpenAI().chat.completions.create(
    model="stub", temperature=0, seed=1, extra_body={"num_ctx": 2048},
    tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    messages=[
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "QUESTION now"},
    ],
).choices[0].message.content"""
DIFFERENCES = [
    ('"num_ctx": 2048', '"num_ctx": 8192', "num_ctx 2048 → 8192"),
    ("seed=1", "seed=2", "seed 1 → 2"),
    ('"be short"', '"be long"', "messages[0].content 'be short' → 'be long'"),
    ('"hello there"', '"hello you"', "messages[1].content 'hello there' → 'hello you'"),
    ("temperature=0,", 'temperature=0, tool_choice="none",', "tool_choice is new: 'none'"),
]


def test_one_small_difference_is_another_question(book: Book) -> None:
    """B2: a request that differs in one place is asked anew, and the line names the place with both values."""
    chats = {f"s{n}": CHAT.replace("NAME", f"s{n}").replace("QUESTION", f"Q{n}") for n in range(len(DIFFERENCES))}
    book.cells = {**chats, "end": f"print({', '.join(chats)})"}
    assert book.run().code == 0
    assert book.run().code == 0
    assert book.server.asked() == len(DIFFERENCES)

    for name, (old, new, _) in zip(chats, DIFFERENCES, strict=True):
        book.cells[name] = chats[name].replace(old, new)
    edited = book.run()

    assert edited.code == 0, edited.said
    assert edited.shown("end").split() == [f"AQ{n}-2" for n in range(len(DIFFERENCES))]
    for name, (_, _, said) in zip(chats, DIFFERENCES, strict=True):
        assert said in edited.shown(name)


def test_a_clock_in_the_prompt_is_reported(book: Book) -> None:
    """B3: a prompt with the time in it cannot be matched after a crash; that is said and counted, never a silent payment."""
    book.cells = {
        "imports": ASK + "from datetime import datetime",
        "s": (
            "%%resumable s\nstamp = datetime.now().isoformat()\na = ask(f'[{stamp}] Q1 list risks')\n"
            "b = ask('Q2 rank ' + a)"
        ),
    }
    killed = book.run(kill="http.send.before:2")
    assert killed.code == 1
    again = book.run()

    assert again.code == 0, again.said
    assert book.server.asked("Q1") == 2
    assert "differs" in again.shown("s")
    recoveries = book.sql("SELECT (data->>'calls_again')::INT AS again FROM recoveries")
    assert [row["again"] for row in recoveries] == [1]

    third = book.run()

    assert "restored" in third.shown("s")
    assert book.server.asked() == 3


FRAME = "from pandas import DataFrame\nfrom math import nan\ndf = DataFrame({'x': [1, 2], 'n': [1.0, nan]})"


CHANGES = [
    "df = df[::-1].reset_index(drop=True)",
    "df['x'] = df['x'].astype('int32')",
    "df = df.rename(columns={'n': 'm'})",
    "df.index.name = 'row'",
    "df = df[['n', 'x']]",
]


def test_quiet_changes_of_a_frame_are_seen(book: Book) -> None:
    """B4: rows reversed, another dtype, name, index name or column order run the step; NaN is no change."""
    frames = {f"df{n}": FRAME.replace("df", f"df{n}") for n in range(len(CHANGES))}
    steps = {
        f"s{n}": f"%%resumable s{n}\nhit('body {n}'); r{n} = ask('Q{n} ' + str(df{n}.x.sum()))"
        for n in range(len(CHANGES))
    }
    book.cells = {"imports": ASK, **frames, **steps}
    assert book.run().code == 0
    for n, change in enumerate(CHANGES):
        book.cells[f"df{n}"] += "\n" + change.replace("df", f"df{n}")
    changed = book.run()
    unchanged = book.run()

    assert (changed.code, unchanged.code) == (0, 0), changed.said + unchanged.said
    for n, change in enumerate(CHANGES):
        assert book.server.hits(f"body {n}") == 2, change
        assert f"`df{n}`" in changed.shown(f"s{n}")
        assert "restored" in unchanged.shown(f"s{n}")
    assert book.server.asked() == len(CHANGES)


def test_the_helper_of_a_helper_and_a_module_count(book: Book) -> None:
    """B6: a constant two functions away, a helper's body and a module beside the notebook are inputs, by name."""
    (book.folder / "helpers.py").write_text("def tail():\n    return ' one'\n")
    for n in (1, 2):
        book.cells |= {
            f"limit{n}": f"LIMIT{n} = 3",
            f"b{n}": f"def b{n}(s): return s[:LIMIT{n}]",
            f"a{n}": f"def a{n}(s): return 'Q{n} ' + b{n}(s)",
        }
    book.cells |= {
        "imports": ASK,
        "s1": "%%resumable s1\nhit('s1'); r1 = ask(a1('solar'))",
        "s2": "%%resumable s2\nhit('s2'); r2 = ask(a2('solar'))",
        "s3": "%%resumable s3\nfrom helpers import tail\nhit('s3'); r3 = ask('Q3' + tail())",
    }
    assert book.run().code == 0
    book.cells |= {"limit1": "LIMIT1 = 4", "b2": "def b2(s): return s[:LIMIT2] + '!'"}
    (book.folder / "helpers.py").write_text("def tail():\n    return ' two'\n")
    changed = book.run()

    assert changed.code == 0, changed.said
    for step, name in (("s1", "`LIMIT1`"), ("s2", "`b2`"), ("s3", "helpers")):
        assert book.server.hits(step) == 2
        assert name in changed.shown(step)


PAIRS = [
    ("True", "1"),
    ("True", "1.0"),
    ("True", "'1'"),
    ("0.0", "-0.0"),
    ("(1, 2)", "[1, 2]"),
    ("(-1, -1)", "(-2, -2)"),
]


def test_values_that_compare_equal_differ(book: Book) -> None:
    """B7: True, 1, 1.0 and "1"; 0.0 and -0.0; tuple and list; a lock beside them hides nothing."""
    values = {f"v{n}": f"v{n} = {old}" for n, (old, _) in enumerate(PAIRS)}
    steps = {f"s{n}": f"%%resumable s{n}\n(lock, key); r{n} = ask(f'Q{n} {{v{n}!r}}')" for n in range(len(PAIRS))}
    setup = "import threading\nlock = threading.Lock(); key = lambda r: r"
    book.cells = {"imports": ASK, "setup": setup, **values, **steps}
    assert book.run().code == 0
    book.cells |= {f"v{n}": f"v{n} = {new}" for n, (_, new) in enumerate(PAIRS)}
    changed = book.run()
    book.cells |= values
    back = book.run()

    assert (changed.code, back.code) == (0, 0), changed.said + back.said
    for n, pair in enumerate(PAIRS):
        assert book.server.asked(f"Q{n}") == 2, pair
        assert f"`v{n}`" in changed.shown(f"s{n}")
        assert "restored" in back.shown(f"s{n}")


def test_restored_inputs_have_the_fingerprint_of_the_originals(book: Book) -> None:
    """B9: sets, dicts, frames and instances restored under another hash seed and time zone are the same inputs."""
    book.cells = {
        "imports": ASK
        + "import pandas as pd\nfrom dataclasses import dataclass\n@dataclass\nclass Plant:\n    name: str",
        "one": (
            "%%resumable one\ntags = {'solar', 'wind', 'tidal'}; cfg = {'b': 1, 'a': 2}\n"
            "df = pd.DataFrame({'s': ['x', 'y'], 't': pd.to_datetime(['2024-01-01', '2024-01-02']).astype('datetime64[s]'),\n"
            "                   'c': pd.Categorical(['u', 'v']), 'i': pd.array([1, None], dtype='Int64')})\n"
            "inst = Plant('p')"
        ),
        "two": "%%resumable two\nhit('two'); r = ask(f\"Q1 {len(df)} {len(tags)} {cfg['a']} {inst.name}\")",
        "three": "%%resumable three\nr3 = ask('Q2 ' + r)",
    }
    assert book.run(PYTHONHASHSEED="1", TZ="UTC").code == 0
    again = book.run(PYTHONHASHSEED="2", TZ="Asia/Tokyo")

    assert again.code == 0, again.said
    assert all("restored" in again.shown(c) for c in ("one", "two", "three")), again.said
    assert book.server.asked() == 2
    assert book.server.hits("two") == 1
