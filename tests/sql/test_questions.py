"""Each question of docs/questions.md, asked of a store that real research left, has the answer that is true of it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb.errors import QueryRefused
from resumable_nb.journal import Row
from tests.sql.conftest import Story
from tests.sql.questions import PAGE, QUESTIONS, asked
from tests.support.model_server import INPUT_TOKENS, OUTPUT_TOKENS

CALL = INPUT_TOKENS + OUTPUT_TOKENS
ANSWERED = {"brief": 1, "plan": 1, "find": 2, "title": 2, "report": 2}
LAMP, TIDE = "When was the lamp electrified?", "when did the tide mill close?"


@pytest.fixture
def ask(story: Story) -> Any:
    def ask(number: int) -> list[dict[str, Any]]:
        names, rows = story.store.rows(*asked(number))
        return [dict(zip(names, row, strict=True)) for row in rows]

    return ask


def rows_of(story: Story, thread: str = "island") -> list[Row]:
    return story.store.visitor(thread).read()


def last(story: Story, **columns: Any) -> Row:
    """The newest row with these columns."""
    return next(r for r in reversed(rows_of(story)) if all(getattr(r, c) == v for c, v in columns.items()))


def test_the_page_has_them_all() -> None:
    """Twenty questions or more, numbered without a gap; each has one query."""
    assert list(QUESTIONS) == list(range(1, len(QUESTIONS) + 1))
    assert len(QUESTIONS) >= 20
    assert PAGE.read_text().count("```sql") == len(QUESTIONS)
    tests = {name for name in globals() if name.startswith("test_question_")}
    assert len(tests) == len(QUESTIONS)


def test_question_1_cost_of_threads(ask: Any, story: Story) -> None:
    """Each thread with what it paid itself: the fork not for what it brought along, and in all what was asked for."""
    found = {row["thread_id"]: (row["llm_calls"], row["input_tokens"], row["output_tokens"]) for row in ask(1)}

    assert found["island"] == (8, 8 * INPUT_TOKENS, 8 * OUTPUT_TOKENS)
    assert found["harbour"] == (1, INPUT_TOKENS, OUTPUT_TOKENS)
    assert found["post"] == found["bells"] == (0, 0, 0)
    refused_and_lost = 2
    assert sum(calls for calls, _, _ in found.values()) == story.requests - refused_and_lost


def test_question_2_cost_of_steps(ask: Any, story: Story) -> None:
    """Calls, tokens and the time of the newest finished run, in the order of the steps."""
    found = ask(2)

    assert {row["step"]: row["llm_calls"] for row in found if row["llm_calls"]} == ANSWERED
    assert [row["step"] for row in found] == ["brief", "plan", "approve", "find", "title", "report", "letter"]
    assert all(row["input_tokens"] == row["llm_calls"] * INPUT_TOKENS and row["phase"] == "done" for row in found)
    newest = last(story, kind="checkpoint", phase="step", step="find")
    assert found[3]["seconds"] == pytest.approx((newest.duration_ms or 0) / 1000, abs=0.06)


def test_question_3_models_and_days(ask: Any, story: Story) -> None:
    """Tokens per model over all days; failed and lost calls are counted, and cost nothing."""
    found = defaultdict(Counter)
    for row in ask(3):
        found[row["model"]] += Counter(calls=row["calls"], tokens=row["input_tokens"] + row["output_tokens"])

    assert found["small"] == {"calls": 5, "tokens": 4 * CALL}
    assert found["large"] == {"calls": 6, "tokens": 5 * CALL}
    assert {row["day"] for row in ask(3)} <= {
        row.ts.date() for name in ("island", "harbour") for row in rows_of(story, name)
    }


def test_question_4_dollars(ask: Any) -> None:
    """Tokens times the prices of the list."""
    large = (INPUT_TOKENS * 5 + OUTPUT_TOKENS * 20) / 1e6
    small = (INPUT_TOKENS * 0.5 + OUTPUT_TOKENS * 2) / 1e6

    assert {row["step"]: row["dollars"] for row in ask(4)} == pytest.approx(
        {"find": 2 * large, "report": 2 * large, "title": 2 * small, "brief": small, "plan": small}
    )


def test_question_5_slowest_steps(ask: Any, story: Story) -> None:
    """By the newest finished run of each, the slowest first; the shares make up the whole."""
    took = {r.step: r.duration_ms or 0 for r in rows_of(story) if (r.kind, r.phase) == ("checkpoint", "step")}

    assert [row["step"] for row in ask(5)] == sorted(took, key=lambda step: -took[step])
    assert sum(row["percent"] for row in ask(5)) == pytest.approx(100, abs=1)


def test_question_6_speed_of_models(ask: Any, story: Story) -> None:
    """Over the answered calls of all threads, without those that a fork has twice."""
    done = [r for r in rows_of(story) if (r.kind, r.phase) == ("llm", "done")]
    done += [r for r in rows_of(story, "harbour") if (r.kind, r.phase) == ("llm", "done") and r.step == "more"]
    slowest = {m: max(r.duration_ms or 0 for r in done if r.gen_ai_request_model == m) for m in ("large", "small")}
    found = {row["model"]: row for row in ask(6)}

    assert {model: row["slowest_ms"] for model, row in found.items()} == slowest
    assert {model: row["calls"] for model, row in found.items()} == {"large": 5, "small": 4}
    assert all(row["median_ms"] <= row["p95_ms"] <= row["slowest_ms"] for row in found.values())


def test_question_7_what_was_given_up(ask: Any, story: Story) -> None:
    """The first report, which an edited step replaced, and nothing else."""
    first = next(r.seq for r in rows_of(story) if (r.kind, r.phase, r.step) == ("checkpoint", "step", "report"))

    assert ask(7) == [{"step": "report", "checkpoint": first, "calls": 1, "tokens": CALL}]


def test_question_8_what_resuming_saved(ask: Any) -> None:
    """The answers that were in the store when each dead session was followed by another."""
    assert [(r["calls_done"], r["calls_again"], r["tokens_not_paid_again"]) for r in ask(8)] == [
        (4, 0, 4 * CALL),
        (4, 1, 4 * CALL),
        (7, 0, 7 * CALL),
    ]


def test_question_9_growth(ask: Any, story: Story) -> None:
    """Rows and bytes of each thread and kind, as the journal has them."""
    sizes: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for thread in ("island", "harbour", "post", "bells"):
        for r in rows_of(story, thread):
            counts[thread, r.kind] += 1
            sizes[thread, r.kind] += sum(len((t or "").encode()) for t in (r.request, r.response, r.changes, r.data))
            sizes[thread, r.kind] += len(r.body or b"")

    assert {(r["thread_id"], r["kind"]): r["rows"] for r in ask(9)} == counts
    assert {(r["thread_id"], r["kind"]): r["bytes"] for r in ask(9)} == sizes
    assert [r["bytes"] for r in ask(9)] == sorted(sizes.values(), reverse=True)


def test_question_10_when_a_finding_appeared(ask: Any, story: Story) -> None:
    """At the checkpoint of the step that found it."""
    (found,) = ask(10)
    checkpoint = last(story, kind="checkpoint", step="find")

    assert "electrified in 1926" in found["claim"]
    assert (found["step"], found["checkpoint"], found["at"]) == ("find", checkpoint.seq, checkpoint.ts)
    assert (found["source"], found["is_current"]) == ("lamp-history.md", True)


def test_question_11_from_which_call(ask: Any, story: Story) -> None:
    """The answered call of the step in whose answer the quotation stands; each finding has one."""
    answers = {r.seq: r.response or "" for r in rows_of(story) if (r.kind, r.phase) == ("llm", "done")}
    found = ask(11)

    assert len({row["claim"] for row in found}) == len(found) == 3
    assert all(json.dumps(row["claim"])[15:60] in answers[row["call"]] for row in found)
    assert {(row["step"], row["model"]) for row in found} == {("find", "large")}


def test_question_12_sources(ask: Any) -> None:
    """Each source with its findings and the sub-questions that they answer."""
    assert ask(12) == [
        {"source": source, "findings": 1, "sure": 1, "questions": [question]}
        for source, question in (("harbour-board-minutes.txt", LAMP), ("lamp-history.md", LAMP), ("tide-mill.md", TIDE))
    ]


def test_question_13_what_changed(ask: Any) -> None:
    """From the plan to now: the plan was ticked off, findings, decision and receipt came; the query is the same."""
    found = {row["field"]: row for row in ask(13)}

    assert list(found) == ["decisions", "findings", "plan", "receipts"]
    assert found["findings"]["before"] == "[]"
    assert len(json.loads(found["findings"]["after"])) == 3
    assert json.loads(found["receipts"]["after"])[0]["receipt"] == {"sent": 1}


def test_question_14_a_field_over_time(ask: Any) -> None:
    """The plan at the start, as planned, and as it was ticked off."""
    assert [(row["step"], row["op"]) for row in ask(14)] == [(None, "set"), ("plan", "set"), ("find", "set")]
    assert [len(json.loads(row["value"])) for row in ask(14)] == [0, 2, 2]


def test_question_15_what_was_known(ask: Any, story: Story) -> None:
    """At a time to come all that is known now; at the time of the plan no more than the plan."""
    now = {row["field"]: json.loads(row["value"]) for row in ask(15)}
    moment = next(r.ts for r in rows_of(story) if r.seq == story.at_plan).isoformat()
    then = dict(story.store.rows(asked(15)[0].replace("2100-01-01 12:00+00", moment), asked(15)[1])[1])

    assert len(now["findings"]) == 3
    assert then["findings"] == "[]"
    assert [one["question"] for one in json.loads(then["plan"])] == [LAMP, TIDE]


def test_question_16_the_prompt(ask: Any, story: Story) -> None:
    """The request word for word, the context among it, and the answer."""
    (found,) = ask(16)
    asked = last(story, kind="llm", phase="started", step="report")

    assert json.loads(found["prompt"]) == json.loads(asked.request or "")["body"]["messages"]
    assert "electrified in 1926" in found["prompt"]
    assert (found["model"], found["answer"]) == ("large", "As was said: Report in one sentence.")


def test_question_17_asked_twice(ask: Any) -> None:
    """The title, which was lost once and asked for twice; the report, which was refused once."""
    assert [(r["step"], r["times"], r["times_answered"], r["how"]) for r in ask(17)] == [
        ("title", 3, 2, ["lost", "done", "done"]),
        ("report", 2, 1, ["failed", "done"]),
    ]


def test_question_18_forks(ask: Any, story: Story) -> None:
    """The fork, where it left, and what it did since."""
    (found,) = ask(18)

    assert (found["fork"], found["forked_after"], found["forked_at_seq"]) == ("harbour", "plan", story.at_plan)
    assert (found["own_calls"], found["own_steps"]) == (1, ["more"])


def test_question_19_what_a_fork_knows(ask: Any) -> None:
    """The fork lacks what came after the plan; both have the same query."""
    found = {row["field"]: row for row in ask(19)}

    assert found["findings"]["in_the_fork"] == "[]"
    assert len(json.loads(found["findings"]["in_the_thread"])) == 3
    assert "query" not in found


def test_question_20_who_approved(ask: Any, story: Story) -> None:
    """The plan: by whom, with which words, and from question to answer."""
    (found,) = ask(20)
    rows = {r.phase: r for r in rows_of(story) if r.kind == "approval"}

    assert (found["thread_id"], found["step"], found["phase"], found["comment"]) == (
        "island",
        "approve",
        "approved",
        "go on",
    )
    assert [one["question"] for one in json.loads(found["payload"])] == [LAMP, TIDE]
    assert found["who"] == json.loads(rows["approved"].data or "")["who"]
    assert found["waited"] == rows["approved"].ts - rows["requested"].ts


def test_question_21_what_waits(ask: Any) -> None:
    """The letter that nobody has approved; not the one that was decided, nor what a fork brought along."""
    (found,) = ask(21)

    assert (found["thread_id"], found["step"], found["message"]) == ("post", "send", "Send the letter?")
    assert json.loads(found["payload"]) == {"to": "harbour@island.example", "pages": 2}
    assert found["waits"].total_seconds() > 0


def test_question_22_effects_in_doubt(ask: Any) -> None:
    """The one whose process died and that nobody settled, with the command that does."""
    (found,) = ask(22)

    assert (found["thread_id"], found["step"], found["name"], found["idempotency_key"]) == (
        "bells",
        "ring",
        "send",
        "letter-2",
    )
    assert found["answer_with"] == "resumable-nb settle letter-2 --thread bells --happened RECEIPT"


def test_question_23_what_was_done_outside(ask: Any, story: Story) -> None:
    """The letter, its receipt, and that a person said so."""
    (found,) = ask(23)

    assert (found["thread_id"], found["idempotency_key"], found["receipt"]) == ("island", "letter-1", '{"sent":1}')
    assert found["known_from"] == json.loads(last(story, kind="effect", phase="done").data or "")["by"]


def test_question_24_what_died(ask: Any) -> None:
    """Every killed process with what it was at; none of those that ended well."""
    assert [(row["thread_id"], row["under_way"]) for row in ask(24)] == [
        ("island", ["step find"]),
        ("island", ["step title", "llm POST /v1/chat/completions"]),
        ("island", ["step letter", "effect send"]),
        ("bells", ["step ring", "effect send"]),
    ]


def test_question_25_recoveries(ask: Any) -> None:
    """One for each death, with the share of calls that were done again."""
    assert [(r["thread_id"], r["calls_done"], r["calls_again"], r["percent_again"]) for r in ask(25)] == [
        ("island", 4, 0, 0),
        ("island", 4, 1, 25),
        ("island", 7, 0, 0),
        ("bells", 0, 0, 0),
    ]
    assert all(row["seconds"] > 0 for row in ask(25))


def test_question_26_what_failed(ask: Any) -> None:
    """The call that was in flight, the refused one with the server's words, and the function with its exception."""
    assert [(r["thread_id"], r["step"], r["phase"], r["http_status"]) for r in ask(26)] == [
        ("island", "title", "lost", None),
        ("island", "report", "failed", 400),
        ("post", "weigh", "failed", None),
    ]
    assert "told to fail: 400" in ask(26)[1]["why"]
    assert ask(26)[2]["why"] == "OSError: no scales"


