"""A transport that answers what it is told to, in order, and keeps what it was asked."""

from __future__ import annotations

import msgspec

from mgpu_jupyter.client import Client, Timeouts
from mgpu_jupyter.client.transport import Answer, Request


class Answers:
    """Gives `bodies` one after the other, the last one again and again."""

    def __init__(self, *bodies: object) -> None:
        self.bodies = list(bodies)
        self.requests: list[Request] = []

    def send(self, request: Request) -> Answer:
        self.requests.append(request)
        body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        if isinstance(body, BaseException):
            raise body
        if isinstance(body, Answer):
            return body
        return Answer(status=200, body=body if isinstance(body, bytes) else msgspec.json.encode(body))

    def close(self) -> None:
        """Have nothing to close."""

    @property
    def asked(self) -> list[tuple[str, str, dict[str, str], object]]:
        """Return method, path, query and body, as far as it is JSON, of all that was asked."""
        return [
            (one.method, one.path, one.query, msgspec.json.decode(one.body) if one.body else None)
            for one in self.requests
        ]


def client_of(*bodies: object) -> tuple[Client, Answers]:
    """Return a client that is answered so, without a second try."""
    answers = Answers(*bodies)
    return Client(transport=answers, timeouts=Timeouts(retry_s=0.0)), answers  # type: ignore[arg-type]
