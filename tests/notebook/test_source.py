"""The text of a cell: the `%%resumable` line, what Python runs, and what the rules look at."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from resumable_nb.notebook import source

NAMES = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"), exclude_characters="\"'"), min_size=1)


@pytest.fixture(scope="module")
def manager() -> TransformerManager:
    manager = TransformerManager()
    manager.cleanup_transforms.append(source.Rewrite())
    return manager


@pytest.fixture(scope="module")
def parser(manager: TransformerManager) -> source.Parser:
    return source.Parser(manager.transform_cell)


@pytest.mark.parametrize(
    "above",
    [
        "",
        "\n\n",
        "# what this is for\n",
        "\n# one\n\n   # two\n",
        "%%time\n",
        "%%capture out\n",
        "# timed\n%%time\n# and named\n",
    ],
)
@pytest.mark.parametrize("below", ["", "%%time\n", "\n# timed\n%%time\n", "\n\n"])
@pytest.mark.parametrize("body", ["x = 1", "await f()\ny = 2", "!ls", "%time g()", "if x:\n    y = 1\n"])
def test_a_step_line_makes_a_step(parser: source.Parser, above: str, below: str, body: str) -> None:
    """Comments, blank lines, `%%time` and `%%capture` around the step line never turn a step into plain code."""
    parsed = parser.parse(f"{above}%%resumable plan\n{below}{body}")

    assert (parsed.step, parsed.error) == ("plan", None)
    assert parsed.source.strip()
    ast.parse(parsed.source)


@pytest.mark.parametrize("number", range(4))
def test_line_numbers_stay(manager: TransformerManager, number: int) -> None:
    """A statement of a step stands on the line where its author sees it."""
    text = manager.transform_cell("# comment\n" * number + "%%resumable plan\n\n# more\nx = 1\ny = 2\n")

    assert [statement.lineno for statement in ast.parse(text).body] == [number + k for k in (1, 4, 5)]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n%%resumable plan\n",
        "%%resumables plan\nx = 1",
        "%%resumable_sql\nSELECT 1",
        "%%resumable?",
        "%%writefile cell.txt\n%%resumable plan\nx = 1",
        "s = '''\n%%resumable plan\n'''",
        "%resumable status",
        "# %%resumable plan\nx = 1",
        "",
        "\n",
    ],
)
def test_other_cells_are_left_alone(parser: source.Parser, text: str) -> None:
    """What only looks like a step line, or is text inside another magic, makes no step."""
    assert parser.parse(text).step is None
    assert source.Rewrite()(text.splitlines(keepends=True)) == text.splitlines(keepends=True)


@given(name=NAMES.filter(lambda n: n.strip() and not n.startswith("-")), question=NAMES)
def test_any_name_can_be_quoted(parser: source.Parser, name: str, question: str) -> None:
    """A name (not one that begins like an option) or question holds any text; backslashes and braces are ordinary."""
    parsed = parser.parse(f"%%resumable \"{name}\" --approve '{question}'\nx = 1")

    assert parsed.step_line == source.StepLine(name, question)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "needs a name"),
        ('""', "needs a name"),
        ('"   "', "needs a name"),
        ("two words", "more than one word"),
        ("it's", "quote is not closed"),
        ("plan --aprove x", "no option"),
        ("plan --approve", "needs the question"),
        ("plan --approve ''", "needs the question"),
        ("-x", "no option"),
        ("pl\x07an", "control character"),
        ("pl\u202ean", "control character"),
    ],
)
def test_a_wrong_step_line_says_how_it_is_written(parser: source.Parser, line: str, complaint: str) -> None:
    """A step line that cannot be read is an error with the usage line, and never plain code."""
    parsed = parser.parse(f"%%resumable {line}\nx = 1")

    assert parsed.step is None
    assert complaint in str(parsed.error)
    assert source.USAGE in str(parsed.error)


@pytest.mark.parametrize("line", ["plan --fresh", "--fresh plan", "--approve=yes? plan --fresh"])
def test_options_stand_anywhere(line: str) -> None:
    """Options may stand before or after the name."""
    parsed = source.parse_step_line(line)

    assert (parsed.name, parsed.fresh) == ("plan", True)


@pytest.mark.parametrize("text", ["%%resumable plan\nx = (", "%%resumable plan\nfor\n  x", "x = )", "'''", "\0"])
def test_a_cell_that_is_no_python_has_an_empty_source(parser: source.Parser, text: str) -> None:
    """Text in the file that does not parse is no error: such a cell cannot have run."""
    assert parser.parse(text).source.strip() == ""


def test_a_marker_is_known_by_its_call(manager: TransformerManager) -> None:
    """The statement in place of the step line gives back what stood on it."""
    tree = ast.parse(manager.transform_cell("%%resumable 'a b' --fresh\nx"))

    assert [source.marker_line(statement) for statement in tree.body] == ["'a b' --fresh", None]


def run(body: list[ast.stmt], names: dict[str, object]) -> None:
    for statement in body:
        exec(compile(ast.Module([statement], []), "<cell>", "exec"), names)


@pytest.mark.parametrize(
    ("code", "value"),
    [("x = 1", None), ("x = 1\nx + 1", 2), ("x = 3\nx;", 3), ("for x in (1, 2): pass", None), ("", None)],
)
def test_the_commit_is_the_last_act(code: str, value: object) -> None:
    """The commit runs after everything else, and passes the value of the last expression on."""
    seen: list[object] = []

    class Shell:
        class resumable_nb:
            @staticmethod
            def commit(given: object = None) -> None:
                seen.append(given)

    body = ast.parse(code or "pass").body
    run(source.with_commit(body, interactivity="last_expr"), {"get_ipython": Shell})

    assert seen == [value]


@pytest.mark.parametrize("code", ["x = 1", "x: int = 1", "x = 0\nx += 1"])
def test_an_assigned_value_can_still_be_shown(code: str) -> None:
    """With IPython set to show assigned values, the commit passes the assigned value on."""
    body = source.with_commit(ast.parse(code).body, interactivity="last_expr_or_assign")

    assert ast.unparse(body[-1]) == "get_ipython().resumable_nb.commit(x)"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("%%time\nf()", True), ("%%bash\nls", True), ("%time f()", False), ("f()", False), ("x = 1", False)],
)
def test_a_cell_magic_is_known(manager: TransformerManager, raw: str, expected: bool) -> None:
    """A cell that is one cell magic is told from others: such a magic may show an error and go on."""
    assert source.is_cell_magic(ast.parse(manager.transform_cell(raw)).body) is expected
