"""A model for the research assistant, in a process of its own: it reads the prompt and answers by simple rules.

It chooses sentences that share two words with the question, copies them, and states each finding. Where the sentence
says MISQUOTE it quotes another number. Rules of `script` work as in `model_server`; the marker is the name of the form
that is asked for: `Understood`, `Plan`, `Extracted`, `Written`, or `Answer`. With `more`, what it extracts is not enough.

It also embeds texts: words that mean the same (`SAME`) point the same way. `hits(text)` is how often one was sent.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from tests.support import model_server
from tests.support.model_server import Handler, Json, ModelServer

SAME = {
    "animals": "seals",
    "birth": "pups",
    "born": "pups",
    "autumn": "november",
    "lantern": "lamp",
    "current": "electri",
}
DIMENSIONS = 64


class ResearchModel(ModelServer):
    """The running server."""

    program = __file__


def form_of(asked: Json) -> str:
    """The name of the form that is asked for; of a question without one, `Text`."""
    name: str = asked.get("response_format", {}).get("json_schema", {}).get("name", "Text")
    return name


def _words(text: str) -> set[str]:
    return {word.lower()[:5] for word in re.findall(r"\w{4,}|\d+", text)} - {"when", "where", "which", "what", "from"}


def _question(prompt: str) -> str:
    return prompt.split("Question: ", 1)[-1].split("\n", 1)[0]


def _numbered(prompt: str) -> list[str]:
    return re.findall(r"^\d+\. (.*)$", prompt, re.MULTILINE)


def _chosen(prompt: str) -> list[int]:
    wanted = _words(_question(prompt))
    return [n for n, line in enumerate(_numbered(prompt), 1) if len(wanted & _words(line)) >= 2]


def _extracted(prompt: str) -> Json:
    lines = _numbered(prompt)
    found: list[Json] = [
        {
            "number": number,
            "quote": lines[number - 1].replace("MISQUOTE", "misquoted"),
            "claim": f"It is said: {lines[number - 1][:100]}",
            "confidence": "high",
        }
        for number in _chosen(prompt)[:6]
    ]
    return {"findings": found, "enough": bool(found), "next_query": "" if found else "lighthouse"}


def _written(prompt: str) -> Json:
    lines = _numbered(prompt)
    years = {n: re.findall(r"electrified in (\d{4})", line) for n, line in enumerate(lines, 1)}
    told = [n for n, found in years.items() if found]
    clash = [{"text": "The year differs.", "findings": told}] if len({str(years[n]) for n in told}) > 1 else []
    answer = [{"text": f"Finding {n} tells.", "findings": [n]} for n in range(1, min(len(lines), 8) + 1)]
    return {"answer": answer, "disagreements": clash, "open_questions": []}


def said(asked: Json) -> str:
    """What it answers."""
    prompt: str = asked["messages"][-1]["content"]
    question = _question(prompt)
    schema: Any = asked.get("response_format", {}).get("json_schema", {}).get("schema", {})
    match form_of(asked):
        case "Understood":
            answer: Json = {"question": question, "scope": "All of it.", "unclear": ""}
        case "Plan":
            parts = [part.strip(" ?") + "?" for part in question.split(", and ")]
            answer = {"sub_questions": [{"question": part, "answered_by": "a sentence"} for part in parts]}
        case "Extracted":
            answer = _extracted(prompt)
        case "Written":
            answer = _written(prompt)
        case "Answer":
            chosen = _chosen(prompt) or [1]
            is_list = schema["properties"]["answer"].get("type") == "array"
            answer = {"answer": chosen[: schema["properties"]["answer"]["maxItems"]] if is_list else chosen[0]}
        case _ if prompt.startswith("Summary so far"):
            return "; ".join(line for line in prompt.splitlines() if "cancel" in line or "berth" in line)
        case _:
            return f"As was said: {prompt[-200:]}"
    return json.dumps(answer)


def vector(text: str) -> list[float]:
    """Which meanings are in a text."""
    found = [0.01] * DIMENSIONS
    for word in re.findall(r"[a-z]{4,}", text.lower()):
        meaning = SAME.get(word, word)[:7]
        found[zlib.crc32(meaning.encode()) % DIMENSIONS] += 1
    return found


def embedded(asked: Json) -> Json:
    """A vector for each text, in the encoding that is asked for."""
    data = []
    for index, text in enumerate(asked["input"]):
        model_server.STATE.ledger[text] += 1
        told: Any = vector(text)
        if asked.get("encoding_format") == "base64":
            told = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *told)).decode()
        data.append({"object": "embedding", "index": index, "embedding": told})
    tokens = sum(len(text) // 4 for text in asked["input"])
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": asked["model"], "data": data, "usage": usage}


class _ResearchHandler(Handler):
    def _as_model(self, path: str, asked: Json, rule: Json, text: str, nth: int) -> None:
        if path.endswith("/embeddings"):
            whole = embedded(asked)
            self.reply(200, {name: v for name, v in whole.items() if name != "usage" or not rule.get("untold")})
            return
        answer = said(asked)
        if rule.get("more"):
            answer = json.dumps(json.loads(answer) | {"enough": False, "next_query": "lighthouse"})
        super()._as_model(path, asked, {"text": answer, **rule}, text, nth)


if __name__ == "__main__":
    model_server.marker_of = form_of
    model_server.Handler = _ResearchHandler  # type: ignore[misc]  # what `serve` uses
    model_server.serve()
