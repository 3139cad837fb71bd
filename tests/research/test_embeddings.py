"""Ranking with an embedding model: it finds other words for the same, is asked once, and may be missing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import resumable_nb
from resumable_nb import gates
from resumable_nb.errors import Paused
from resumable_nb.fingerprint import fingerprint
from resumable_nb.journal import Store
from resumable_nb.llm import embeddings
from resumable_nb.llm.embeddings import BATCH, NoVectors, vectors
from resumable_nb.notebook.accounts import accounts
from resumable_nb.research import Budget, Folder, researcher, table
from resumable_nb.research.ranking import Ranking, fused
from resumable_nb.research.sources import Document, Texts, Together
from tests.research import victim
from tests.support.forked import outcome, preload
from tests.support.research_model import DIMENSIONS, ResearchModel

preload("tests.research.victim")
SEALS, WALL, LAMP = "The pups of the seals come in November.", "The wall is long.", "The lamp burned whale oil in 1870."
ASKED = "Which animals give birth in autumn?"
MODEL = "embedder"


@pytest.fixture(autouse=True)
def _new_process() -> None:
    embeddings._known.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "corpus"
    made.mkdir()
    for name, text in (("a.md", SEALS), ("b.md", WALL), ("c.md", LAMP)):
        (made / name).write_text(text)
    return made


def requests(model: ResearchModel) -> int:
    count: int = model.stats()["paths"].get("/v1/embeddings", 0)
    return count


def opened(tmp_path: Path) -> Any:
    """A session in which nothing is known but what the store knows, as in a new process."""
    embeddings._known.clear()
    return resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None)


def test_rankings_are_fused_by_rank():
    """1/(60 + rank) from each; what both know comes before what one has first; equal sums in order."""
    assert fused([[7, 1], [2, 1]]) == [1, 2, 7]
    assert fused([[3, 4], [4, 3]]) == [3, 4]
    assert fused([[5], []]) == [5]
    assert fused([]) == []


@pytest.mark.parametrize("kind", ["folder", "table", "texts"])
def test_other_words_for_the_same_are_found(kind: str, model: ResearchModel, folder: Path):
    """Words alone find nothing here; without `embed` no request is made."""

    def source(embed: str | None) -> Any:
        frame = pd.DataFrame({"text": [SEALS, WALL, LAMP]})
        make = {
            "folder": lambda: Folder(str(folder), embed=embed),
            "table": lambda: table(frame, text="text", embed=embed),
            "texts": lambda: Texts.of([Document(t[:9], "", t) for t in (SEALS, WALL, LAMP)], embed=embed),
        }
        return make[kind]()

    assert source(None).search(ASKED) == []
    assert requests(model) == 0
    assert source(MODEL).search(ASKED)[0].text == SEALS
    assert source(MODEL).failures == []
    assert fingerprint(source(MODEL), namespace={}).digest != fingerprint(source(None), namespace={}).digest


def test_each_text_is_sent_once_for_a_store(model: ResearchModel, folder: Path, tmp_path: Path):
    """Not again by another step, thread or process, nor by a replay; of a changed file only what is new is sent."""

    def search(source: Any) -> list[str]:
        return [s.text for s in source.search(ASKED, 2)]

    with opened(tmp_path) as thread:
        first = thread.step("one", lambda: search(Folder(str(folder), embed=MODEL)))
        thread.step("two", lambda: search(Folder(str(folder), embed=MODEL)))
    assert requests(model) == 2  # the corpus, and the question
    with opened(tmp_path) as thread:
        again = thread.step("three", lambda: search(Folder(str(folder), embed=MODEL)))
    assert requests(model) == 2 and again == first

    (folder / "b.md").write_text("The wall is long.\n\nSheep graze there.")
    with opened(tmp_path) as thread:
        thread.step("four", lambda: search(Folder(str(folder), embed=MODEL)))
        calls = thread.sql(
            "SELECT step, gen_ai_request_model AS model, gen_ai_operation_name AS asks FROM llm_calls"
        ).to_dict("records")

    sent = {text: model.hits(f"{title} {text}") for title, text in (("a", SEALS), ("b", WALL), ("c", LAMP))}
    assert set(sent.values()) == {1} and model.hits("b Sheep graze there.") == 1
    assert [(c["step"] or None, c["model"], c["asks"]) for c in calls] == [(None, MODEL, "embeddings")] * 3


def test_many_texts_go_in_batches(model: ResearchModel, tmp_path: Path):
    """Each of them is in the journal before the next is sent; equal texts are one."""
    texts = [f"House number {number} is red." for number in range(BATCH * 2 + 1)]
    with opened(tmp_path):
        found = vectors([*texts, texts[0]], MODEL)
    with opened(tmp_path):
        again = vectors(texts, MODEL)

    assert requests(model) == 3
    assert {v.shape for v in found.values()} == {(DIMENSIONS,)} and len(found) == len(texts)
    assert all((found[text] == again[text]).all() for text in texts)
    assert abs(float((found[texts[0]] ** 2).sum()) - 1) < 1e-5


def test_what_was_pruned_is_sent_again(model: ResearchModel, tmp_path: Path):
    """The contents of old answers may go, and with them the vectors."""
    with opened(tmp_path):
        vectors([SEALS, WALL], MODEL)
    resumable_nb.prune(tmp_path / "t.duckdb", answers_before="0h", yes=True)
    with opened(tmp_path):
        assert len(vectors([SEALS, WALL], MODEL)) == 2
    with opened(tmp_path):
        assert len(vectors([SEALS, WALL], MODEL)) == 2

    assert requests(model) == 2


REFUSALS: dict[str, dict[str, Any]] = {
    "no such service": {"status": 404, "json": {"detail": "Not Found"}},
    "no such model": {"status": 404, "json": {"error": {"message": "model 'embedder' not found"}}},
    "chat only": {"status": 400, "json": {"error": {"message": "this model does not support embeddings"}}},
    "no vectors": {"json": {"object": "list", "data": []}},
    "half of them": {"json": {"data": [{"index": 0, "embedding": [1.0, 2.0]}]}},
    "of several lengths": {"json": {"data": [{"index": n, "embedding": [1.0] * (n + 1)} for n in range(3)]}},
    "nonsense": {"json": {"data": [{"index": n, "embedding": "x" if n else None} for n in range(3)]}},
    "another page": {"raw": "<html>hello</html>", "content_type": "text/html"},
}


@pytest.mark.parametrize("rule", REFUSALS.values(), ids=REFUSALS.keys())
def test_without_vectors_words_go_on_and_the_report_says_so(
    rule: dict, model: ResearchModel, folder: Path, tmp_path: Path
):
    """It is asked once, not for each search; the line is in the plan, so a report of a later step has it, too."""
    model.script({"path": "/embeddings", "times": 99, **rule})

    def find(state: Any) -> None:
        state.update(plan=["When did the lamp burn whale oil?", "How long is the wall?"])
        researcher(state, Folder(str(folder), embed=MODEL))

    with opened(tmp_path) as thread:
        thread.step("find", find)
        notes = thread.state.plan[0].notes
        found = {finding.source for finding in thread.state.findings}

    assert len(notes) == 1
    assert notes[0].startswith("Sentences were ranked by their words alone (BM25): the embedding model could not be")
    assert "c.md" in found
    assert requests(model) <= 2


def test_numbers_are_asked_for_where_base64_is_not_known(model: ResearchModel):
    """An error that names it (vLLM once), or an answer without vectors (OpenRouter): the same batch again."""
    unknown = {"error": {"message": "base64 encoding is not currently supported"}}
    for rule in ({"status": 400, "json": unknown}, {"json": {"data": []}}):
        embeddings._known.clear()
        model.script({"path": "/embeddings", **rule})

        assert len(vectors([SEALS, WALL], MODEL)) == 2
        assert model.last()["body"]["encoding_format"] == "float"


def test_a_server_that_ignores_the_encoding_is_read(model: ResearchModel):
    """Ollama and LM Studio give numbers whatever they are asked for; the order of the answer is by its index."""
    data = [{"index": 1, "embedding": [0.0, 2.0]}, {"index": 0, "embedding": [3.0, 0.0]}]
    model.script({"path": "/embeddings", "json": {"data": data}})

    found = vectors(["a", "b"], MODEL)

    assert [found[t].tolist() for t in ("a", "b")] == [[1.0, 0.0], [0.0, 1.0]]


def test_what_looks_like_a_credential_is_not_sent(model: ResearchModel):
    """It is found by its words all the same."""
    key = "sk-Zx81qR7vTn42LmKp90WsYd"
    texts = [f"The lamp has the key {key}.", SEALS]
    ranking = Ranking(texts, MODEL)

    assert ranking.search("lamp key")[0] == 0
    ranking.search(f"lamp {key}")
    assert model.hits(texts[0]) == 0 and model.hits(SEALS) == 1
    assert requests(model) == 2


def test_no_server_at_all_is_told(monkeypatch: pytest.MonkeyPatch):
    """A connection that is refused."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr("resumable_nb.calls.retries.DEFAULT_MAX_RETRIES", 0)

    with pytest.raises(NoVectors, match="embedder: Connection error"):
        vectors(["a"], MODEL)


