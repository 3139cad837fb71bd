"""Make the golden store of the format that this version writes: tests/journal/golden/format<N>.duckdb.

    python -m tests.journal.make_golden

Run it once per format, before the version that writes it is released, and never again: `test_format.py` holds that
every later version opens the file and reads the same out of it.
"""

from __future__ import annotations

import json
from pathlib import Path

from resumable_nb.journal import Row, Store, schema

FOLDER = Path(__file__).parent / "golden"


def fill(store: Store) -> None:
    """One row of everything that a thread can hold, a finished step, a run with progress, and a fork."""
    session = store.open_session("research", about={"notebook": "golden.ipynb"})
    (start,) = session.append(
        Row(kind="checkpoint", phase="start", parent_seq=0, changes='{"set":{"query":"q","plan":[]},"version":1}')
    )
    (run,) = session.append(Row(kind="step", phase="started", step="search", cell_id="c1", key="f1"))
    call = {
        "step": "search",
        "cell_id": "c1",
        "run_seq": run,
        "name": "POST /v1/chat/completions",
        "key": "k1",
        "occurrence": 0,
    }
    model = {"gen_ai_request_model": "m"}
    asked = {"provider_name": "openai", "operation_name": "chat"}
    session.append(
        Row(kind="llm", phase="started", request='{"prompt": "Q1"}', gen_ai=json.dumps(asked), **call, **model)
    )
    found = '{"append":{"findings":["f1"]}}'
    answered = {
        "duration_ms": 12.5,
        "response": '{"answer" :  1.0}',
        "data": '{"status": 200}',
        "gen_ai": json.dumps(
            {**asked, "response_model": "m-1", "response_id": "r1", "response_finish_reasons": "stop"}
        ),
        "gen_ai_usage_input_tokens": 100,
        "gen_ai_usage_output_tokens": 10,
    }
    session.append(
        Row(kind="llm", phase="done", ref_seq=-1, parent_seq=start, changes=found, **call, **model, **answered),
        Row(kind="value", key="ab" * 32, body=b"\x00\xff"),
        Row(
            kind="checkpoint",
            phase="step",
            parent_seq=start,
            ref_seq=run,
            step="search",
            cell_id="c1",
            key="f1",
            duration_ms=20.0,
            changes='{"append":{"findings":["f1"]},"set":{"plan":["a"]}}',
            data='{"kept": []}',
        ),
    )
    session.append(Row(kind="outputs", ref_seq=session.head, data="[]"), Row(kind="notice", name="step", data='"done"'))
    session.append(
        Row(kind="effect", phase="started", step="send", name="send", key="send-1"),
        Row(kind="approval", phase="requested", step="send", key="h"),
    )
    session.append(
        Row(kind="effect", phase="done", ref_seq=-2, data='{"receipt": 7}'),
        Row(kind="approval", phase="approved", ref_seq=-2, data='{"who": "ada"}'),
    )
    session.append(
        Row(kind="recovery", data=json.dumps({"died": "x", "calls_done": 1, "calls_again": 0, "share": 0.0})),
        Row(kind="cell", cell_id="c0"),
    )
    session.close()
    store.fork("research", session.head - 2, "other")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"format{schema.FORMAT}.duckdb"
    store = Store.open(path)
    fill(store)
    store.close()
    for suffix in (".lock", ".seen"):
        path.with_name(path.name + suffix).unlink()
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
