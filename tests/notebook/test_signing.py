"""Signatures on outputs, made with a secret of this user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.notebook import signing

OUTPUTS = [{"output_type": "stream", "name": "stdout", "text": "日本\ud800"}, {"data": {"text/html": "<b>"}, "n": None}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(signing.ENVIRONMENT, str(tmp_path / "made" / "here"))
    return tmp_path / "made" / "here"


def test_own_outputs_are_trusted() -> None:
    """What this user signed is trusted, however its keys are ordered."""
    signature = signing.sign(OUTPUTS)

    assert signing.trusted([dict(reversed(o.items())) for o in OUTPUTS], signature)


@pytest.mark.parametrize("changed", [OUTPUTS[:1], [*OUTPUTS, {}], [OUTPUTS[1], OUTPUTS[0]], []])
def test_changed_outputs_are_not_trusted(changed: list[Any]) -> None:
    """One output more, less or in another place, and the signature is void."""
    assert not signing.trusted(changed, signing.sign(OUTPUTS))


@pytest.mark.parametrize("signature", ["", "0" * 64, "日本", "\ud800"])
def test_a_forged_signature_is_not_trusted(signature: str) -> None:
    """No other text passes for a signature."""
    assert not signing.trusted(OUTPUTS, signature)


def test_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was signed with another secret is a stranger's."""
    signature = signing.sign(OUTPUTS)
    monkeypatch.setenv(signing.ENVIRONMENT, str(tmp_path / "other"))

    assert not signing.trusted(OUTPUTS, signature)


def test_the_secret_is_private(folder: Path) -> None:
    """The secret is readable by its owner only, and nothing else is left beside it."""
    signing.sign(OUTPUTS)

    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("spoil", ["loose", "short", "link"])
def test_a_secret_that_others_could_know_is_replaced(folder: Path, spoil: str) -> None:
    """A secret that was readable by others, cut, or put there as a link makes no signature any more."""
    before, secret = signing.sign(OUTPUTS), folder / "secret"
    if spoil == "loose":
        secret.chmod(0o644)
    elif spoil == "short":
        secret.write_bytes(b"x")
    else:
        secret.rename(folder / "elsewhere").chmod(0o600)
        secret.symlink_to(folder / "elsewhere")
    after = signing.sign(OUTPUTS)

    assert after not in ("", before)
    assert signing.trusted(OUTPUTS, after)


@pytest.mark.skipif(os.getuid() == 0, reason="root can write anywhere")
def test_a_folder_that_cannot_be_written_gives_no_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no secret can be kept, outputs are unsigned, and unsigned outputs are not trusted."""
    tmp_path.chmod(0o500)
    monkeypatch.setenv(signing.ENVIRONMENT, str(tmp_path / "here"))

    assert signing.sign(OUTPUTS) == ""
    assert not signing.trusted(OUTPUTS, "")


def test_a_folder_that_is_a_file_gives_no_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no secret can be kept, outputs are unsigned, and unsigned outputs are not trusted."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(signing.ENVIRONMENT, str(tmp_path / "file"))

    assert signing.sign(OUTPUTS) == ""
    assert not signing.trusted(OUTPUTS, "")


def test_kernels_that_start_together_share_one_secret() -> None:
    """Several processes that need the secret first at the same time all sign alike."""
    code = "from resumable_nb.notebook.signing import sign; print(sign([{'a': 1}]))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    signatures = {process.communicate()[0] for process in running}

    assert len(signatures) == 1
    assert signatures.pop().strip()
