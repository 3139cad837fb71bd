"""Groups A4, E and H3 of the public cases: what is an answer, what is stored of it, and what it cost."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from tests.cases.book import OPENING, Book
from tests.cases.kernel import kernel

ASK = "from resumable_nb import ask\n"


def test_a_stop_while_waiting_for_a_rate_limit(book: Book) -> None:
    """A4: Ctrl-C during `Retry-After` ends the cell at once, sends nothing more and stores no answer, sync and async."""
    env = {"OPENAI_BASE_URL": book.server.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "RESUMABLE_NB_MODEL": "stub"}
    sync = "%%resumable s\nstate.update(findings=['x']); r = ask('Q1')"
    asynchronous = (
        "%%resumable a\nstate.update(findings=['y'])\n"
        "r2 = await resumable_nb.AsyncOpenAI().chat.completions.create(\n"
        "    model='stub', messages=[{'role': 'user', 'content': 'Q2'}])"
    )
    with kernel(book.folder, env) as running:
        running.run(OPENING, "open")
        running.run(ASK + "import resumable_nb", "imports")
        for cell_id, source, marker in (("s", sync, "Q1"), ("a", asynchronous, "Q2")):
            book.server.script({"marker": marker, "status": 429, "headers": {"Retry-After": "60"}, "times": 100})
            sent = running.send(source, cell_id)
            deadline = time.monotonic() + 120
            while not book.server.asked(marker):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)  # most often the answer is there then, and it waits; the promise holds at any moment
            running.interrupt()
            shown = running.wait(sent, timeout_s=45)  # not the 60 s
            assert "KeyboardInterrupt" in shown or "CancelledError" in shown
            assert f"entry {int(cell_id == 'a')}" in running.run(
                "print('entry', len(thread.state.findings))", f"look {cell_id}"
            )
            done = "print(len(thread.sql(\"select 1 from llm_calls where phase = 'done'\")))"
            assert running.run(done, f"count {cell_id}").strip() == str(int(cell_id == "a"))
            assert book.server.asked(marker) == 1
            book.server.reset()
            again = running.run(source, cell_id)
            assert "Error" not in again, again
            assert book.server.asked(marker) == 1
        assert "['x', 'y']" in running.run("print(state.findings)", "end")


@pytest.mark.parametrize("way", ["ask", "client"])
def test_a_stream_that_just_ends_is_no_answer(book: Book, way: str) -> None:
    """E1: half a text is never stored as an answer, and no step is done with it; the next run has it whole."""
    by_ask = "r = ask('Q1', stream=True)"
    by_client = (
        "import resumable_nb\nchunks = resumable_nb.OpenAI().chat.completions.create(\n"
        "    model='stub', messages=[{'role': 'user', 'content': 'Q1'}], stream=True)\n"
        "r = ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices)"
    )
    book.cells = {
        "imports": ASK,
        "s": "%%resumable s\n" + (by_ask if way == "ask" else by_client),
        "end": "print('<' + r + '>')",
    }
    book.server.script({"marker": "Q1", "keep": 2, "end": "clean", "text": "a whole answer in words"})
    first = book.run()
    if way == "client":
        assert first.code == 1
        assert [row["phase"] for row in book.sql("SELECT phase FROM llm_calls")] == ["failed"]
    again = book.run()

    assert again.code == 0, again.said
    assert book.server.asked("Q1") == 2
    assert "<AQ1-2>" in again.shown("end")


def test_compressed_answers_replay_with_all_fields(book: Book) -> None:
    """E4: gzip, kept headers, and fields that nobody knows come back from the journal as they came live."""
    body = (
        "import resumable_nb\nclient = resumable_nb.OpenAI()\n"
        "raw = client.chat.completions.with_raw_response.create(model='stub', messages=[{'role': 'user', 'content': 'Q1'}])\n"
        "rid = (raw.headers.get('x-request-id'), raw.parse()._request_id, raw.parse().choices[0].message.content)\n"
        "stream = client.chat.completions.create(\n"
        "    model='stub', messages=[{'role': 'user', 'content': 'Q2'}], stream=True, stream_options={'include_usage': True})\n"
        "chunks = [c.model_dump() for c in stream]\n"
    )
    book.server.script(
        {"marker": "Q1", "encoding": "gzip", "headers": {"x-request-id": "req_42"}},
        {"marker": "Q2", "encoding": "gzip", "reasoning": "hm", "tool": "look"},
    )
    show = "import json; print(rid, len(chunks), json.dumps(chunks, sort_keys=True))"
    book.cells = {"s": "%%resumable s\n" + body, "end": show}
    live = book.run()
    assert live.code == 0, live.said
    book.cells["s"] += "_ = 1\n"
    replayed = book.run()

    assert replayed.code == 0, replayed.said
    assert book.server.asked() == 2
    assert "req_42" in live.shown("end")
    assert replayed.shown("end") == live.shown("end")


def test_a_paid_answer_that_does_not_parse_can_be_asked_anew(book: Book) -> None:
    """E5: a cut answer is said to be the recorded one, and `--fresh` asks anew; it never blocks the thread."""
    step = (
        "%%resumable s\nimport resumable_nb\nfrom pydantic import BaseModel\nclass M(BaseModel):\n    x: int\n"
        "r = resumable_nb.OpenAI().chat.completions.parse(\n"
        "    model='stub', messages=[{'role': 'user', 'content': 'Q1'}], response_format=M).choices[0].message.parsed.x"
    )
    book.server.script({"marker": "Q1", "text": '{"x": 1', "finish_reason": "length"})
    book.cells = {"s": step, "end": "print('x is', r)"}
    assert book.run().code == 1
    again = book.run()
    assert book.server.asked("Q1") == 1
    assert again.code == 1
    assert "fresh" in again.said
    book.server.script({"marker": "Q1", "text": '{"x": 2}', "times": 2})
    book.cells["s"] = step.replace("%%resumable s", "%%resumable s --fresh")
    fresh = book.run()

    assert fresh.code == 0, fresh.said
    assert "x is 2" in fresh.shown("end")
    tokens = book.sql("SELECT sum(gen_ai_usage_input_tokens) AS n FROM llm_calls")[0]["n"]
    assert int(tokens) == book.server.stats()["billed"]["input_tokens"]


def test_secrets_in_odd_places_are_nowhere(book: Book) -> None:
    """E6: keys in headers, URLs, cookies and error texts are in no file and no output; another key is the same question."""
    step = (
        "%%resumable s\nimport os, resumable_nb\nbase = os.environ['OPENAI_BASE_URL']\n"
        "client = resumable_nb.http_client()\n"
        "headers = {'API-KEY': os.environ['K'] + 'SECRET1', 'x-goog-api-key': os.environ['K'] + 'SECRET2'}\n"
        "url = base.replace('://', '://user:' + os.environ['K'] + 'SECRET5@') + '/chat/completions?key=' + os.environ['K'] + 'SECRET3'\n"
        "body = {'model': 'stub', 'messages': [{'role': 'user', 'content': 'Q1'}]}\n"
        "text = client.post(url, json=body, headers=headers).json()['choices'][0]['message']['content']\n"
        "refused = client.post(base + '/chat/completions', json={**body, 'messages': [{'role': 'user', 'content': 'Q2'}]}).status_code\n"
        "print(text, refused)"
    )
    book.server.script(
        {"marker": "Q1", "headers": {"Set-Cookie": "s=SECRET4SECRET4"}},
        {
            "marker": "Q2",
            "status": 401,
            "json": {"error": {"message": "Incorrect API key provided: sk-test-SECRETSECRETSECRET"}},
            "times": 5,
        },
    )
    book.cells = {"s": step}
    first = book.run(K="abcdefgh")
    assert first.code == 0, first.said
    book.cells["s"] += "\n_ = 1"
    again = book.run(K="ijklmnop")
    assert again.code == 0, again.said
    assert book.server.asked("Q1") == 1
    texts = [first.said, again.said, book.command("history", "--thread", "t").stdout]
    texts.append(json.dumps(book.sql("SELECT * FROM journal"), default=str))
    blobs = [path.read_bytes() for path in Path(book.folder).iterdir() if path.is_file() and path.name != "nb.ipynb"]
    blobs += [text.encode() for text in texts]

    for prefix in ("abcdefgh", "ijklmnop"):
        for secret in (f"{prefix}SECRET1", f"{prefix}SECRET2", f"{prefix}SECRET3", f"{prefix}SECRET5"):
            for form in (secret.encode(), base64.b64encode(secret.encode())):
                assert not any(form in blob for blob in blobs), secret
    assert not any(b"SECRET4SECRET4" in blob or b"SECRETSECRETSECRET" in blob for blob in blobs)


def test_the_books_stay_right_over_restarts(book: Book) -> None:
    """H3: what `llm_calls` sums to is what was billed, over a crash, replays, skips and a 500; the skip line says the same."""
    asks = "\n".join(f"r{n} = ask('Q{n}')" for n in range(1, 6))
    book.cells = {
        "imports": ASK,
        "s": f"%%resumable s\n{asks}",
        "plain": 'used = thread.sql("select sum(gen_ai_usage_input_tokens) from llm_calls").iloc[0, 0]\nprint("used", int(used))',
    }
    book.server.script({"marker": "Q3", "status": 500})
    assert book.run(kill="http.receive.after:4").code == 1

    def sums() -> int:
        rows = book.sql("SELECT sum(gen_ai_usage_input_tokens)::BIGINT AS n FROM llm_calls")
        return int(rows[0]["n"])

    assert sums() == book.server.stats()["billed"]["input_tokens"]
    done = book.run()
    assert done.code == 0, done.said
    assert "used 500" in done.shown("plain")
    book.cells["s"] += "\n_ = 1"
    replayed = book.run()
    skipped = book.run()

    assert sums() == book.server.stats()["billed"]["input_tokens"] == 500
    assert "used 500" in replayed.shown("plain")
    assert "used 500" in skipped.shown("plain")
    assert "5 LLM calls, 550 tokens" in skipped.shown("s")