def test_several_sources_tell_it_once(model: ResearchModel, folder: Path):
    """Their reasons are the same."""
    model.script({"path": "/embeddings", "times": 99, "status": 404, "json": {}})
    together = Together([Folder(str(folder), embed=MODEL), Texts.of([Document("t", "", LAMP)], embed=MODEL)])

    assert {s.text for s in together.search("lamp oil 1870")} == {LAMP}
    assert len(together.failures) == 1 and together.failures[0] in together.problems


@pytest.mark.parametrize("point", ["http.send.before:1", "http.receive.after:2", "http.receive.before:3"])
def test_killed_while_it_embeds_it_ends_as_if_nothing_had_happened(point: str, model: ResearchModel, tmp_path: Path):
    """The same report and findings; at most the requests in flight are sent again."""
    env = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "TQDM_DISABLE": "1"}

    def run(db: str, failpoint: str = "") -> tuple[int | None, Any]:
        return outcome(victim.run, tmp_path / db, failpoint, "embedded", {}, env)

    _, expected = run("whole.duckdb")
    sent = requests(model)
    model.reset()
    killed, _ = run("t.duckdb", point)
    ended, result = run("t.duckdb")

    assert (killed, ended) == (-signal.SIGKILL, 0)
    assert result == expected
    assert sent <= requests(model) <= sent + 1


