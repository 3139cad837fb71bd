"""The analysis means by `needs` and `writes` what the reference model of the step rules means by them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from resumable_nb.fingerprint import analyse, needs
from tests.model.reference_model import Cell

SOURCE = {
    "ask": "state.findings.append(ask({0!r}))",
    "about": "state.findings.append(ask({0!r}, {1}))",
    "into": "{0} = [ask({1!r})]",
    "act": "state.findings.append(act({0!r}))",
    "add": "state.findings.append({0!r})",
    "addvar": "state.findings.append(str(tuple({0})))",
    "set": "state.query = {0!r}",
    "len": "{0} = [str(len(state.findings))]",
    "let": "{0} = [{1!r}]",
    "maybe": "if state.findings: {0} = [{1!r}]",
    "push": "{0}.append({1!r})",
    "copy": "{0} = list({1})",
    "del": "del {0}",
    "client": "{0} = Client({1!r})",
    "call": "{0}()",
}
TOOLS = {"ask", "act", "Client", "list", "str", "tuple", "len"}


def line(op: str, *args: str) -> str:
    return f"def {args[0]}(): {line(*args[1:])}" if op == "def" else SOURCE[op].format(*args)


_names, _texts = st.sampled_from("abc"), st.sampled_from("xy")
_in_functions = st.one_of(
    st.tuples(st.sampled_from(["ask", "act", "add", "set"]), _texts),
    st.tuples(st.just("about"), _texts, _names),
    st.tuples(st.sampled_from(["addvar", "push"]), _names).map(lambda op: (*op, "x")[: 3 if op[0] == "push" else 2]),
)
_functions = st.sampled_from("fg")
_ops = st.one_of(
    _in_functions,
    st.tuples(st.sampled_from(["let", "maybe", "client", "into"]), _names, _texts),
    st.tuples(st.just("copy"), _names, _names),
    st.tuples(st.sampled_from(["del", "len"]), _names),
    st.builds(lambda name, op: ("def", name, *op), _functions, _in_functions),
    st.tuples(st.just("call"), _functions),
)


@dataclass
class Held:
    reads: frozenset[str]


@settings(max_examples=300, deadline=None)
@given(st.lists(_ops, min_size=1, max_size=7), st.dictionaries(_functions, _in_functions))
def test_needs_and_writes_are_those_of_the_model(code, above):
    """For every cell of the model, and functions of cells above, the source needs and writes what the model says."""
    cell = Cell(1, None, tuple(code))
    source = "\n".join(line(*op) for op in code)
    names = {name: ("function", *op) for name, op in above.items()}
    held = {name: Held(frozenset(analyse(line(*op)).loads)) for name, op in above.items()}
    held |= {"ask": Held(frozenset({"state"})), "act": Held(frozenset({"state"}))}

    assert needs(analyse(source), held.get) - TOOLS == cell.needs(names), source
    assert analyse(source).writes | analyse(source).alters == cell.writes(), source
