"""By what processes of an attempt are known to their agent: a secret that only they have. Keeps one key, and nothing for each attempt.

A secret is the attempt, the account that it runs as, and a code (HMAC-SHA256) over both under the node's key: so it outlives the
agent, and nobody else can make one. It is never logged, never written to the ledger and never a word of a command.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.places import make_private_dir, read_private_file, write_private_file

KEY_BYTES = 32


class JobSecrets:
    """Makes the secrets of one node and knows them again."""

    def __init__(self, node_directory: Path) -> None:
        path = make_private_dir(node_directory / "keys") / "jobs"
        key = read_private_file(path) if path.exists() else b""
        if len(key) != KEY_BYTES:
            key = secrets.token_bytes(KEY_BYTES)
            write_private_file(path, key)
        self._key = key

    def make(self, key: AttemptKey, uid: int) -> bytes:
        """Return the secret of an attempt whose processes run as this user."""
        about = f"{key}.{uid}"
        return f"{about}.{hmac.digest(self._key, about.encode(), 'sha256').hex()}".encode()

    def read(self, secret: bytes) -> tuple[AttemptKey, int] | None:
        """Return whose secret this is, and as which user they run; None for one that is not of this node's making."""
        try:
            job_id, attempt, epoch, uid, _ = secret.decode("ascii").split(".")
            key, user = AttemptKey(JobId(job_id), int(attempt), int(epoch)), int(uid)
        except ValueError:
            return None
        return (key, user) if hmac.compare_digest(self.make(key, user), secret) else None
