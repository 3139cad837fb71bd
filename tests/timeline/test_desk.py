"""What a view of the timeline asks its kernel, and what it is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

import resumable_nb
from resumable_nb.journal import Row, Store
from resumable_nb.notebook.timeline import Desk


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a thread `t` of two steps."""
    path = tmp_path / "t.duckdb"
    with resumable_nb.open("t", db=path) as thread:
        thread.step("one", lambda: None)
        thread.step("two", lambda: None)
    return Store.open(path)


def test_nothing_new_is_told_without_opening_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nobody writes, a look costs a glance at the file."""
    desk = Desk(store)
    store.close()
    drawn = desk.answer({"id": 1, "ask": "picture", "thread": "t"})["value"]
    monkeypatch.setattr(Store, "rows", None)

    for look in range(5):
        assert desk.answer({"id": look, "ask": "news", "thread": "t", "version": drawn["version"]}) == {
            "id": look,
            "value": None,
        }


def test_news_tell_the_rows_that_changed(store: Store) -> None:
    """Rows that are as they were come as their places; what is new comes whole."""
    desk = Desk(store)
    drawn = desk.draw("t")
    store.visitor("t").append(Row(kind="step", phase="retired", step="two", cell_id="step two"))
    news = desk.answer({"id": 1, "ask": "news", "thread": "t", "version": drawn["version"]})["value"]

    assert news["rows"][:2] == [0, 1]
    assert news["rows"][2]["stands"] == "retired"
    assert news["head"] == drawn["head"] + 1


def test_a_write_to_another_thread_is_no_news(store: Store) -> None:
    """Somebody else's thread in the same store does not draw this one anew; the list tells of it."""
    desk = Desk(store)
    drawn, listed = desk.draw("t"), desk.list_threads()
    store.fork("t", 3, "other")

    assert desk.answer({"id": 1, "ask": "news", "thread": "t", "version": drawn["version"]})["value"] is None
    news = desk.answer({"id": 2, "ask": "news", "version": listed["version"]})["value"]
    assert [one["thread"] for one in news["threads"]] == ["other", "t"]


def test_older_rows_come_when_they_are_asked_for(store: Store) -> None:
    """A view that asks for more rows gets the older ones whole, the others as their places, and news of as many then."""
    desk = Desk(store)
    asked = {"id": 1, "ask": "news", "thread": "t"}
    drawn = desk.draw("t")
    few = desk.answer(asked | {"version": drawn["version"], "rows": 1})["value"]
    more = desk.answer(asked | {"version": few["version"], "rows": 5})["value"]
    store.visitor("t").append(Row(kind="step", phase="retired", step="two", cell_id="step two"))
    news = desk.answer(asked | {"version": more["version"]})["value"]

    assert (few["rows"], few["earlier"]["count"]) == ([2], 2)
    assert ([row["name"] for row in more["rows"][:2]], more["rows"][2:]) == (["start", "one"], [0])
    assert news["rows"][:2] == [0, 1]


def test_what_was_pruned_is_news(store: Store) -> None:
    """Pruning adds no row; a view that is open shows all the same what went."""
    desk = Desk(store)
    drawn = desk.draw("t")
    resumable_nb.prune(store.path, keep=1, yes=True)
    news = desk.answer({"id": 1, "ask": "news", "thread": "t", "version": drawn["version"]})["value"]

    assert [row["stands"] for row in news["rows"]] == ["start", "pruned", "done"]
    assert news["reading"] != drawn["reading"]


def test_what_checkpoints_rest_on_is_told_of_all(store: Store) -> None:
    """Also of those that are not drawn: the state at a step is put together from them."""
    desk = Desk(store)
    drawn = desk.draw("t")
    chain = [run["checkpoint"] for row in drawn["rows"] for run in row["runs"]]
    asked = desk.answer({"id": 1, "ask": "parents", "thread": "t"})["value"]

    assert asked == dict(zip(map(str, chain), [0, *chain], strict=False))


def test_a_version_that_is_forgotten_is_told_anew(store: Store) -> None:
    """A view whose picture the kernel no longer has gets the whole."""
    news = Desk(store).answer({"id": 1, "ask": "news", "thread": "t", "version": 99})["value"]

    assert [row["name"] for row in news["rows"]] == ["start", "one", "two"]


def test_what_goes_wrong_is_told_in_words(store: Store) -> None:
    """A taken name, an unknown thread, a question that is none: an answer comes in any case."""
    desk = Desk(store)
    asked = {"id": 7, "ask": "fork", "thread": "t", "seq": 3, "name": "t"}

    assert "already" in desk.answer(asked)["error"]
    assert "needs a name" in desk.answer(asked | {"name": " "})["error"]
    assert "no thread 'x'" in desk.answer({"id": 8, "ask": "picture", "thread": "x"})["error"]
    assert desk.answer({"id": 9, "ask": "nonsense"})["error"] == "KeyError: 'nonsense'"


def test_what_stands_for_the_widget_is_escaped_text(tmp_path: Path) -> None:
    """Without widgets there are a table as text and one as HTML; names with tags stay text."""
    with resumable_nb.open("t", db=tmp_path / "t.duckdb") as thread:
        thread.step("<img src=x onerror=alert(1)>", lambda: None)
        data, metadata = thread.timeline()._repr_mimebundle_()
        listed, _ = resumable_nb.threads(tmp_path / "t.duckdb")._repr_mimebundle_()

    assert metadata == {"resumable_nb": {"says": "timeline"}}
    assert "<img src=x onerror=alert(1)>" in data["text/plain"]
    assert "<img" not in data["text/html"]
    assert "t " in listed["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" in data
