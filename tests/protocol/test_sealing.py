"""Secrets at rest: only the key opens them, only whole, and only as what they are about."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol import sealing
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.sealing import Unsealable, load_key, seal, unseal

KEY = bytes(range(32))
NONCE = bytes(range(100, 124))
GOLDEN = "016465666768696a6b6c6d6e6f707172737475767778797a7b918578fa11a52a744fcab8f66c4c65e3c2f133ff7a89baa40a71c4ac6fcfd0309bf84b48745e1fad86"  # noqa: E501


@given(data=st.binary(max_size=5000), about=st.binary(max_size=20))
def test_what_was_sealed_comes_back(data: bytes, about: bytes) -> None:
    sealed = seal(KEY, data, about)
    assert unseal(KEY, sealed, about) == data
    assert len(sealed) == 57 + len(data)
    assert seal(KEY, data, about) != sealed


def test_the_bytes_are_those_of_the_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worked out here from the two primitives, and as fixed bytes: what was written must be readable for
    ever.
    """
    monkeypatch.setattr(sealing.os, "urandom", lambda size: NONCE[:size])
    data, about = b"hf_secret", b"AB12CD34"
    stream = hashlib.shake_256(hmac.new(KEY, b"mgpu stream", "sha256").digest() + NONCE).digest(len(data))
    body = bytes(one ^ other for one, other in zip(data, stream, strict=True))
    tag = hmac.new(
        hmac.new(KEY, b"mgpu tag", "sha256").digest(), bytes(7) + b"\x08" + about + NONCE + body, "sha256"
    ).digest()
    assert seal(KEY, data, about) == b"\x01" + NONCE + tag + body
    assert seal(KEY, data, about).hex() == GOLDEN


def test_no_changed_byte_is_taken() -> None:
    sealed = seal(KEY, b"hf_secret", b"a")
    wrong = [
        (KEY, sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], b"a") for at in range(len(sealed))
    ]
    wrong += [(KEY, sealed[:size], b"a") for size in range(len(sealed))]
    wrong += [(KEY, sealed + b"\0", b"a"), (KEY, sealed, b"b"), (KEY, sealed, b""), (bytes(32), sealed, b"a")]
    for key, data, about in wrong:
        with pytest.raises(Unsealable):
            unseal(key, data, about)


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "env.key"
    key = load_key(path)
    assert (len(key), load_key(path), path.stat().st_mode & 0o777) == (32, key, 0o600)
    path.chmod(0o644)
    with pytest.raises(InvalidRequest, match="readable by"):
        load_key(path)
    path.chmod(0o600)
    for content in ("", "zz", "00" * 31):
        path.write_text(content)
        with pytest.raises(Unsealable, match="holds no key"):
            load_key(path)
