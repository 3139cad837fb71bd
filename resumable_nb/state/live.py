"""The one state object of a session, and the image that it had last."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from resumable_nb.errors import ResumableError, StateError
from resumable_nb.state import migrations, schema
from resumable_nb.state.image import Form, Image, Items
from resumable_nb.state.model import LOCK, State, is_handed_out, own
from resumable_nb.state.track import Coder, ItemsTrack, Track, track

if TYPE_CHECKING:
    from resumable_nb import values

_MISSING = object()


class _Move(NamedTuple):
    """A new value of a field: its form (None: what it is encoded to); of a list, how many elements stay around it."""

    name: str
    form: Form | None
    value: Any
    head: int = 0
    tail: int = 0


class Live:
    """The state object that code sees, put to images and looked at.

    Args:
        cls: the state class. Every field needs a default.
        resolve: gives the class of (module, qualname), or None.
        blobs: gives a large value by its sha256.

    Raises:
        StateError: A field has no default.
    """

    _cls: type[State]
    _state: State
    _tracks: dict[str, Track]
    _base: Image  # what the object was put to
    _base_forms: dict[str, Form]  # of all fields, as they were then; of stored ones, but where a migration changed them
    _lists: dict[str, list[Any]]  # the list objects, as they were then
    _stored: dict[str, Form]  # what an image of the object holds besides what is changed
    _changed: dict[str, Form]
    _last: Image  # `_stored` and `_changed` together, if anything is changed

    def __init__(self, cls: type[State], *, resolve: values.Resolve, blobs: values.Blobs) -> None:
        self._coder = Coder(resolve, blobs)
        self._context: tuple[object, str] = (None, "")
        self._take(cls, Image.EMPTY)

    @property
    def state(self) -> State:
        """The object. It stays the same one until the class is defined again."""
        return self._state

    @property
    def cls(self) -> type[State]:
        """The state class."""
        return self._cls

    # ------------------------------------------------------------------ looking
    def image(self) -> Image:
        """The stored form of the object as it is now, at a cost of what changed.

        It holds the fields of the image that the object was put to, and those that were changed since.

        Raises:
            ValueNotStorable: A part of a value has no stored form, or must not have one; it names field and place.
            StateError: A value that was put in place is not what its field holds.
        """
        with LOCK:
            return self._image_of({name: self._look(name) for name in self._tracks})

    def _look(self, name: str) -> Form:
        value = own(self._state).get(name, _MISSING)
        if value is _MISSING:
            raise StateError(f"state.{name} is gone from the object: assign what it is to be.")
        known: Any = self._tracks[name]
        if (type(value) is list) is not isinstance(known, ItemsTrack):
            known = track(schema.fields_of(self._cls)[name], self._coder, value)
            known.look(value)
            self._tracks[name] = known
        if isinstance(known, ItemsTrack):
            is_ours = self._lists.get(name) is value and not is_handed_out(self._state, name)
            return known.look(value, is_ours=is_ours)
        form: Form = known.look(value)
        return form

    def _image_of(self, forms: dict[str, Form]) -> Image:
        changed = {name: form for name, form in forms.items() if not _is_same(form, self._base_forms[name])}
        if not changed:
            return self._base
        if changed.keys() != self._changed.keys() or any(
            self._changed[name] is not form for name, form in changed.items()
        ):
            self._changed = changed
            self._last = self._new_image(self._stored | changed, self._coder)
        return self._last

    def _new_image(self, forms: dict[str, Form], coder: Coder) -> Image:
        appends = schema.appends_of(self._cls)
        return Image(forms, schema_version=self._cls.schema_version, appends=appends, blobs=coder.pending)

    # ------------------------------------------------------------------ putting
    def set(self, image: Image) -> None:
        """Put the object to an image. It stays the same object; so do its lists, and what does not change in them.

        Raises:
            StateMismatch: The class lacks a stored field, or a field has another type.
            MigrationFailed: An older version could not be lifted.
            ValueNotLoadable: A class of a value is not defined here. In all of these cases the object is as it was.
        """
        with LOCK:
            forms = self._forms_now()
            whole = {name: form for name, form in forms.items() if form is not None}
            if len(whole) == len(forms) and self._image_of(whole).digest == image.digest:
                self._rebase(image, whole)
            elif image.schema_version == self._cls.schema_version:
                self._move(image, forms)
            else:
                self._take(self._cls, image, self._state)

    def _forms_now(self) -> dict[str, Form | None]:
        """What the fields hold now; None for what cannot be stored, and has to be put back whole."""
        forms: dict[str, Form | None] = {}
        for name in self._tracks:
            try:
                forms[name] = self._look(name)
            except ResumableError:
                forms[name] = None
        return forms

    def renew(self) -> None:
        """Leave the object as if what changed since the last `set` had come by `set`, not by a step's code.

        To be called when a step has ended, before its checkpoint is written. The names of the step may hold the same
        lists and dicts as the state. After a restart these are objects of their own; so they must be before it.

        Raises:
            ValueNotLoadable: A new value could not be loaded again, such as one whose class is not found by name.
            ValueNotStorable, StateError: as `image`.
        """
        with LOCK:
            self._renew({name: self._look(name) for name in self._tracks})

    def end_step(self) -> Image:
        """`image` and then `renew`, looking at the object once."""
        with LOCK:
            forms = {name: self._look(name) for name in self._tracks}
            image = self._image_of(forms)
            self._renew(forms)
            return image

    def _renew(self, forms: dict[str, Form]) -> None:
        for name, base in self._base_forms.items():
            form, known, other = forms[name], self._tracks[name], self._has_other_list(name)
            if not other and isinstance(known, ItemsTrack) and known.only_grew():
                known.mark()  # by elements that nobody can change: no part of them need be made anew
            elif other or not _is_same(form, base) or not known.is_kept:
                self._put(self._decode(name, base, form))

    def _has_other_list(self, name: str) -> bool:
        return name in self._lists and self._lists[name] is not own(self._state)[name]

    def _rebase(self, image: Image, forms: dict[str, Form]) -> None:
        """The object is at this image already: what is changed from now on is changed against it."""
        if any(not _is_same(form, self._base_forms[name]) for name, form in forms.items()):
            self._base_forms, self._stored = forms, image.forms
        self._base, self._changed = image, {}
        self._coder.pending = dict(image.blobs)
        self._mark()

    def _mark(self) -> None:
        """The object is as an image says: what is changed from now on is new."""
        for known in self._tracks.values():
            known.mark()
        self._lists = {name: value for name, value in own(self._state).items() if type(value) is list}

    def _move(self, image: Image, forms: dict[str, Form | None]) -> None:
        """Put the fields that differ to an image of this version. Whatever can fail comes before the first change."""
        migrations.check_fields(self._cls, image.fields)
        targets = image.forms
        self._coder.pending |= image.blobs
        moves: list[_Move] = []
        reset: list[str] = []
        for name, form in forms.items():
            target = targets.get(name)
            if target is None:
                is_default = name not in self._stored and form is not None and _is_same(form, self._base_forms[name])
                reset += [] if is_default else [name]
            elif form is None or not _is_same(form, target):
                moves.append(move := self._decode(name, form, target))
                _fit(self._cls, name, move.value, target, self._coder)
        moves += [_Move(name, None, _default(self._cls, name, own(self._state))) for name in reset]
        for move in moves:
            self._put(move)
        self._after_move(image)

    def _decode(self, name: str, form: Form | None, target: Form) -> _Move:
        """How a field gets from one form to another, with as little as possible made anew."""
        known = self._tracks[name]
        if not isinstance(target, Items):
            return _Move(name, target, self._coder.value(name, target))
        if not isinstance(form, Items) or not isinstance(known, ItemsTrack):
            return _Move(name, target, self._coder.elements(name, target))
        head, tail = map(min, form.common(target), known.kept())
        return _Move(name, target, self._coder.elements(name, target, head, target.count - tail), head, tail)

    def _put(self, move: _Move) -> None:
        """Give a field its value, and follow it. A list goes into the list that was there at the last `set`."""
        name, held = move.name, own(self._state)
        value: Any = move.value
        known: Any = self._tracks[name]
        if type(value) is list:
            present: list[Any] = held[name] if move.head or move.tail else []
            value = self._lists.get(name, value)
            if value is present:
                value[move.head : len(value) - move.tail] = move.value
            else:
                value[:] = [*present[: move.head], *move.value, *present[len(present) - move.tail :]]
        held[name] = value
        if not (move.head or move.tail):
            known = self._tracks[name] = track(schema.fields_of(self._cls)[name], self._coder, value)
        if type(value) is list:
            known.settle(value, move.form, move.head)
        else:
            known.settle(value, move.form)

    def _after_move(self, image: Image) -> None:
        for name, form in image.forms.items():
            self._tracks[name].form = form  # equal to what it has, and shared with the image
        self._base, self._stored, self._changed = image, image.forms, {}
        self._base_forms = {name: known.form for name, known in self._tracks.items()}
        self._coder.pending = dict(image.blobs)
        self._mark()

    def _take(self, cls: type[State], image: Image, state: State | None = None) -> None:
        """Decode a whole image for a class, into the object that is there or a new one."""
        coder = self._coder.with_blobs(image.blobs)
        loaded, stored = load(cls, coder, image)
        tracks: dict[str, Track] = {}
        for name, value in loaded.items():
            known: Any = track(schema.fields_of(cls)[name], coder, value)
            known.settle(value, stored.get(name))
            tracks[name] = known
        if state is None:
            state = cls.from_fields(loaded)
        else:
            for name, value in loaded.items():
                if type(value) is list and name in self._lists:
                    self._lists[name][:] = value
                    value = self._lists[name]  # noqa: PLW2901
                own(state)[name] = value
        self._cls, self._state, self._tracks, self._coder = cls, state, tracks, coder
        self._base, self._changed, self._last = image, {}, image
        self._base_forms = {name: known.form for name, known in tracks.items()}
        self._stored = {name: self._base_forms[name] for name in stored}
        self._mark()

    def redefine(self, cls: type[State]) -> None:
        """Make a new object of a class that was defined again, with the same content; its parts are made anew, too.

        Raises:
            StateMismatch, MigrationFailed, ValueNotLoadable: as `set`; the object and its class are as they were.
            ValueNotStorable, StateError: as `image`.
        """
        with LOCK:
            self._take(cls, self.image())

    # ------------------------------------------------------------------ apart from the object
    def start(self, query: str | None) -> Image:
        """What a new thread starts with: all fields at their defaults, and the query if the class has that field.

        Raises:
            StateError: The query is not what the field holds.
            ValueNotStorable: A default has no stored form.
        """
        state = self._cls.from_fields(_complete(self._cls, {}))
        if query is not None and "query" in self._cls.model_fields:
            state.query = query
        coder = self._coder.with_blobs({})
        forms: dict[str, Form] = {}
        for name, value in own(state).items():
            known: Any = track(schema.fields_of(self._cls)[name], coder, value)
            known.settle(value)
            forms[name] = known.form
        return self._new_image(forms, coder)

    def context(self, image: Image, max_tokens: int | None = None) -> str:
        """`state.context()` of an image. The last one is remembered: branches ask for the same."""
        known, asked = self._context, (self._cls, image.digest, max_tokens)
        if known[0] != asked:
            self._context = known = asked, self.detached(image).context(max_tokens)
        return known[1]

    def detached(self, image: Image) -> State:
        """A state of its own with the content of an image. Raises as `set`."""
        with LOCK:
            coder = self._coder.with_blobs(self._coder.pending | image.blobs)
        return self._cls.from_fields(load(self._cls, coder, image)[0])


def _is_same(one: Form, other: Form) -> bool:
    return one is other or (type(one) is type(other) and one.digest == other.digest)


def load(cls: type[State], coder: Coder, image: Image) -> tuple[dict[str, Any], dict[str, Form | None]]:
    """All fields of `cls` as an image has them, and the stored forms; None for what a migration may have changed.

    Raises:
        StateMismatch, MigrationFailed, ValueNotLoadable: The image does not fit the class.
    """
    forms = image.forms
    migrations.check_version(cls, image.schema_version)
    if image.schema_version < cls.schema_version and forms:
        raw = {name: coder.value(name, form) for name, form in forms.items()}
        lifted = migrations.lift(cls, raw, image.schema_version)
        return _complete(cls, lifted), dict.fromkeys(lifted)
    migrations.check_fields(cls, forms)
    loaded = {name: coder.value(name, form) for name, form in forms.items()}
    for name, value in loaded.items():
        _fit(cls, name, value, forms[name], coder)
    return _complete(cls, loaded), dict(forms)


def _fit(cls: type[State], name: str, value: object, form: Form, coder: Coder) -> None:
    """Raises StateMismatch if the field does not hold what was stored."""
    field = schema.fields_of(cls)[name]
    why = schema.misfit(field, value)
    if why and not _is_default(cls, name, form, coder):
        raise migrations.mismatch(cls, field, value, why)


def _is_default(cls: type[State], name: str, form: Form, coder: Coder) -> bool:
    """Whether this is the field's default, which need not be of its type: `best: Finding = None`."""
    info = cls.model_fields[name]
    if info.is_required() or isinstance(form, Items):
        return False
    default = info.get_default(call_default_factory=True, validated_data={})
    return coder.compared(name, default) == form.json


def _complete(cls: type[State], loaded: dict[str, Any]) -> dict[str, Any]:
    """All fields in the order of the class: what was loaded, else the default."""
    whole: dict[str, Any] = {}
    for name in cls.model_fields:
        whole[name] = loaded[name] if name in loaded else _default(cls, name, whole)
    return whole


def _default(cls: type[State], name: str, others: dict[str, Any]) -> Any:
    info = cls.model_fields[name]
    if info.is_required():
        raise StateError(
            f"{cls.__name__}.{name} has no default, and nothing is stored for it. Give it one: a new thread starts "
            "with the defaults, and so does a new field of an old one."
        )
    given = copy.deepcopy(others) if info.default_factory_takes_validated_data else others
    value = info.get_default(call_default_factory=True, validated_data=given)
    return copy.deepcopy(value) if type(value) is list else value  # a factory may keep what it gives