def test_question_27_attempts(ask: Any) -> None:
    """Each step with how often it finished, failed, died and waited."""
    found = {row.pop("step"): tuple(row.values()) for row in ask(27)}

    assert found == {
        "brief": (1, 0, 0, 0),
        "plan": (1, 0, 0, 0),
        "approve": (1, 0, 0, 1),
        "find": (1, 0, 1, 0),
        "title": (1, 0, 1, 0),
        "report": (2, 1, 0, 0),
        "letter": (1, 0, 1, 1),
    }


def test_question_28_what_is_not_finished(ask: Any) -> None:
    """What waits for a person, the newest first."""
    assert [(r["thread_id"], r["step"], r["phase"]) for r in ask(28)] == [
        ("bells", "ring", "waiting"),
        ("post", "send", "waiting"),
    ]


def test_question_29_what_happened_last(ask: Any, story: Story) -> None:
    """The newest rows of all threads, the newest first."""
    times = sorted((r.ts for t in ("island", "harbour", "post", "bells") for r in rows_of(story, t)), reverse=True)

    assert [row["ts"] for row in ask(29)] == times[:20]
    assert (ask(29)[0]["thread_id"], ask(29)[0]["kind"], ask(29)[0]["phase"]) == ("bells", "session", "closed")


def test_columns_explain_themselves(story: Story) -> None:
    """The comments in the file can be asked for by SQL, as the page says."""
    (query,) = [
        line.strip("`:. ") for line in PAGE.read_text().split("`") if line.startswith("SELECT column_name, comment")
    ]
    found = dict(story.store.rows(query)[1])

    assert found["llm_calls"] == "LLM calls answered, in all runs"
    assert all(found.values())


