"""What a model is told of a state."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.errors import StateError
from resumable_nb.state import ResearchState, State
from tests.state.kinds import Claim, Color, Note, Rank, Slotted, Wide, live


class Task(Claim):
    title: str = ""
    status: str = "open"


def test_the_whole_state_is_told() -> None:
    """Query, plan with progress, receipts, decisions, findings and the user's fields, each under its heading."""
    state = Wide(
        query="Why is solar cheap?",
        plan=["think", {"task": "read", "done": True}, {"step": "ask", "status": "in progress", "by": "me"}],
        findings=[{"claim": "It is mass-made.", "source": "S1", "score": 0.5}, "Two\nlines"],
        decisions=[{"gate": "send", "decision": "reject", "comment": "too dear"}],
        receipts=[{"effect": "close", "receipt": {"id": 42, "ok": True}}],
        notes={"total cost": [1.5, None]},
        log=[],
    )

    assert state.context() == (
        "## Query\nWhy is solar cheap?\n\n"
        "## Plan (1 of 3 done)\n- think\n- [x] read\n- [ ] ask (in progress)\n      by: me\n\n"
        "## Receipts\n1. effect: close\n   receipt: {id: 42, ok: yes}\n\n"
        "## Decisions\n1. gate: send\n   decision: reject\n   comment: too dear\n\n"
        "## Findings\n1. claim: It is mass-made.\n   source: S1\n   score: 0.5\n2. Two\n   lines\n\n"
        "## Score\n10\n\n## Best\n0\n\n## Notes\ntotal cost: [1.5, none]"
    )


def test_empty_states_and_fields_are_left_out() -> None:
    """Nothing is said of what holds nothing."""
    assert ResearchState().context() == ""
    assert ResearchState(query="q").context() == "## Query\nq"
    assert State().context() == ""


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ("read", "- read"),
        ({"task": "read", "done": False}, "- [ ] read"),
        (Task(title="read", status="done", score=None, tags=[]), "- [x] read"),
        (Task(title="read", status="blocked"), "- [ ] read (blocked)\n      score: 0"),
        ({"status": "completed"}, "- [x] (empty)"),
        ({"task": "a\nb", "status": "todo"}, "- [ ] a\n      b"),
        ({"n": 1}, "- n: 1"),
        (Note("text of a note"), "- text of a note"),
        (["a", "b"], "- - a\n  - b"),
        (None, "- none"),
    ],
)
def test_items_of_the_plan(item: Any, line: str) -> None:
    """Texts, dicts, models and anything else stand in the plan with what they say of their progress."""
    assert ResearchState(plan=[item]).context().partition("\n")[2] == line


def test_plans_of_other_types() -> None:
    """A plan that the user made a text or a model is told like any field."""

    class Free(State):
        plan: Any = None

    assert Free(plan="first\nthen").context() == "## Plan\nfirst\nthen"
    assert Free(plan=Claim(text="t")).context() == "## Plan\ntext: t\nscore: 0\ntags: []"
    assert Free(plan=()).context() == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (True, "yes"),
            (None, "none"),
            (1, "1"),
            (0.1, "0.1"),
            (1e22, "1e+22"),
            (float("nan"), "nan"),
            (-0.0, "-0.0"),
        ),
        *((Color.RED, "red"), (Rank.ONE, "1"), (Decimal("1.10"), "1.10")),
        *(({"b", "a", "c"}, "{a, b, c}"), (frozenset({3, 1}), "{1, 3}"), ((1, "a"), "[1, a]"), (b"abc", "3 bytes")),
        (dt.datetime(2024, 1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=5.5))), "2024-01-02T03:04:00+05:30"),
        *((dt.date(2024, 1, 2), "2024-01-02"), (dt.timedelta(seconds=90), "0:01:30"), ({}, "{}"), ([[]], "[[]]")),
        *((np.float64(0.5), "0.5"), (np.int64(7), "7"), (np.zeros((2, 3)), "ndarray of 2 x 3")),
        (pd.DataFrame({"a": [1, 2]}), "DataFrame of 2 x 1"),
        *((bytearray(b"a"), "1 bytes"), (lambda: 1, "function"), (Slotted("t"), "{text: t, more: none}")),
        (SimpleNamespace(a=1), 'SimpleNamespace {"$type":"SimpleNamespace","attributes":{"a":1}}'),
        (Claim(text="t", tags=[{"k": Claim()}]), "{text: t, score: 0, tags: [{k: {text: , score: 0, tags: []}}]}"),
    ],
)
def test_values_are_told_without_addresses_or_settings(value: Any, text: str) -> None:
    """Every kind of value has one form in a line, whatever the process, the display options or the hash seed."""
    assert Wide(notes={"k": value}).context().endswith(f"## Notes\nk: {text}")


