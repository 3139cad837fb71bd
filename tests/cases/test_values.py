"""Group J of the public cases: values come back as they were, or by replay; never bent."""

from __future__ import annotations

from tests.cases.book import Book

DESCRIBE = """def describe(v, depth=0):
    import numpy as np, pandas as pd
    kind = f"{type(v).__module__}.{type(v).__qualname__}"
    if isinstance(v, pd.DataFrame):
        columns = [describe(v.iloc[:, i], depth + 1) for i in range(v.shape[1])]
        return (kind, describe(v.columns, 1), describe(v.index, 1), columns, sorted(v.attrs.items()), v.flags.allows_duplicate_labels)
    if isinstance(v, pd.Series):
        return (kind, repr(v.name), str(v.dtype), describe(v.index, 1), [describe(x, 9) for x in v.array])
    if isinstance(v, pd.MultiIndex):
        return (kind, list(map(repr, v.names)), [str(l.dtype) for l in v.levels], repr(v.tolist()))
    if isinstance(v, pd.Index):
        return (kind, repr(v.name), str(v.dtype), str(getattr(v, 'freq', None)), repr(v.tolist()))
    if isinstance(v, np.ndarray):
        return (kind, str(v.dtype), v.dtype.descr if v.dtype.names else v.dtype.str, v.shape, v.flags.f_contiguous, repr(v.tolist()))
    if isinstance(v, np.generic):
        return (kind, str(v.dtype), repr(v))
    if isinstance(v, dict):
        return (kind, [(describe(k), describe(x)) for k, x in v.items()])
    if isinstance(v, (set, frozenset)):
        return (kind, sorted(map(repr, map(describe, v))))
    if isinstance(v, (list, tuple)):
        return (kind, [describe(x) for x in v])
    if hasattr(v, 'utcoffset') and v is not pd.NaT:
        return (kind, repr(v), getattr(v, 'fold', None), str(v.utcoffset()), str(getattr(v.tzinfo, 'key', v.tzinfo)), str(getattr(v, 'unit', '')))
    text = repr(v)
    return (kind, text if len(text) < 300 else (len(text), hash_of(v)))
def hash_of(v):
    import hashlib
    return hashlib.sha256(v if isinstance(v, (bytes, bytearray)) else repr(v).encode()).hexdigest()
"""
TIMES = """from datetime import datetime, date, time, timedelta, timezone
from zoneinfo import ZoneInfo
import pandas as pd
ny = ZoneInfo('America/New_York')
v = [datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=ny), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
     datetime(2024, 1, 1, 2), time(3, 4, tzinfo=timezone.utc), date(2024, 2, 29), timedelta(microseconds=1),
     pd.Timestamp('2024-01-01 00:00:00.123456789'), pd.NaT]
state.findings.append(v[0])
frame = pd.DataFrame({'z': pd.date_range('2024-11-03 00:30', periods=6, freq='30min', tz='America/New_York')})
days = pd.date_range('2024-01-01', periods=3, freq='D')
periods = pd.period_range('2024-01', periods=3, freq='M')
multi = pd.MultiIndex.from_product([pd.date_range('2024-01-01', periods=2, tz='Asia/Tokyo'), ['a', 'b']], names=['when', None])
seconds = pd.Series(pd.to_datetime(['2024-01-01']).astype('datetime64[s]'))
everything = [v, frame, days, periods, multi, seconds]
"""
FRAMES = """import pandas as pd, numpy as np
f1 = pd.DataFrame({'c': pd.Categorical([3, 1], categories=[3, 2, 1], ordered=True)})
f2 = pd.DataFrame([[1, 2.0]], columns=['same', 'same'])
f3 = pd.DataFrame([[1, 2, 3]], columns=pd.Index([1, ('a', 2), None], dtype=object, tupleize_cols=False))
f4 = pd.DataFrame({'i': pd.array([1, None], dtype='Int64'), 'b': pd.array([True, None], dtype='boolean')})
f5 = pd.DataFrame({'o': pd.Series([None, float('nan'), pd.NA, 1, '1'], dtype=object)})
f6 = pd.DataFrame({'n': pd.Series([pd.DataFrame({'x': [1]}), [1], {'a': 1}], dtype=object)})
f7 = pd.DataFrame({'a': [1]}); f7.attrs['source'] = 'lab'
f8 = pd.DataFrame({'e': np.array([], dtype='float32')})
s1 = pd.Series([1, 2], name='named'); s2 = pd.Series([1, 2])
everything = [f1, f2, f3, f4, f5, f6, f7, f8, s1, s2]
"""
SCALARS = """import numpy as np
d = {1: "a", "1": "b", None: "c", (1, 2): "d", 1.5: "e"}
state.findings.append(d)
nested = ([(1, [2, (3,)])], {'k': ({'x': (1,)},)})
sets = [set(), frozenset({(1, 2), (3, 4)})]
numbers = [np.float32(0.1), np.int64(7), np.bool_(True), np.datetime64('NaT'), np.array(5), np.asfortranarray(np.eye(2)),
           np.array([1, 2], dtype='>i4'), np.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')]), np.array([None, 'x'], dtype=object)]
raw = [b'\\x00\\xff', bytearray(b'\\x01'), 'a\\x00b', 'x' * 5_000_000, bytes(20_000_000)]
everything = [d, nested, sets, numbers, raw]
"""


def test_values_come_back_as_they_were(book: Book) -> None:
    """J1, J2, J5: type, dtype, zone, fold, unit, freq, names, key types and content are equal after a restart, for no request."""
    book.cells = {"imports": "from resumable_nb import ask\n" + DESCRIBE}
    for n, source in enumerate((TIMES, FRAMES, SCALARS)):
        book.cells[f"s{n}"] = f"%%resumable s{n}\n{source}\nr{n} = ask('Q{n}')"
        book.cells[f"shown{n}"] = "print(describe(everything))"
    book.cells["shown3"] = "print(describe(thread.state.findings))"
    first = book.run(TZ="UTC", PYTHONHASHSEED="1")
    assert first.code == 0, first.said
    again = book.run(TZ="Asia/Tokyo", PYTHONHASHSEED="2")

    assert again.code == 0, again.said
    assert book.server.asked() == 3
    assert all("restored" in again.shown(f"s{n}") for n in range(3))
    for n in range(4):
        assert again.shown(f"shown{n}") == first.shown(f"shown{n}")
    history = book.command("history", "--thread", "t")
    assert history.returncode == 0
    assert len(history.stdout) < 5000


def test_names_that_cannot_be_kept_are_rebuilt(book: Book) -> None:
    """J6: aliases and cycles come back; generators, files, locks, lambdas and clients by replay, and a line names them."""
    book.cells = {
        "imports": "from resumable_nb import ask, OpenAI\nimport threading",
        "s": (
            "%%resumable s\na = []; b = a; c = []; c.append(c); gen = (i for i in range(3)); fh = open('x.txt', 'w')\n"
            "lock = threading.Lock(); f = lambda x: x + 1; client = OpenAI(); r = ask('Q1')"
        ),
        "plain": "a.append(1); print(b, c[0] is c, list(gen), f(1), r)",
    }
    first = book.run()
    assert first.code == 0, first.said
    again = book.run()

    assert again.code == 0, again.said
    assert book.server.asked() == 1
    assert "[1] True [0, 1, 2] 2 AQ1-1" in first.shown("plain")
    assert again.shown("plain") == first.shown("plain")
    assert all(f"`{name}`" in again.shown("s") for name in ("f", "gen"))