PHASES = {
    "steps": "done, started, waiting, failed, interrupted, lost, retired, pruned",
    "llm_calls": "done, partial, failed, lost",
    "calls": "done, partial, failed, lost",
    "effects": "done, failed, not done, in doubt",
    "approvals": "waiting, approved, rejected, refused, dropped",
}


@pytest.mark.parametrize("view", PHASES)
def test_the_comments_name_every_phase(story: Story, view: str) -> None:
    """The comment of `phase` lists what can stand there, and whatever does stand there is listed."""
    sql = "SELECT comment FROM duckdb_columns() WHERE table_name = ? AND column_name = 'phase' AND database_name = 'store'"
    ((comment,),) = story.store.rows(sql, [view])[1]
    listed = set(re.split(r", (?:or )?| or ", re.sub(r" ?\([^)]*\)|[:;].*", "", comment)))
    found = {phase for (phase,) in story.store.rows(f"SELECT DISTINCT phase FROM {view} WHERE phase IS NOT NULL")[1]}

    assert found <= listed
    assert listed == {*PHASES[view].split(", ")}


def test_a_thread_stands_for_itself_in_a_query(story: Story, tmp_path: Path) -> None:
    """`$thread` is the open thread wherever a query names it, beside values of the user's, and a value of theirs wins."""
    story.store.close()
    path = shutil.copy(story.store.path, tmp_path / "research.duckdb")
    with resumable_nb.open("harbour", db=path, say=lambda _: None) as thread:
        for query, params, expected in (
            ("SELECT thread_id FROM threads WHERE thread_id = $thread", None, "harbour"),
            ("SELECT $THREAD", {}, "harbour"),
            ("SELECT $thread || $more", {"more": "!"}, "harbour!"),
            ("SELECT $thread", {"thread": "mine"}, "mine"),
            ("SELECT $Thread", {"thread": "mine"}, "mine"),
            ("SELECT '$thread' -- $thread\n/* $thread */", None, "$thread"),
            ("SELECT $$ $thread $$", None, " $thread "),
            ("SELECT '$thread' || ?", ["."], "$thread."),
            ("SELECT '$thread' || $more", {"more": "."}, "$thread."),
        ):
            assert thread.sql(query, params).iloc[:, 0].tolist() == [expected], query
        assert "harbour" in thread.sql("EXPLAIN SELECT $thread").to_string()
        for wrong, params in (("SELECT $thread, ?", ["x"]), ("SELECT $other, $thread", None), ("SELEC $thread", None)):
            with pytest.raises(QueryRefused):
                thread.sql(wrong, params)


def test_a_thread_takes_values_by_place_and_by_name(story: Story, tmp_path: Path) -> None:
    """`thread.sql` binds values, and takes another time limit."""
    story.store.close()
    path = shutil.copy(story.store.path, tmp_path / "research.duckdb")
    with resumable_nb.open("harbour", db=path, say=lambda _: None) as thread:
        assert thread.sql("SELECT count(*) AS n FROM llm_calls WHERE thread_id = ?", ["harbour"])["n"].tolist() == [1]
        assert thread.sql("SELECT $x AS x", {"x": "'; --"})["x"].tolist() == ["'; --"]
        with pytest.raises(QueryRefused, match=r"longer than 0\.2 s"):
            thread.sql("SELECT count(*) FROM range(1000000000000) r(i) WHERE hash(i) = 1", timeout_s=0.2)
