"""The questions of docs/questions.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
QUESTIONS: dict[int, str] = {
    int(number): query
    for number, query in re.findall(r"^### (\d+)\. .*?^```sql\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
}
