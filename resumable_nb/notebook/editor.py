"""A payload to edit by its form: a plan as a list, objects as fields or as rows of them, the rest as JSON.

Each part has `box` (what is shown), `read()` (what stands in it, as JSON), `blame(place, why)` (shows what is wrong,
at the field), `forgive()` and `disable()`. What a person typed stays there whatever is wrong with it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from resumable_nb import payloads
from resumable_nb.errors import Misfit
from resumable_nb.notebook.fields import Field, Kind, kind_of

_COLUMNS, _ROWS = 6, 200
_DEEPEST = 2
_BUTTON, _BUTTONS = "34px", "110px"  # of three, with what is between them


class Part(Protocol):
    """A part of the payload."""

    box: Any

    def read(self) -> Any:
        """What stands in it, as JSON. Raises Misfit."""

    def blame(self, place: payloads.Place, why: str) -> bool:
        """Show what is wrong, at the field; False if there is none for this place."""

    def forgive(self) -> None:
        """Show no faults any more."""

    def disable(self) -> None:
        """Take no more changes."""


def editor_of(value: Any, annotation: Any = None, *, label: str = "", depth: int = 0) -> Part:
    """What a payload, or a part of it, is edited with.

    Args:
        value: as the code gave it.
        annotation: what its class says about it.
        label: what it is called.
        depth: how deep in the payload it is.
    """
    if type(value) is list and len(value) <= _ROWS and (columns := _columns(value, annotation)) is not None:
        return Rows(columns, [payloads.as_json(item) for item in value], label=label)
    parts = payloads.fields_of(value)
    if parts is None and type(value) is dict and all(isinstance(name, str) for name in value):
        parts = value
    if parts and depth < _DEEPEST:
        return Form({n: editor_of(v, t, label=n, depth=depth + 1) for n, (v, t) in _typed(value, parts)}, label=label)
    return Field(kind_of(value, annotation), payloads.as_json(value), label=label)


def _typed(value: Any, parts: Mapping[str, Any]) -> list[tuple[str, tuple[Any, Any]]]:
    """Fields with what their class says about them."""
    try:
        declared = {} if isinstance(value, dict) else typing.get_type_hints(type(value), include_extras=True)
    except (NameError, TypeError):  # names in annotations that are not to be found
        declared = {}
    return [(name, (part, declared.get(name))) for name, part in parts.items()]


def _columns(items: list[Any], annotation: Any) -> dict[str | None, Kind] | None:
    """Name → kind of the columns of a list; the name is None for items that are one value. None: no rows fit it."""
    declared = (*typing.get_args(annotation), None)[0] if typing.get_origin(annotation) is list else None
    rows = [payloads.fields_of(item) or (item if type(item) is dict else None) for item in items]
    if not any(rows):
        kinds = {kind_of(item, declared) for item in items or [""]}
        alike = len({(kind.name, kind.choices) for kind in kinds}) == 1 and all(kind.is_simple for kind in kinds)
        return {None: _wider(kinds)} if alike else None
    names = [name for row in rows[:1] for name in row or ()]
    if any(row is None or list(row) != names for row in rows) or len({type(item) for item in items}) > 1:
        return None
    typed = [dict(_typed(item, row or {})) for item, row in zip(items, rows, strict=True)]
    kinds_of = {name: {kind_of(*row[name]) for row in typed} for name in names}
    if len(names) > _COLUMNS or any(len({(k.name, k.choices) for k in kinds}) > 1 for kinds in kinds_of.values()):
        return None
    columns: dict[str | None, Kind] = {name: _wider(kinds) for name, kinds in kinds_of.items()}
    return columns if all(kind.is_simple for kind in columns.values()) else None


def _wider(kinds: set[Kind]) -> Kind:
    """Of kinds that differ in their room only, the one with more."""
    return max(kinds, key=lambda kind: kind.is_long)


class Form:
    """An object: a field under the other."""

    def __init__(self, parts: dict[str, Part], *, label: str = "") -> None:
        import ipywidgets as widgets

        self._parts = parts
        head = [widgets.Label(label)] if label else []
        inner = widgets.Layout(padding="0 0 0 1.5em" if label else "0")
        self.box = widgets.VBox([*head, widgets.VBox([part.box for part in parts.values()], layout=inner)])

    def read(self) -> Any:
        """The object."""
        return {name: _read(part, name) for name, part in self._parts.items()}

    def blame(self, place: payloads.Place, why: str) -> bool:
        """At the field with which the place begins."""
        part = self._parts.get(str(place[0])) if place else None
        return part is not None and part.blame(place[1:], why)

    def forgive(self) -> None:
        """In all fields."""
        for part in self._parts.values():
            part.forgive()

    def disable(self) -> None:
        """All fields."""
        for part in self._parts.values():
            part.disable()


def _read(part: Part, name: str | int) -> Any:
    try:
        return part.read()
    except Misfit as problem:
        raise Misfit((name, *problem.path), problem.why) from None


class Rows:
    """A list: a row for each item, to be changed, moved, added and taken out.

    Rows stay where they are, and what stands in them moves: the front end would make moved widgets anew, and a person
    who works with the keyboard would lose the place.
    """

    def __init__(self, columns: Mapping[str | None, Kind], items: list[Any], *, label: str = "") -> None:
        import ipywidgets as widgets

        self._columns, self._read_of = columns, list[_Row]()
        self.add = widgets.Button(
            description="Add", tooltip="Add an item at the end", layout={"align_self": "flex-start"}
        )
        self.add.on_click(lambda _: self._add())
        self._list = widgets.VBox()
        names = [] if None in columns else ["", *map(str, columns)]
        over = [widgets.Label(name, layout=_share(place)) for place, name in enumerate(names)]
        head = [widgets.HBox([*over, widgets.Label(layout={"flex": f"0 0 {_BUTTONS}"})])] if over else []
        self.box = widgets.VBox([*([widgets.Label(label)] if label else []), *head, self._list, self.add])
        self.rows: list[_Row] = []
        self._show([_Row(self, number, item) for number, item in enumerate(items)])

    @property
    def columns(self) -> Mapping[str | None, Kind]:
        """What an item consists of; None: of one value."""
        return self._columns

    def _show(self, rows: list[_Row]) -> None:
        self.rows = rows
        self._list.children = [row.box for row in rows]
        for row in rows:
            row.down.disabled = row is rows[-1]

    def _add(self) -> None:
        item = {name: kind.blank for name, kind in self._columns.items()}
        self._show([*self.rows, _Row(self, len(self.rows), item.get(None, item), is_new=True)])
        self.rows[-1].focus()

    def move(self, number: int, by: int) -> None:
        """Let an item change places with its neighbour; the keyboard goes with it."""
        one, other = self.rows[number], self.rows[number + by]
        one.content, other.content = other.content, one.content
        self.forgive()
        up_first = (other.up, other.down) if by < 0 else (other.down, other.up)
        next(button for button in up_first if not button.disabled).focus()

    def remove(self, number: int) -> None:
        """Take an item out."""
        for place in range(number, len(self.rows) - 1):
            self.rows[place].content = self.rows[place + 1].content
        self.forgive()
        self._show(self.rows[:-1])
        (self.rows[min(number, len(self.rows) - 1)].out if self.rows else self.add).focus()

    def read(self) -> Any:
        """The list. Rows that were added and left empty are no items."""
        self._read_of = [row for row in self.rows if not row.is_left_empty]
        return [_read(row, number) for number, row in enumerate(self._read_of)]

    def blame(self, place: payloads.Place, why: str) -> bool:
        """At the row, as `read` counts them."""
        is_row = bool(place) and isinstance(place[0], int) and place[0] < len(self._read_of)
        return is_row and self._read_of[int(place[0])].blame(place[1:], why)

    def forgive(self) -> None:
        """In all rows."""
        for row in self.rows:
            row.forgive()

    def disable(self) -> None:
        """All rows."""
        self.add.disabled = True
        for row in self.rows:
            row.disable()


class _Row:
    """One item of a list."""

    def __init__(self, rows: Rows, number: int, item: Any, *, is_new: bool = False) -> None:
        import ipywidgets as widgets

        self._is_new = is_new
        self._fields = {
            name: Field(kind, item if name is None else item[name], tooltip=_title(name, number), **_share(1))
            for name, kind in rows.columns.items()
        }
        self.up = _button("↑", f"Move item {number + 1} up", lambda: rows.move(number, -1))
        self.down = _button("↓", f"Move item {number + 1} down", lambda: rows.move(number, 1))
        self.out = _button("✕", f"Take out item {number + 1}", lambda: rows.remove(number))
        self.up.disabled = number == 0
        fields = [field.box for field in self._fields.values()]
        self.box = widgets.HBox(
            [widgets.Label(f"{number + 1}.", layout=_share(0)), *fields, self.up, self.down, self.out]
        )

    @property
    def content(self) -> tuple[bool, list[Any]]:
        """What stands in it, to be put into another row."""
        return self._is_new, [field.content for field in self._fields.values()]

    @content.setter
    def content(self, content: tuple[bool, list[Any]]) -> None:
        self._is_new, fields = content
        for field, one in zip(self._fields.values(), fields, strict=True):
            field.content = one

    @property
    def is_left_empty(self) -> bool:
        """Whether it was added, and nothing was put in."""
        return self._is_new and not any(field.is_touched for field in self._fields.values())

    def read(self) -> Any:
        """The item."""
        found = {name: _read_field(field, name) for name, field in self._fields.items()}
        return found.get(None, found)

    def blame(self, place: payloads.Place, why: str) -> bool:
        """At its field; what is about the whole item, at the first one."""
        field = self._fields.get(str(place[0])) if place else None
        first = next(iter(self._fields.values()))
        return first.blame(place, why) if field is None else field.blame(place[1:], why)

    def forgive(self) -> None:
        """In its fields."""
        for field in self._fields.values():
            field.forgive()

    def disable(self) -> None:
        """Its fields and buttons."""
        for part in self._fields.values():
            part.disable()
        for button in (self.up, self.down, self.out):
            button.disabled = True

    def focus(self) -> None:
        """Go to its first field."""
        next(iter(self._fields.values())).focus()


def _read_field(field: Field, name: str | None) -> Any:
    return field.read() if name is None else _read(field, name)


def _title(name: str | None, number: int) -> str:
    return f"Item {number + 1}" if name is None else f"{name} of item {number + 1}"


def _share(place: int) -> dict[str, str]:
    """The room of what stands at a place of a row: numbers need little, fields share the rest."""
    return {"flex": "1 1 0", "width": "auto", "min_width": "4em"} if place else {"flex": "0 0 2em", "width": "2em"}


def _button(sign: str, title: str, act: Callable[[], None]) -> Any:
    import ipywidgets as widgets

    button = widgets.Button(description=sign, tooltip=title, layout={"width": _BUTTON, "padding": "0"})
    button.on_click(lambda _: act())
    return button
