"""What the random histories found, as short ones. Each also runs all checks of `session.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.oracle import Cell, Operation
from tests.model.outside import Killed
from tests.model.session import Person
from tests.model.writing import Choose

SETUP = Cell("c1", None, (("let", "v", "x"), ("let", "w", "x"), ("class", "x"), ("new", "x")))


def first(options: object) -> object:
    """A choice that nobody makes."""
    return options[0]  # type: ignore[index]


def person(store: Path, *cells: Cell, order: str = "file", kind: str = "plain") -> Person:
    """Somebody at a notebook of these cells, saved, in a new kernel."""
    choose: Choose = first
    found = Person(choose, store / "research.duckdb", "thread", order=order, kind=kind)
    found.screen = list(cells)
    found.save()
    found.restart()
    return found


def step(cell_id: str, *code: Operation) -> Cell:
    return Cell(cell_id, f"s{cell_id}", code)


def end(someone: Person) -> None:
    """Whatever happened, Run All ends as a clean run does."""
    someone.finish()
    someone.close()


@pytest.mark.parametrize("boundary", range(1, 9))
def test_an_interrupt_anywhere_leaves_a_kernel_that_knows_the_journal(boundary: int, tmp_path: Path) -> None:
    """Ctrl-C before or after any write of a step, the kernel goes on and knows what is in the store."""
    someone = person(tmp_path, step("c2", ("ask", "x")))
    someone.run_all()
    someone.edit(someone.screen[0], code=(("ask", "y"), ("add", "x")))
    someone.draw(lambda options: boundary if isinstance(options, range) and len(options) == 7 else options[0])

    someone.interrupted(someone.screen[0], "interrupt")

    someone.draw(first)
    assert someone.run_all() == "done"
    end(someone)


@pytest.mark.parametrize("what", ["steal", "interrupt"])
@pytest.mark.parametrize("key", ["j", "q?"])
def test_an_effect_happens_once_and_its_step_ends(key: str, what: str, tmp_path: Path) -> None:
    """Wherever the thread is taken over from a kernel that lives and goes on, or Ctrl-C comes: one word settles it."""
    for boundary in range(1, 8):
        folder = tmp_path / str(boundary)
        folder.mkdir()
        someone = person(folder, step("c2", ("act", key)))
        someone.draw(lambda options, at=boundary: at if options == range(1, 8) else options[0])

        someone.interrupted(someone.screen[0], what)

        someone.draw(first)
        someone.advice(someone.screen[0])
        end(someone)


def test_a_word_from_outside_is_seen(tmp_path: Path) -> None:
    """A kernel in which nothing ran since knows of an effect that was settled elsewhere."""
    someone = person(tmp_path, step("c2", ("act", "j")))
    someone.world.boundary = lambda where: someone.strike("kill", someone.process) if where == "acted" else None
    with pytest.raises(Killed):
        someone.run(someone.screen[0])
    someone.world.boundary = lambda where: None
    someone.process = someone.new_process()

    someone.settle()
    someone.restart()

    end(someone)


def test_an_unsaved_cell_that_ran_keeps_its_place(tmp_path: Path) -> None:
    """After a restart, a cell that was never saved stands where it stood when it ran as a step, not skipped."""
    someone = person(tmp_path, step("c2", ("add", "x")), step("c4", ("ask", "x")))
    someone.run_all()
    someone.screen.insert(1, step("c3", ("ask", "y")))
    someone.run_all()

    someone.restart()

    assert someone.run(someone.screen[2]).kind == "skipped"
    end(someone)


def test_opening_again_keeps_what_the_opening_cell_imports(tmp_path: Path) -> None:
    """Names that the opening cell imports are bound after the thread was opened again in the same kernel."""
    someone = person(tmp_path, step("c2", ("ask", "x")), step("c3", ("ask", "y")))
    someone.run_all()
    someone.run_all()

    someone.open_again()
    someone.edit(someone.screen[1], code=(("ask", "z"),))

    assert someone.run(someone.screen[1]).kind == "ran"
    end(someone)


def test_a_function_that_a_step_started_from_is_put_back(tmp_path: Path) -> None:
    """A step that bound a function anew can run again in the same kernel."""
    someone = person(
        tmp_path, Cell("c1", None, (("def", "f", "add", "x"),)), step("c2", ("call", "f"), ("def", "f", "add", "y"))
    )
    someone.run_all()
    someone.edit(someone.screen[1], code=(("call", "f"), ("ask", "x")))

    assert someone.run(someone.screen[1]).kind == "ran"
    end(someone)


def test_a_value_whose_class_is_not_defined_yet_names_the_cell_to_run(tmp_path: Path) -> None:
    """A jump to a cell that needs an instance names the cell that defines its class; then the cell runs."""
    someone = person(tmp_path, SETUP, step("c2", ("touch", "y")), Cell("c3", None, (("tell",),)), kind="rich")
    someone.run_all()
    someone.restart()

    assert someone.run(someone.screen[2])[:2] == ("run first", "c1")
    someone.run(someone.screen[0])
    assert someone.run(someone.screen[2]).kind == "ordinary"
    end(someone)


def test_in_a_console_what_a_later_cell_may_read_is_rebuilt(tmp_path: Path) -> None:
    """Where only the order of execution is known, a client is rebuilt at once, and Run All does not stop below."""
    someone = person(tmp_path, step("c2", ("client", "c", "x")), step("c3", ("about", "x", "c")), order="execution")
    someone.run_all()
    someone.restart()

    assert someone.run_all() == "done"
    end(someone)


def test_cells_of_no_file_have_a_place(tmp_path: Path) -> None:
    """Two cells that no file has, run in turn before and after a save, do not stand after each other for ever."""
    someone = person(tmp_path, step("c2", ("add", "x")), step("c3", ("ask", "x")), step("c4", ("ask", "y")))
    someone.run_all()
    strays = someone.screen[1:]
    del someone.screen[1:]
    for _ in range(2):
        someone.save()
        for cell in (*strays, *strays):
            someone.run(cell)

    end(someone)


def test_a_cell_that_binds_an_equal_state_need_not_run_again(tmp_path: Path) -> None:
    """After a restart, a step below an ordinary cell that bound `state` to an equal object is skipped."""
    someone = person(tmp_path, step("c2", ("add", "x")), Cell("c3", None, (("renew",),)), step("c4", ("ask", "x")))
    someone.run_all()
    someone.restart()

    assert someone.run(someone.screen[2]).kind == "skipped"
    end(someone)


SHARED = {
    "a new name for an input": ([("alias", "v", "w")], [("push", "v", "y")]),
    "an input inside another": ([("nest", "v", "w")], [("push", "w", "y")]),
    "an input inside an object": ([("hold", "w")], [("touch", "y")]),
    "names exchanged": ([("swap",)], [("push", "v", "y")]),
    "an input as a default": ([("default", "f", "w"), ("push", "w", "y")], [("call", "f")]),
}


@pytest.mark.parametrize("code", SHARED.values(), ids=SHARED)
def test_names_that_held_one_object_hold_one_after_a_skip(code: tuple[list[Operation], ...], tmp_path: Path) -> None:
    """What a cell changes through one name is seen through the other, also if the step that bound it was skipped."""
    someone = person(tmp_path, SETUP, step("c2", *code[0]), Cell("c3", None, tuple(code[1])), kind="aliases")
    someone.run_all()

    end(someone)


@pytest.mark.parametrize("code", SHARED.values(), ids=SHARED)
def test_a_step_is_not_done_where_other_names_hold_its_input(code: tuple[list[Operation], ...], tmp_path: Path) -> None:
    """A step that alters its input runs again if another name has come to hold that, or holds it no more."""
    shares = Cell("c2", None, tuple(code[0]))
    changes = step("c3", ("push", "v", "z"), ("push", "w", "z"), ("addvar", "v"), ("addvar", "w"))
    someone = person(tmp_path, SETUP, shares, changes, kind="aliases")
    someone.run_all()
    someone.screen.remove(shares)
    someone.run_all()
    someone.screen.insert(1, shares)

    end(someone)


def test_an_edited_cell_that_has_not_run_is_known_by_its_new_text(tmp_path: Path) -> None:
    """What only its saved text reads is rebuilt in time, though it ran with another one in this kernel."""
    someone = person(tmp_path, step("c2", ("client", "c", "y")), step("c3", ("add", "x")), step("c4", ("ask", "x")))
    someone.run_all()
    someone.restart()
    someone.run_all()
    someone.edit(someone.screen[1], code=(("about", "z", "c"),))
    someone.save()

    assert someone.run_all() == "done"
    end(someone)


def test_what_a_skipped_step_left_out_is_not_asked_for_by_what_it_shared(tmp_path: Path) -> None:
    """A function that no later cell reads is left out by a skip, also where a later step reads a list that it held."""
    setup = Cell("c1", None, (*SETUP.code, ("def", "f", "add", "x")))
    holds = step("c2", ("call", "f"), ("closure", "f", "w"))
    someone = person(tmp_path, setup, holds, step("c3", ("add", "x")), kind="rich")
    someone.run_all()
    someone.restart()
    someone.edit(someone.screen[2], code=(("star", "v", "w", "x"),))
    someone.save()

    assert someone.run_all() == "done"
    end(someone)


@pytest.mark.parametrize("code", SHARED.values(), ids=SHARED)
def test_a_jump_does_not_part_names_that_hold_one_object(code: tuple[list[Operation], ...], tmp_path: Path) -> None:
    """After a restart, a step whose input is held by two names stops until both hold it, and then runs as it did."""
    changes = step("c3", *code[1], ("addvar", "v"), ("addvar", "w"), ("tell",))
    someone = person(tmp_path, SETUP, step("c2", *code[0]), changes, kind="aliases")
    someone.run_all()
    someone.restart()
    someone.run(someone.screen[0])

    someone.advice(someone.screen[2])

    end(someone)
