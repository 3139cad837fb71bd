"""`-p NAME VALUE`: what a value becomes, and that it stays data."""

from __future__ import annotations

import math

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from resumable_nb.errors import UsageError
from resumable_nb.parameters import inject, parse, parse_value

CODE, TEXT = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def tagged(*tags):
    return CODE("n = 1", metadata={"tags": list(tags)})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-5", -5), ("0.5", 0.5), ("1e3", 1000.0), ("true", True), ("True", True),
        ("null", None), ("None", None),
        ('{"a": [1, 2]}', {"a": [1, 2]}), ('"3"', "3"), ("007", "007"), ("2024-01-01", "2024-01-01"), ("", ""),
        ("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1_000", "1_000"), ("yes", "yes"), ("[" * 100_000, "[" * 100_000),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ('"); import os; os.mkdir("pwned") #', '"); import os; os.mkdir("pwned") #'),
    ],
)  # fmt: skip
def test_a_value_is_json_or_text(text, value):
    """JSON gives its value and type, Python's three words theirs, and everything else stays the text it is."""
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(["a", "ß", "名", "_x"]), JSON, min_size=1))
def test_values_arrive_unchanged_and_nothing_in_them_is_executed(values):
    """After IPython's transformations the injected cell binds exactly the values, whatever text they hold."""
    document = notebook(CODE("a = ß = 名 = _x = 0", metadata={"tags": ["parameters"]}))
    inject(document, values, print)
    namespace: dict = {"__builtins__": {}}
    exec(TransformerManager().transform_cell(document.cells[1].source), namespace)

    assert {name: value for name, value in namespace.items() if name != "__builtins__"} == values


def test_the_values_come_after_the_tagged_cell():
    """As in papermill, the notebook's own defaults run first and are overwritten."""
    document = notebook(TEXT("# Title"), tagged("parameters"), CODE("print(n)"))
    inject(document, {"n": 2}, print)

    assert [cell.source for cell in document.cells] == ["# Title", "n = 1", "# Parameters\nn = 2", "print(n)"]
    assert document.cells[2].metadata.tags == ["injected-parameters"]
    nbformat.validate(document)


def test_an_earlier_injection_is_replaced():
    """Running an executed notebook again leaves one cell of values, with the same id."""
    document = notebook(tagged("parameters"), CODE("print(n)"))
    inject(document, {"n": 2}, print)
    first = document.cells[1].id
    inject(document, {"n": 3}, print)

    assert [cell.source for cell in document.cells] == ["n = 1", "# Parameters\nn = 3", "print(n)"]
    assert document.cells[1].id == first


def test_without_a_tagged_cell_the_values_come_first_and_it_is_said():
    """The person learns that no cell was tagged."""
    document, said = notebook(CODE("print(n)")), []
    inject(document, {"n": math.pi}, said.append)

    assert document.cells[0].source == f"# Parameters\nn = {math.pi!r}"
    assert "no cell is tagged `parameters`" in said[0]


@pytest.mark.parametrize(
    ("name", "meant"), [("KIL", "Did you mean KILL? "), ("kill", "Did you mean KILL? "), ("x", "")]
)
def test_a_misspelt_name_is_refused_where_a_cell_is_tagged(name, meant):
    """The message has the nearest parameter; a name that only another cell of code has is none."""
    parameters = CODE("KILL: bool = True; n = 1\nz = 1 == 2", metadata={"tags": ["parameters"]})
    document = notebook(TEXT(f"Give {name}."), parameters, CODE("print(KILL, other)"))
    inject(document, {"other": 1}, print)

    with pytest.raises(UsageError) as refused:
        inject(document, {name: False}, print)
    told = f"-p {name}: no cell of the notebook has that name. {meant}The cell tagged `parameters` sets KILL, n, z."
    assert str(refused.value) == told


def test_without_a_tagged_cell_a_new_name_is_only_told():
    """As papermill does, it is put in; the person learns that no cell has it."""
    document, said = notebook(CODE("print(n)")), []
    inject(document, {"m": 1}, said.append)

    assert document.cells[0].source == "# Parameters\nm = 1"
    assert said[1] == "-p m: no cell of the notebook has that name"


@pytest.mark.parametrize("name", ["", "a b", "1a", "class", "a.b", "a=1"])
def test_a_name_that_is_no_variable_is_refused(name):
    """The message shows the name."""
    with pytest.raises(UsageError, match="cannot be the name of a Python variable"):
        parse([(name, "1")])


def test_a_name_given_twice_is_refused():
    """Neither of two values wins silently."""
    with pytest.raises(UsageError, match="given twice: 1 and '2x'"):
        parse([("n", "1"), ("n", "2x")])