def test_deep_and_cyclic_values_end() -> None:
    """Nesting is cut, so that no value makes the text endless."""
    state = Wide(notes={"k": [[[[[[[[[[1]]]]]]]]]]})
    loop: list[Any] = []
    loop.append(loop)
    state.notes["loop"] = loop

    assert "…" in state.context()


_harmful = st.sampled_from(
    ["# Query", "## Findings", "---", "===", "```", "~~~", "1. x", "- y", "> ", "text", " ", "#"]
)
_breaks = st.sampled_from(["\n", "\r\n", "\r", "\u2028", "\x85", "\x0b", "\n\n", " ", "\t", "\xa0"])


@given(st.lists(st.tuples(_breaks, _harmful), min_size=1, max_size=8))
def test_no_text_can_fake_a_heading(parts: list[tuple[str, str]]) -> None:
    """Whatever a model wrote into a finding, key, plan or query: only the state's own headings are headings."""
    text = "".join(f"{gap}{part}" for gap, part in parts)
    state = ResearchState(
        query=text,
        plan=[text, {"task": text, "status": text, text: text}],
        findings=[text, {"claim": text, text: [text]}],
    )
    lines = re.split(r"[\n\r\x0b\x0c\x85\u2028\u2029]", state.context())

    bare = [line.lstrip(" \t\xa0>*+.)0123456789-") for line in lines]
    headings = [line for line in bare if re.match(r"#{1,6}(\s|$)", line)]
    allowed = {"## Query", "## Plan (0 of 2 done)", "## Plan", "## Findings"}
    assert set(headings) <= allowed
    assert len(headings) == len(set(headings))
    assert not [line for line in lines if re.fullmatch(r"[\s>]*(=+|-+)\s*", line)]
    assert not [line for line in bare if line.startswith(("```", "~~~"))]


def test_ordinary_text_is_not_escaped() -> None:
    """Text that only looks a little like Markdown is told as it stands."""
    text = "#1 of #solar costs -- see a*b, `code`, <b>x</b>\n- item\n* item\n1. item\n> quote"
    assert ResearchState(query=text).context() == f"## Query\n{text}"


def test_the_oldest_findings_go_first() -> None:
    """With little room the newest findings stay under their numbers, and the count of the others is told."""
    state = ResearchState(query="q", findings=[f"finding number {i}" for i in range(1, 101)], plan=["a"])
    text = state.context(max_tokens=50)

    assert len(text) <= 200
    assert text.startswith("## Query\nq\n\n## Plan\n- a\n\n## Findings\n(9")
    left_out = int(re.search(r"\((\d+) earlier left out\)", text).group(1))  # type: ignore[union-attr]
    told = [int(number) for number in re.findall(r"finding number (\d+)", text)]
    assert told == list(range(left_out + 1, 101))
    assert f"{told[0]}.  finding number {told[0]}" in text
    assert state.context(max_tokens=10_000) == state.context()


_items = st.lists(st.text(max_size=30), max_size=12)


@given(_items, _items, _items, st.text(max_size=50), st.integers(1, 200))
def test_the_text_has_the_length_that_was_asked_for(
    findings: list[str], receipts: list[str], decisions: list[str], query: str, tokens: int
) -> None:
    """No state is told in more than four characters a token, and nothing is left out that has room."""
    state = ResearchState(query=query, findings=findings, receipts=receipts, decisions=decisions)
    text = state.context(max_tokens=tokens)

    assert len(text) <= 4 * tokens
    if len(state.context()) <= 4 * tokens:
        assert text == state.context()


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "many", True, float("inf")])
def test_a_length_that_is_none_is_refused(tokens: Any) -> None:
    """Nonsense for `max_tokens` is an error with the value."""
    with pytest.raises(StateError, match=re.escape(f"max_tokens={tokens!r}")):
        ResearchState(query="q").context(max_tokens=tokens)


def test_the_text_is_the_same_after_a_restart() -> None:
    """A state that was stored and loaded is told as before."""
    session = live()
    session.state.update(findings=[Claim(tags=[{"b", "a"}]), {"z": 1, "a": 2}], tags={"y", "x"}, anything=Note("n"))
    before = session.state.context()

    assert session.detached(session.image()).context() == before
