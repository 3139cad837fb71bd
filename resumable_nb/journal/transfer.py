"""A thread as one file: a zip, not compressed, of its rows as Parquet and of a manifest that says what they are.

Parquet is what other programs and other versions of DuckDB read; every value comes back as it was, JSON as its text. A
file may come from a stranger: nothing of it is run, names in it make no paths, and all limits are checked before the
first row goes into a store.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from resumable_nb.errors import StoreTooNew, StoreUnwritable, TransferDamaged, UsageError
from resumable_nb.journal import checking, files, past, processes, reading, rows, schema, sealing, trust
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 1
_MANIFEST, _ROWS = "manifest.json", "journal.parquet"
_FACTS = {"format": int, "store_format": int, "thread": str, "rows": int, "sha256": str}
_MAX_MANIFEST_BYTES = 64 << 10
MAX_ROWS = 20_000_000
MAX_CONTENT_BYTES = 16 << 30
_CHUNK_BYTES = 1 << 20
_TYPES = {
    "seq": "BIGINT",
    "ts": "TIMESTAMP WITH TIME ZONE",
    "ref_seq": "BIGINT",
    "parent_seq": "BIGINT",
    "run_seq": "BIGINT",
    "occurrence": "INTEGER",
    "duration_ms": "DOUBLE",
    "gen_ai_usage_input_tokens": "BIGINT",
    "gen_ai_usage_output_tokens": "BIGINT",
    "body": "BLOB",
}
_EXPECTED = [(column, _TYPES.get(column, "VARCHAR")) for column in rows.COLUMNS]
_OUT = ", ".join(f"{c}::VARCHAR AS {c}" if c in rows.JSON_COLUMNS else c for c in rows.COLUMNS)
_CONTENT = (
    "coalesce(sum("
    + " + ".join([f"coalesce(strlen({c}), 0)" for c in rows.JSON_COLUMNS] + ["coalesce(octet_length(body), 0)"])
    + "), 0)"
)
_REQUIRED = ("thread_id", "seq", "kind", "phase", "ts", "session_id")


# ------------------------------------------------------------------------------------------ out
def export(path: Path, thread_id: str, file: Path) -> dict[str, Any]:
    """Write a thread of a store to a new file; gives the manifest. Call it with the lock held and the file closed.

    Raises:
        ThreadNotFound: there is no such thread.
        UsageError: the file is there already.
        StoreUnwritable: it cannot be written.
    """
    if file.exists():
        raise UsageError(f"{file} is there already. Name another file, or remove it first")
    if not file.parent.is_dir():
        raise StoreUnwritable(f"{file} cannot be made: {file.parent} is no folder. Make it, or name another")
    try:
        with _workplace(file) as folder, files.private_files():
            parquet, packed = folder / _ROWS, folder / "packed"
            manifest = _write_rows(path, thread_id, parquet)
            with zipfile.ZipFile(packed, "x", zipfile.ZIP_STORED) as out:
                out.writestr(_MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
                out.write(parquet, _ROWS)
            files.sync(packed)
            files.put_new(packed, file)
            files.sync(file.parent)
    except FileExistsError:
        raise UsageError(f"{file} is there already. Name another file, or remove it first") from None
    except OSError as error:
        raise StoreUnwritable(f"{file} cannot be written: {error.strerror or error}") from error
    return manifest


@contextmanager
def _workplace(file: Path) -> Iterator[Path]:
    """A folder of this user's beside a file that is being made, with what a killed process left there taken away.

    The rows of an encrypted store are plain in it: they lie nowhere else, such as in the folder for temporary files.
    """
    folder = file.with_name(f".{file.name}.part")
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.unlink(missing_ok=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_rows(path: Path, thread_id: str, parquet: Path) -> dict[str, Any]:
    with reading.attached(path) as con:
        found = reading.facts(con, "store", path)
        schema.check_format(found.format, path)
        trust.check_tables(con, "store", path)
        reading.check_whole(path, found)
        con.execute("CREATE TEMP VIEW journal AS SELECT * FROM store.main.journal")
        head = past.read(con, thread_id, path).head
        if not head:
            raise past.not_found(con, thread_id, path)
        con.execute("SET VARIABLE thread = $1::VARCHAR", [thread_id])
        con.execute(
            f"COPY (SELECT {_OUT} FROM journal WHERE thread_id = getvariable('thread') ORDER BY seq) "
            f"TO '{sealing.quoted(parquet)}' (FORMAT parquet, COMPRESSION zstd)"
        )
    return {
        "what": "a thread of resumable_nb",
        "format": FORMAT,
        "store_format": schema.FORMAT,
        "thread": thread_id,
        "rows": head,
        "sha256": _digest(parquet),
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "store_id": found.store_id,
        "writer": processes.writer(),
    }


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ------------------------------------------------------------------------------------------ in
class Unpacked(NamedTuple):
    """An exported thread that was checked from end to end.

    Attributes:
        parquet: its rows.
        manifest: what the file says of itself.
    """

    parquet: Path
    manifest: dict[str, Any]

    @property
    def thread_id(self) -> str:
        """What the thread was called."""
        return str(self.manifest["thread"])


@contextmanager
def unpacked(file: Path) -> Iterator[Unpacked]:
    """Check an exported thread from end to end, and unpack it for as long as it is needed.

    Raises:
        UsageError: there is no such file, or it is none of ours.
        TransferDamaged: it is not as it was written, or its rows are not as this library writes them.
        StoreTooNew: a newer version wrote it.
    """
    if not file.is_file():
        raise UsageError(f"There is no file {file}.")
    with tempfile.TemporaryDirectory(prefix="resumable-nb-") as folder, files.private_files():
        parquet = Path(folder) / _ROWS
        manifest = _unpack(file, parquet)
        try:
            _check(file, parquet, manifest)
        except duckdb.Error as error:
            words = str(error).partition("\n")[0]
            raise TransferDamaged(f"The rows in {file} cannot be read: {words}. Nothing was imported") from error
        yield Unpacked(parquet, manifest)


def _unpack(file: Path, parquet: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(file) as packed:
            members = {info.filename: info for info in packed.infolist()}
            if members.keys() != {_MANIFEST, _ROWS} or len(packed.infolist()) != len(members):
                raise UsageError(
                    f"{file} is no thread that `resumable-nb export` wrote: it does not hold what one does."
                )
            if any(m.compress_type != zipfile.ZIP_STORED or m.flag_bits & 1 for m in members.values()):
                raise UsageError(f"{file} was packed by something else: its parts are compressed. Nothing was imported")
            manifest = _manifest(file, packed, members[_MANIFEST])
            digest = hashlib.sha256()
            with packed.open(_ROWS) as source, open(parquet, "wb") as target:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise TransferDamaged(
            f"{file} is damaged, or no thread that `resumable-nb export` wrote ({error}). Nothing was imported"
        ) from error
    if digest.hexdigest() != manifest["sha256"]:
        raise TransferDamaged(f"{file} was changed after it was written: its hash differs. Nothing was imported")
    return manifest


def _manifest(file: Path, packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, Any]:
    found = None
    if info.file_size <= _MAX_MANIFEST_BYTES:
        with suppress(ValueError, RecursionError):
            found = json.loads(packed.read(info))
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in _FACTS.items()):
        raise TransferDamaged(f"The manifest in {file} cannot be read. Nothing was imported")
    if found["format"] > FORMAT or found["store_format"] > schema.FORMAT:
        raise StoreTooNew(
            f"{file} was written by {found.get('writer', 'a newer version')!s:.60}, whose format this version does not "
            "know. Update with `pip install -U resumable-nb`. Nothing was imported"
        )
    return found


def _check(file: Path, parquet: Path, manifest: dict[str, Any]) -> None:
    with duckdb.connect(config=reading.CONFIG) as con:
        source = _source(parquet)
        described = con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        if [(name, kind) for name, kind, *_ in described] != _EXPECTED:
            raise TransferDamaged(f"{file} has other columns than a journal. Nothing was imported")
        missing = " OR ".join(f"{c} IS NULL" for c in _REQUIRED)
        sql = (
            f"SELECT count(*), min(seq), max(seq), count(*) FILTER (thread_id <> $1), count(*) FILTER ({missing}) FROM "
        )
        count, first, last, strange, empty = con.execute(sql + source, [manifest["thread"]]).fetchall()[0]
        if count > MAX_ROWS:
            raise TransferDamaged(f"{file} has {counted(count, 'row')}, and {MAX_ROWS:,} is the most")
        if (count, first, last, strange, empty) != (manifest["rows"], 1, manifest["rows"], 0, 0):
            raise TransferDamaged(
                f"{file} does not hold the {counted(manifest['rows'], 'row')} of one thread that its manifest names. "
                "Nothing was imported"
            )
        (size,) = con.execute(f"SELECT {_CONTENT} FROM {source}").fetchall()[0]
        if size > MAX_CONTENT_BYTES:
            raise TransferDamaged(
                f"{file} unpacks to {size >> 20:,} MB, and {MAX_CONTENT_BYTES >> 20:,} MB is the most"
            )
        con.execute(f"CREATE TEMP VIEW journal AS SELECT * FROM {source}")
        wrong = [str(finding) for finding in checking.findings(con, manifest["thread"])]
    if wrong:
        told = "; ".join(wrong[:5])
        raise TransferDamaged(f"The rows in {file} are not as this library writes them: {told}. Nothing was imported")


_IN = ", ".join(f"{c}::JSON AS {c}" if c in rows.JSON_COLUMNS else c for c in rows.COLUMNS)
_FAMILY = """
SELECT thread_id FROM journal WHERE seq = 1 AND session_id = (SELECT session_id FROM {source} WHERE seq = 1)
ORDER BY thread_id <> ?, thread_id
"""


def _source(parquet: Path) -> str:
    return f"read_parquet('{sealing.quoted(parquet)}', hive_partitioning = false)"


def import_statement(
    con: duckdb.DuckDBPyConnection, unpacked: Unpacked, new_id: str, ts: datetime
) -> tuple[str, dict[str, object]]:
    """The one INSERT that puts the rows of a file into a store as a thread `new_id`, and its parameters."""
    parquet, manifest = unpacked
    facts = {name: manifest.get(name) for name in ("thread", "rows", "sha256", "exported_at", "store_id")}
    about = {name: value for name, value in facts.items() if isinstance(value, str | int)}
    source = f"SELECT {_IN} FROM {_source(parquet)}"
    # the thread here that began as this one did, best the one of its name
    family = con.execute(_FAMILY.format(source=_source(parquet)), [unpacked.thread_id]).fetchone()
    if family is None:
        return past.copy_statement(source, manifest["rows"], new_id, ts, phase="imported", about=about)
    forked = {"from": str(family[0]), "seq": manifest["rows"], "imported": about}
    return past.copy_statement(source, manifest["rows"], new_id, ts, phase="forked", about=forked)
