"""What a cell shows: collected as nbformat outputs while it streams, and shown again when a step is skipped."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from dataclasses import dataclass, field
from typing import Any

from resumable_nb.terminal import counted, plain

Output = dict[str, Any]

WIDGET = "application/vnd.jupyter.widget-view+json"
OURS = "resumable_nb"  # metadata of lines and panels of the library itself: never collected
LIMIT_BYTES = 8 * 2**20
_PIECES = re.compile(r"[\r\x08]|\x1b\[[0-?]*[ -/]*[@-~]|[^\r\x08\x1b]+|\x1b")
_ERASES = re.compile(r"\x1b\[[02]?K")
_IMAGES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


# ------------------------------------------------------------------------------------------ text that moves
class StreamText:
    """Text of a stream as it stands on screen: a progress bar that returns to the start of its line stays one line.

    Attributes:
        cut_bytes: how much came after the limit was reached; it is only counted.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.cut_bytes = 0
        self._lines: list[str] = []
        self._line, self._column = "", 0  # the last line, and where more text goes
        self._left = limit_bytes

    def write(self, text: str) -> None:
        """Add text."""
        *whole, rest = text.split("\n")
        for part in whole:
            self._write(part)
            self._keep(self._line + "\n")
            self._line, self._column = "", 0
        self._write(rest)

    def _keep(self, line: str) -> None:
        size = len(line.encode(errors="replace"))
        if size > self._left:
            self._left = 0
            self.cut_bytes += size
        else:
            self._lines.append(line)
            self._left -= size

    def _write(self, text: str) -> None:
        for piece in _PIECES.findall(text):
            if piece == "\r":
                self._column = 0
            elif piece == "\b":
                self._column = max(0, self._column - 1)
            elif _ERASES.fullmatch(piece):
                self._line = "" if "2" in piece else self._line[: self._column]
                self._column = len(self._line)
            elif len(self._line) > LIMIT_BYTES:
                self.cut_bytes += len(piece)
            else:
                self._overwrite(piece)

    def _overwrite(self, piece: str) -> None:
        end = self._column + len(piece)
        # Among colour codes columns cannot be counted: what comes later stands alone.
        after = "" if "\x1b" in piece + self._line else self._line[end:]
        self._line, self._column = self._line[: self._column] + piece + after, end

    def __str__(self) -> str:
        return "".join(self._lines) + self._line


# ------------------------------------------------------------------------------------------ collecting
@dataclass
class _Shown:
    """One output on screen."""

    output: Output
    display_id: str | None = None
    text: StreamText | None = None