def test_a_budget_counts_each_batch_and_is_looked_at_before_it(
    model: ResearchModel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Over it a person is asked; what was sent is not sent again, nor counted again, by whatever step or process."""
    monkeypatch.setattr(embeddings, "BATCH", 1)
    source, budget = Folder(str(folder), embed=MODEL), Budget(calls=2)

    def find(state: Any) -> None:
        state.update(plan=[ASKED])
        researcher(state, source, budget=budget)

    with opened(tmp_path) as thread, pytest.raises(Paused, match="on searching the sources"):
        thread.step("find", find)
    assert requests(model) == 2
    gates.decide(Store.open(tmp_path / "t.duckdb"), "t", "find", approve=True, payload='{"calls": 5}')
    with opened(tmp_path) as thread:
        thread.step("find", find)
        first = accounts(thread)
    assert requests(model) == 5  # the corpus, the question, and what is searched for next
    asked = model.asked()
    with opened(tmp_path) as thread:
        thread.step("find", find)
        thread.step("again", lambda state: researcher(state, source, budget=Budget(calls=7)))
        again = accounts(thread)

    assert model.asked() == asked
    assert first[-1] == again[-1] == f"left of the budget: {7 - asked} of 7 calls"


def test_a_budget_that_ends_there_leaves_the_question_open(model: ResearchModel, folder: Path, tmp_path: Path):
    """A no is not asked about again, and no question is sent."""

    def find(state: Any) -> None:
        state.update(plan=[ASKED])
        researcher(state, Folder(str(folder), embed=MODEL), budget=Budget(tokens=10))

    for _ in range(2):
        with opened(tmp_path) as thread, pytest.raises(Paused):
            thread.step("find", find)
    gates.decide(Store.open(tmp_path / "t.duckdb"), "t", "find", approve=False)
    with opened(tmp_path) as thread:
        thread.step("find", find)
        (asked,) = thread.state.plan

    assert asked.status == "open" and "was not looked into to the end: the budget" in asked.notes[-1]
    assert model.asked() == requests(model) == 1


@pytest.mark.parametrize("limits", [{"calls": 1}, {"tokens": 1000}, {"money": 0.01}], ids=str)
def test_killed_while_it_embeds_a_budget_ends_where_it_would_have(limits: dict, model: ResearchModel, tmp_path: Path):
    """A replay stops before the same question, recorded vectors or not."""
    env = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "TQDM_DISABLE": "1"}
    limits = limits | {"prices": {MODEL: (10.0, 0.0)}}

    def run(db: str, failpoint: str = "") -> tuple[int | None, Any]:
        return outcome(victim.run, tmp_path / db, failpoint, "embedded", limits, env)

    _, expected = run("whole.duckdb")
    sent = model.asked()
    model.reset()
    killed, _ = run("t.duckdb", "http.receive.after:1")
    ended, result = run("t.duckdb")

    assert (killed, ended) == (-signal.SIGKILL, 0)
    assert "The budget is used up" in expected
    assert result.partition("--db")[0] == expected.partition("--db")[0]
    assert model.asked() == sent


@pytest.mark.model
def test_the_embedded_model_gives_vectors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """SmolLM2 itself, by the mean over its tokens: the same text has the same vector, and it is kept."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    name = "smollm2-135m-instruct"
    with opened(tmp_path):
        first = vectors([SEALS, WALL], name)
    embeddings._known.clear()
    alone = vectors([SEALS], name)[SEALS]  # no thread is open: it is asked again

    assert first[SEALS].shape == alone.shape == (576,)
    assert float(first[SEALS] @ alone) > 0.999
    assert float(first[SEALS] @ first[WALL]) < 0.999
    with opened(tmp_path) as thread:
        assert (vectors([SEALS], name)[SEALS] == first[SEALS]).all()
        assert len(thread.sql("SELECT * FROM llm_calls")) == 1
