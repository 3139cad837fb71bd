"""What is written of a run: Markdown between markers of the README, with the machine and the versions."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("resumable-nb", "duckdb", "langgraph", "langgraph-checkpoint-sqlite", "dbos", "chowki")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers as they are, a dash for what there is not."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join("-" if v is None else str(v) for v in line) + " |" for line in lines)


def digits(value: float | None, *, least: int = 2) -> str | None:
    """A number with as many digits as it is worth: 0.014, 1.24, 10.3, 1003."""
    if value is None:
        return None
    if 0 < value < 10**-least / 20:
        return "< 0.001"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    places = 1 if abs(value) >= 10 else least if abs(value) >= 0.1 else least + 1
    return f"{value:.{places}f}"


def circumstances() -> str:
    """Machine, load and versions of a run, in a sentence."""
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    load = os.getloadavg()[1]
    busy = ", busy with other things" if load > (os.cpu_count() or 1) * 0.75 else ""
    found = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores of {names[0] if names else platform.machine()}, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}{busy} (load {load:.1f} before "
        f"the run). {found}."
    )


def into_readme(name: str, text: str) -> None:
    """Put a text between its markers.

    Raises:
        ValueError: the README has no such markers.
    """
    path, begin, end = ROOT / "README.md", f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"README.md has no lines {begin.strip()} and {end.strip()}")
    path.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")
