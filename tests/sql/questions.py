"""The questions of docs/questions.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from resumable_nb.journal import statements

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
QUESTIONS: dict[int, str] = {
    int(number): query
    for number, query in re.findall(r"^### (\d+)\. .*?^```sql\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
}


def asked(number: int) -> tuple[str, Any]:
    """A question as the thread `island` asks it: the query, and its values."""
    return QUESTIONS[number], statements.with_thread(QUESTIONS[number], None, lambda: "island")