@dataclass
class Collector:
    """Follows the messages of one cell as a front end does, and knows what stands on screen at any moment.

    Attributes:
        limit_bytes: what a step may keep; what goes beyond is named instead.
        clears: how often everything on screen was erased, what is not collected too.
    """

    limit_bytes: int = LIMIT_BYTES
    clears: int = 0
    _shown: list[_Shown] = field(default_factory=list)
    _captured: dict[str, Collector] = field(default_factory=dict)
    _clear_next: bool = False

    def add(self, kind: str, content: dict[str, Any], *, widget_id: str | None = None) -> None:
        """Take one IOPub message.

        Args:
            kind: its `msg_type`.
            content: its content.
            widget_id: the model of the `Output` widget that catches it, or None for the cell itself.
        """
        if widget_id is not None:
            self._captured.setdefault(widget_id, Collector(self.limit_bytes)).add(kind, content)
        elif kind == "clear_output":
            self._clear_next = True
            if not content.get("wait"):
                self.make_room()
        elif kind == "update_display_data":
            self.update(content)
        elif kind in ("stream", "display_data", "execute_result"):
            self.make_room()
            self._append(kind, content)

    def make_room(self) -> None:
        """Something is shown next: what was to be erased then is erased."""
        if self._clear_next:
            self._shown.clear()
            self._clear_next = False
            self.clears += 1

    def _append(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            last = self._shown[-1] if self._shown else None
            if last is None or last.text is None or last.output["name"] != content["name"]:
                last = _Shown({"output_type": kind, "name": content["name"]}, text=StreamText(self.limit_bytes))
                self._shown.append(last)
            assert last.text
            last.text.write(content["text"])
            return
        output: Output = {"output_type": kind, "data": dict(content["data"])}
        output["metadata"] = dict(content.get("metadata") or {})
        if kind == "execute_result":
            output["execution_count"] = None
        self._shown.append(_Shown(output, (content.get("transient") or {}).get("display_id")))

    def update(self, content: dict[str, Any]) -> None:
        """Change what was shown under this display id."""
        display_id = (content.get("transient") or {}).get("display_id")
        for shown in self._shown:
            if display_id is not None and shown.display_id == display_id:
                shown.output["data"] = dict(content["data"])
                shown.output["metadata"] = dict(content.get("metadata") or {})
        for caught in self._captured.values():
            caught.update(content)

    def outputs(self, widgets: WidgetTexts | None = None) -> list[Output]:
        """What stands on screen now, as nbformat 4 output dictionaries, within the limit.

        Args:
            widgets: the widgets of this kernel; widgets are shown as their text of now, with what they caught.
        """
        found, captured = list[Output](), dict(self._captured)
        for shown in self._shown:
            output = dict(shown.output)
            if shown.text is not None:
                found += _stream_outputs(shown.output["name"], shown.text)
                continue
            model_id = output["data"].get(WIDGET, {}).get("model_id")
            inside = [captured.pop(i, None) for i in (widgets.inside(model_id) if widgets else [model_id])]
            if model_id and widgets is not None:
                if (text := widgets.text(model_id)) is None:
                    continue  # closed: it is no longer on screen, nor what it caught
                output["data"] = output["data"] | {"text/plain": text or output["data"].get("text/plain", "")}
            found.append(output)
            for caught in filter(None, inside):
                found += caught.outputs(widgets)
        for caught in captured.values():  # shown by another cell
            found += caught.outputs(widgets)
        return _within(found, self.limit_bytes)


def _stream_outputs(name: str, text: StreamText) -> list[Output]:
    output = {"output_type": "stream", "name": name, "text": str(text)}
    cut = [_note(f"{text.cut_bytes:,} bytes of {name} that came after it")] if text.cut_bytes else []
    return [output, *cut] if output["text"] or cut else []


def _note(what: str) -> Output:
    text = f"[not kept: {what}; a step keeps up to {LIMIT_BYTES // 2**20} MiB of what it shows]\n"
    return {"output_type": "stream", "name": "stderr", "text": text}


def _within(outputs: list[Output], limit_bytes: int) -> list[Output]:
    """The outputs that fit, forms that do not fit left out and named."""
    kept, left = list[Output](), limit_bytes
    for output in outputs:
        if output["output_type"] == "stream":
            size = len(output["text"].encode(errors="replace"))
            kept.append(output if size <= left else _note(f"{size:,} bytes of {output['name']}"))
            left -= size if size <= left else 0
            continue
        data, cut = {}, []
        for form, value in sorted(output["data"].items(), key=lambda item: _size_bytes(item[1])):
            size = _size_bytes(value)
            if size <= left:
                data[form], left = value, left - size
            else:
                cut.append(f"{form} of {size:,} bytes")
        if data:
            kept.append({**output, "data": {form: data[form] for form in output["data"] if form in data}})
        kept += [_note(", ".join(cut))] if cut else []
    return kept


def _size_bytes(value: object) -> int:
    return len(value if isinstance(value, str) else json.dumps(value))


class WidgetTexts:
    """The ipywidgets of this kernel, as text."""

    def __init__(self, instances: dict[str, Any]) -> None:
        """`instances`: by model id. It is looked at again at each question."""
        self._instances = instances

    def catching(self, msg_id: str) -> str | None:
        """The model of the `Output` widget that the front end sends the outputs of this request to."""
        found = None
        for model_id, widget in list(self._instances.items()):
            if getattr(widget, "msg_id", "") == msg_id:
                found = model_id
        return found

    def inside(self, model_id: str) -> list[str]:
        """The models of a widget and of what it holds, as they stand from top to bottom."""
        widget = self._instances.get(model_id)
        children = getattr(widget, "children", ())
        held = [i for child in children if (known := getattr(child, "model_id", None)) for i in self.inside(known)]
        return [model_id, *held]

    def text(self, model_id: str) -> str | None:
        """What the widget reads as now; "" where it has no text; None if it is closed."""
        widget = self._instances.get(model_id)
        if widget is None or widget.comm is None:
            return None
        try:
            return repr(widget)
        except Exception:  # noqa: BLE001 the text of a tqdm bar dies with the bar, and any class may have its own
            return _label(widget)


def _label(widget: Any) -> str:
    """The words inside a box: its labels, in their order."""
    own = getattr(widget, "value", "")
    words = [html.unescape(re.sub(r"<[^>]*>", "", own))] if isinstance(own, str) else []
    words += [_label(child) for child in getattr(widget, "children", ())]
    return " ".join(" ".join(words).replace("\xa0", " ").split())


# ------------------------------------------------------------------------------------------ showing again
@dataclass(frozen=True)
class Shown:
    """Outputs made fit to be shown again, and what has to be said about them."""

    outputs: list[Output]
    lines: list[str]


def prepare(outputs: list[Output], *, is_trusted: bool, is_headless: bool = False) -> Shown:
    """Outputs without what cannot live again: widgets whose model is gone, and what a stranger could have forged.

    Headless, only the text of a widget was ever to be seen: nothing is missing, and nothing is said.
    """
    shown, widgets, hidden = list[Output](), 0, 0
    for output in outputs:
        if output["output_type"] != "stream" and WIDGET in output["data"]:
            widgets += 1
            output = {**output, "data": {form: v for form, v in output["data"].items() if form != WIDGET}}  # noqa: PLW2901
        safe = output if is_trusted else _harmless(output)
        hidden += safe != output
        if safe["output_type"] == "stream" or safe["data"]:
            shown.append(safe)
    lines = []
    if widgets and not is_headless:
        lines.append(f"{counted(widgets, 'widget')} could not be restored; the text is shown instead.")
    if hidden:
        lines.append(
            f"{counted(hidden, 'output')} of this step did not come from you on this machine and "
            f"{'is' if hidden == 1 else 'are'} shown as text and images only. `%resumable trust` shows all."
        )
    return Shown(shown, lines)


def _harmless(output: Output) -> Output:
    """Plain text and bitmap images: forms in which no code can hide."""
    if output["output_type"] == "stream":
        return {**output, "text": plain(output["text"])}
    data = {
        form: value
        for form, value in output["data"].items()
        if (form == "text/plain" and isinstance(value, str)) or (form in _IMAGES and _is_image(form, value))
    }
    return {**output, "data": data, "metadata": {}}


def _is_image(form: str, value: object) -> bool:
    """Base64 of the right kind and nothing else: exporters put it between quotes, as it is."""
    if not isinstance(value, str):
        return False
    try:
        return base64.b64decode("".join(value.split()), validate=True).startswith(_IMAGES[form])
    except (binascii.Error, ValueError):
        return False
