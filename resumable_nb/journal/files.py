"""The files of a store: which one a path means, whether it is fit to be opened, who holds its lock, how it is made.

Nothing here opens the database file: a second file handle in the process drops DuckDB's own lock on it when it closes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from resumable_nb.errors import StoreError, StoreReplaced, StoreUntrusted, StoreUnwritable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Look(NamedTuple):
    """A file as seen from outside.

    Attributes:
        identity: device and inode: what it is, whatever its name.
        stamp: time of its last change in nanoseconds, and its size.
    """

    identity: tuple[int, int]
    stamp: tuple[int, int]


def real_path(path: str | os.PathLike[str], *, allow_symlink: bool) -> Path:
    """The one absolute path of a store in this process.

    Raises:
        StoreUntrusted: the path is a symbolic link, and `allow_symlink` is not given.
        StoreUnwritable: this user may not even look there.
    """
    named = Path(path).expanduser()
    try:
        is_symlink = named.is_symlink()
    except OSError as error:
        raise StoreUnwritable(
            f"{named} cannot be reached: {error.strerror}. Name a file in a folder of yours"
        ) from error
    if is_symlink and not allow_symlink:
        raise StoreUntrusted(
            f"{named} is a symbolic link to {os.readlink(named)}. If that store is meant, name the file itself: "
            f"{os.path.realpath(named)}"
        )
    return named.resolve() if is_symlink else named.parent.resolve() / named.name


def check_fit(path: Path, *, allow_owner: bool) -> None:
    """Refuse what is no ordinary file of this user.

    Raises:
        StoreError: it is a folder, a pipe or a device.
        StoreUntrusted: it belongs to another user, and `allow_owner` is not given.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is {_kind(found.st_mode)}, not a file. Name the DuckDB file that the store is in")
    if not allow_owner and found.st_uid != os.geteuid():
        raise StoreUntrusted(
            f"{path} belongs to user {_user(found.st_uid)}, and you are {_user(os.geteuid())}. Copy it and open the "
            "copy; or, if you share it on purpose, pass allow_owner=True"
        )


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "no ordinary file"


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def look(path: Path) -> Look:
    """What the path names at the moment.

    Raises:
        StoreReplaced: there is no file.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise StoreReplaced(
            f"{path} is gone: it was moved or deleted. Put it back and go on; to begin anew, restart the kernel"
        ) from None
    return Look((found.st_dev, found.st_ino), (found.st_mtime_ns, found.st_size))


def wal_path(path: Path) -> Path:
    """DuckDB's write-ahead log of the store: committed rows that are not in the main file yet."""
    return path.with_name(path.name + ".wal")


def lock_path(path: Path) -> Path:
    """The file that we lock while we have the store open."""
    return path.with_name(path.name + ".lock")


def witness_path(path: Path) -> Path:
    """The side file that knows how many rows the store has to have."""
    return path.with_name(path.name + ".seen")


@contextmanager
def private_files() -> Iterator[None]:
    """Files that this process makes meanwhile are for its user only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(path: str | os.PathLike[str]) -> None:
    """Take a file of this user away from everybody else."""
    found = os.stat(path)
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        os.chmod(path, 0o600)


@contextmanager
def folder_beside(path: Path, mark: str = "", *, cannot: str, advice: str) -> Iterator[Path]:
    """A private folder beside a store, to make a whole file in before it gets its name. It goes at the end.

    Args:
        path: the store.
        mark: stands in the folder's name, so that one that a killed process left is found again.
        cannot: what the store cannot be if there can be no folder, such as "made".
        advice: what to do then.

    Raises:
        StoreUnwritable: the folder of the store does not exist or cannot be written.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.{mark}", dir=path.parent))
    except OSError as error:
        raise StoreUnwritable(f"{path} cannot be {cannot}: {error.strerror} in {path.parent}. {advice}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def put_new(made: Path, path: Path) -> None:
    """Give a file that was made under another name, in the same folder or one in it, its own; never over another.

    Raises:
        FileExistsError: there is a file of that name.
    """
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links here, such as exFAT: the lock that the caller holds keeps others out
        if path.exists():
            raise FileExistsError(path) from None
        os.rename(made, path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk. Never of a store that DuckDB has open."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_holders(path: Path) -> list[int]:
    """The processes that have a lock on a file, as far as the system tells (Linux, from /proc/locks)."""
    try:
        inode = os.stat(path).st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines if "->" not in line]
    return sorted({int(f[4]) for f in fields if len(f) > 5 and f[5].endswith(f":{inode}") and int(f[4]) > 0})
