"""From a plain store to an encrypted one, back, or to another key: the same rows and id in a file that takes its place.

It is written beside the old one, compared with it and renamed into its place (`rewriting`): whoever is killed in
between leaves the old store or the new one, whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resumable_nb.errors import KeyRefused, UsageError
from resumable_nb.journal import sealing

if TYPE_CHECKING:
    from resumable_nb.journal.store import Store

OLD_VARIABLE = "RESUMABLE_NB_OLD_KEY"


def encrypt(store: Store, *, take_over: bool = False) -> None:
    """Encrypt a store with the key of the environment, or give it this key in place of `RESUMABLE_NB_OLD_KEY`.

    Args:
        store: nobody may be at work with it.
        take_over: sessions that cannot be seen from here, such as of another machine, count as over.

    Raises:
        UsageError: no key is set.
        KeyRefused: a key is weak or wrong, or the store is encrypted and its key is not given.
        ThreadInUse: somebody works with it.
        StoreError: it is damaged, not trusted, or cannot be written.
    """
    new = sealing.key_of()
    if new is None:
        raise UsageError(f"Set {sealing.VARIABLE} to the key. {sealing.MAKE}; keep it where you will find it again")
    old = sealing.key_of(OLD_VARIABLE, f"{OLD_VARIABLE}_FILE")
    try:
        with sealing.instead(old):
            store.convert(new, leave_unseen=take_over)
    except KeyRefused as error:
        if old is not None:
            raise
        raise KeyRefused(
            f"{store.path} is encrypted already. To change its key, set {OLD_VARIABLE} to the one it has, and "
            f"{sealing.VARIABLE} to the new one"
        ) from error


def decrypt(store: Store, *, take_over: bool = False) -> None:
    """Make a plain store of an encrypted one.

    Args:
        store: nobody may be at work with it.
        take_over: sessions that cannot be seen from here, such as of another machine, count as over.

    Raises:
        UsageError: no key is set.
        KeyRefused: it is not the key of this store, or the store is plain.
        ThreadInUse: somebody works with it.
        StoreError: it is damaged, not trusted, or cannot be written.
    """
    if sealing.key_of() is None:
        raise UsageError(f"Set {sealing.VARIABLE} to the key of {store.path}")
    store.convert(None, leave_unseen=take_over)
