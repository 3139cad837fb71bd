"""One value to edit, by its type: text, a number, yes or no, a choice, or JSON; and what is wrong with it."""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from dataclasses import dataclass
from typing import Any

from resumable_nb import payloads
from resumable_nb.errors import Misfit, UsageError
from resumable_nb.panel import escape

_ERROR = "color:var(--jp-error-color1,#b71c1c);font-size:var(--jp-ui-font-size1,13px);line-height:1.4"
_LONG = 100


@dataclass(frozen=True)
class Kind:
    """What may stand in a field.

    Attributes:
        name: how it is edited.
        choices: what can be chosen, as JSON values; for a choice.
        may_miss: whether an empty field means that there is nothing: null.
        is_long: whether the text has room for several lines.
    """

    name: typing.Literal["text", "whole number", "number", "yes or no", "choice", "json"]
    choices: tuple[Any, ...] = ()
    may_miss: bool = False
    is_long: bool = False

    @property
    def is_simple(self) -> bool:
        """Whether it fits into one line of a form."""
        return self.name != "json"

    @property
    def blank(self) -> Any:
        """What a new field holds."""
        return {"yes or no": False, "choice": (self.choices or (None,))[0], "text": None if self.may_miss else ""}.get(
            self.name
        )


def kind_of(value: Any, annotation: Any = None) -> Kind:
    """How a value is edited: by what its class says about it, else by what it is."""
    declared, may_miss = _bare(annotation)
    if typing.get_origin(declared) is typing.Literal:
        return Kind("choice", tuple(payloads.as_json(choice) for choice in typing.get_args(declared)), may_miss)
    for kind in (declared, type(value)):
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return Kind("choice", tuple(payloads.as_json(member) for member in kind), may_miss)
    wanted = declared if declared in (str, bool, int, float) else None if declared else type(value)
    for kind, name in ((bool, "yes or no"), (int, "whole number"), (float, "number"), (str, "text")):
        if wanted is kind and not (may_miss and kind is bool):
            return Kind(name, may_miss=may_miss, is_long=_is_long(value))  # type: ignore[arg-type]  # one of its names
    as_text = not isinstance(value, int | float | str | None) and isinstance(payloads.as_json(value), str)
    return Kind("text", may_miss=may_miss) if as_text else Kind("json", is_long=True)


def _bare(annotation: Any) -> tuple[Any, bool]:
    """A type without what is said around it, and whether None fits too."""
    may_miss = False
    while True:
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            annotation = arguments[0]
        elif origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
            annotation, may_miss = next(part for part in arguments if part is not type(None)), True
        else:
            return (None if annotation is Any else annotation), may_miss


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and (len(value) > _LONG or value.splitlines() not in ([], [value]))


class Field:
    """A widget for one value. What is not touched comes back as it was.

    Args:
        kind: what may stand in it.
        value: JSON.
        label: stands before it; "" for none.
        tooltip: what it is called where it has no label.
        layout: where it stands.
    """

    def __init__(self, kind: Kind, value: Any, *, label: str = "", tooltip: str = "", **layout: str) -> None:
        import ipywidgets as widgets

        self.kind = kind
        self._value, self._typed = value, self._typed_for(value)
        common = {
            "layout": {"width": "auto"},
            "style": {"description_width": "10em" if label else "0"},
            "description": label,
            "tooltip": tooltip or label,
        }
        if kind.name == "yes or no":
            self.widget = widgets.Checkbox(self._typed, indent=bool(label), **common)
        elif kind.name == "choice":
            options = [("", -1)] * kind.may_miss + [(str(choice), n) for n, choice in enumerate(kind.choices)]
            self.widget = widgets.Dropdown(options=options, value=self._typed, **common)
        elif kind.is_long:
            rows = min(12, max(3, self._typed.count("\n") + 1))
            self.widget = widgets.Textarea(self._typed, rows=rows, continuous_update=False, **common)
        else:
            self.widget = widgets.Text(self._typed, continuous_update=False, **common)
        self._wrong = widgets.HTML(layout=widgets.Layout(display="none"))
        self.box = widgets.VBox([self.widget, self._wrong], layout=layout)

    def _typed_for(self, value: Any) -> Any:
        if self.kind.name == "yes or no":
            return value is True
        if self.kind.name == "choice":
            return self.kind.choices.index(value) if value in self.kind.choices else -1
        if self.kind.name == "json":
            return json.dumps(value, ensure_ascii=False, indent=2)
        return "" if value is None else str(value)

    @property
    def content(self) -> tuple[Any, Any, Any]:
        """What it holds, to be put into another field of its kind."""
        return self.widget.value, self._typed, self._value

    @content.setter
    def content(self, content: tuple[Any, Any, Any]) -> None:
        self.widget.value, self._typed, self._value = content

    @property
    def is_touched(self) -> bool:
        """Whether a person changed it."""
        return bool(self.widget.value != self._typed)

    def read(self) -> Any:
        """What stands in it, as JSON. Raises Misfit."""
        typed = self.widget.value
        if not self.is_touched:
            return self._value
        if self.kind.name == "choice":
            return self.kind.choices[typed] if typed >= 0 else None
        if self.kind.name == "yes or no" or (self.kind.name == "text" and (typed or not self.kind.may_miss)):
            return typed
        if self.kind.may_miss and not typed.strip():
            return None
        return _number(typed, self.kind.name) if self.kind.name.endswith("number") else _json(typed)

    def blame(self, place: payloads.Place, why: str) -> bool:
        """Show what is wrong with it."""
        where = f"{'.'.join(map(str, place))}: " if place else ""
        self._wrong.value = f'<div role="alert" style="{_ERROR}">{escape(where + why)}</div>'
        self._wrong.layout.display = ""
        return True

    def forgive(self) -> None:
        """Nothing is wrong with it any more."""
        self._wrong.value, self._wrong.layout.display = "", "none"

    def disable(self) -> None:
        """Take no more changes."""
        self.widget.disabled = True

    def focus(self) -> None:
        """Go there."""
        self.widget.focus()


def _number(typed: str, name: str) -> int | float:
    text = typed.strip()
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    if name == "number" and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return float(text)
    raise Misfit((), f"a {name} must stand here, such as {'3' if name == 'whole number' else '0.5'}")


def _json(typed: str) -> Any:
    try:
        return payloads.parse(typed)
    except UsageError as problem:
        why = str(problem).removeprefix("The payload is ").removesuffix(". Nothing was decided.")
        raise Misfit((), why) from None
