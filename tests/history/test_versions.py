"""State over time: three versions of a state class in one notebook, whose older checkpoints stay open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notebook.screen import OPEN, Screen, screen

HEAD = "from typing import ClassVar\nfrom resumable_nb import ResearchState, durable\nclass Study(ResearchState):\n"
V1 = HEAD + "    sources: list[str] = []\n    score: int = 1\n    topic: str = 'bees'\n"
RENAME = "@Study.migration(from_version=1)\ndef rename(raw):\n    raw['links'] = raw.pop('sources')\n    return raw\n"
V2 = (
    HEAD
    + "    schema_version: ClassVar[int] = 2\n    links: list[str] = []\n    score: int = 1\n    topic: str = 'bees'\n"
    + "    notes: str = ''\n"
    + RENAME
)
RETYPE = (
    "@Study.migration(from_version=2)\ndef retype(raw):\n    raw['score'] = raw['score'] / 10\n    raw.pop('topic')\n"
    "    return raw\n"
)
V3 = (
    HEAD
    + "    schema_version: ClassVar[int] = 3\n    links: list[str] = []\n    score: float = 1.0\n    notes: str = ''\n"
    + RENAME
    + RETYPE
)
LOOK = "def look(word):\n    with open('asked', 'a') as file: file.write(word + ' ')\n    return word"
CELLS = {
    "load": "%load_ext resumable_nb",
    "study": V1,
    "open": OPEN.split("\n")[1] + " --state Study",
    "look": LOOK,
    "collect": "%%resumable collect\nstate.update(findings=[durable(look)('f1')], sources=['a', 'b'], score=7)",
}
MORE = "%%resumable more\nstate.update(findings=[durable(look)('f2')], notes='n')"
LAST = "%%resumable last\nstate.update(findings=[durable(look)('f3')])"


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, **CELLS) as found:
        all_well(found)
        yield found


def all_well(nb: Screen) -> dict[str, str]:
    """Run All, which must end well: what was said, by cell."""
    nb.save()
    shown = nb.run_all()
    assert [s.text() for s in shown.values() if s.status != "ok"] == []
    return {cell_id: s.said for cell_id, s in shown.items()}


def to_version(nb: Screen, source: str, **cells: str) -> dict[str, str]:
    """The class is edited and cells come below while the kernel is dead; then Run All."""
    nb.cells |= {"study": source, **cells}
    nb.restart()
    return all_well(nb)


def fields(nb: Screen, moment: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = nb.value(f"thread.state_at({moment!r}).model_dump()")
    return {name: dumped[name] for name in ("links", "score", "notes")}


def test_old_checkpoints_open_in_new_code(nb: Screen) -> None:
    """A field is renamed, added, dropped and retyped over three versions: nothing runs again, and all of time is there."""
    to_version(nb, V2, more=MORE)
    said = to_version(nb, V3, last=LAST)
    steps = {h["step"]: h["seq"] for h in eval(nb.execute("[h | {'at': 0} for h in thread.history()]").results[0])}
    versions = "thread.sql(f\"SELECT DISTINCT schema_version AS v FROM state_at('t', {seq})\").v[0]"

    assert "restored" in said["collect"]
    assert "restored" in said["more"]
    assert (nb.folder / "asked").read_text().split() == ["f1", "f2", "f3"]
    assert fields(nb, "collect") == {"links": ["a", "b"], "score": 0.7, "notes": ""}
    assert fields(nb, "newest") == {"links": ["a", "b"], "score": 0.7, "notes": "n"}
    assert nb.value("sorted(thread.raw_state_at('collect'))[-3:]") == ["score", "sources", "topic"]
    seqs = [steps["collect"], steps["more"], steps["last"]]
    assert nb.value(f"[int({versions}) for seq in {seqs}]") == [1, 2, 3]
    difference = nb.execute("%resumable diff collect newest", "tool").said
    assert "(state version 1 → 3)" in difference
    assert "sources: removed" in difference
    assert "- 7\n" in difference
    assert "+ 0.7" in difference


def test_a_fork_and_a_way_back_cross_versions(nb: Screen) -> None:
    """What starts from an old checkpoint goes on in the new class."""
    to_version(nb, V3, last=LAST)
    nb.execute("%resumable back collect", "tool")
    assert fields(nb, "newest") == {"links": ["a", "b"], "score": 0.7, "notes": ""}
    assert "restored" in nb.run("last").said
    nb.execute("%resumable fork collect u", "tool")
    nb.cells["open"] = nb.cells["open"].replace("open t", "open u")
    nb.cells["last"] = LAST.replace("f3", "f4")
    nb.restart()
    said = all_well(nb)

    assert "restored" in said["collect"]
    assert nb.value("list(thread.state.findings)") == ["f1", "f4"]
    assert nb.value("thread.state.score") == 0.7
    assert (nb.folder / "asked").read_text().split() == ["f1", "f3", "f4"]


BROKEN = {
    V3.replace("raw['score'] / 10", "raw['scores'] / 10"): "retype of Study from version 2 to 3 raised KeyError",
    V3.replace("raw['score'] / 10", "'many'"): "left 'many' in `score`, which holds float",
    V3.replace("raw.pop('topic')", "raw"): "has `topic`, and Study has no such field",
    V3.replace(RETYPE, ""): "nothing lifts version 2 to 3",
}


def test_a_failed_migration_hands_the_snapshot_to_a_person(nb: Screen) -> None:
    """Nothing is written; the message says what to do, and its command shows what is stored. Mended, it goes on."""
    nb.restart()
    nb.run("load")
    for broken, says in BROKEN.items():
        nb.cells["study"] = broken
        nb.save()
        nb.run("study")
        shown = nb.run("open").text()
        assert says in shown
        assert "is kept" in shown
    command = f"{sys.executable} -m resumable_nb " + shown.split("or `resumable-nb ")[1].split("`")[0]
    told = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=nb.folder)
    stored = {row["field"]: row["value"] for row in json.loads(told.stdout)}
    nb.cells["study"] = V3
    nb.save()

    assert (stored["sources"], stored["score"]) == ('["a","b"]', "7")
    assert nb.run("study", "open").status == "ok"
    assert "restored" in all_well(nb)["collect"]
    assert fields(nb, "newest") == {"links": ["a", "b"], "score": 0.7, "notes": ""}


def test_a_newer_state_is_refused(nb: Screen) -> None:
    """Code that is older than the state says so, and writes nothing."""
    to_version(nb, V3, last=LAST)
    nb.cells["study"] = V1
    nb.save()
    nb.restart()
    nb.run("load", "study")
    shown = nb.run("open")

    assert "stored by version 3 of Study; the class here is version 1" in shown.text()
    nb.cells["study"] = V3
    nb.run("study")
    assert "restored" in all_well(nb)["last"]


@pytest.mark.parametrize("point", ["step.commit.before", "journal.append.after:4"])
def test_killed_at_the_first_checkpoint_of_a_new_version(nb: Screen, point: str) -> None:
    """The version moves with the step that was written, or not at all; the step is then finished, and asked once."""
    nb.cells |= {"study": V3, "last": LAST}
    nb.save()
    nb.env["RESUMABLE_NB_FAILPOINT"] = point
    nb.restart()
    nb.run("load", "study", "open", "look", "collect")
    nb.send(LAST, "last")
    nb.died()
    del nb.env["RESUMABLE_NB_FAILPOINT"]
    nb.restart()
    all_well(nb)

    assert fields(nb, "newest") == {"links": ["a", "b"], "score": 0.7, "notes": ""}
    assert nb.value("list(thread.state.findings)") == ["f1", "f3"]
    assert "version" not in nb.value("thread.sql('FROM checkpoints WHERE NOT in_lineage').changes.tolist()")
