"""Text that wants to be more than text, and a server that sends it wherever a string can stand: names, users,
nodes, reasons, logs.

mgpu's own server refuses some of it. A page must not rely on that: between it and the cluster may stand a
relay of somebody else.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from playwright.sync_api import BrowserContext, Page, Route, WebSocketRoute

from tests import hostile

# what mgpu's own server takes as a name
HOSTILE = tuple(
    text
    for text in (*hostile.MARKUP, *hostile.CODE, *hostile.SHEET)
    if text.isprintable() and text.strip() == text
)
_PLANTED = """
() => [...document.querySelectorAll('*')].filter(one =>
  [...one.attributes].some(a => a.name.startsWith('on') && a.value.includes('__mgpu_hacked')) ||
  ['href', 'src', 'srcdoc', 'xlink:href', 'action'].some(name => (one.getAttribute(name) || '').match(/^javascript:|^x$|__mgpu_hacked/)) ||
  (one.tagName === 'SCRIPT' && one.textContent.includes('__mgpu_hacked') && !one.id) ||
  (one.tagName === 'B' && one.textContent === 'bold')
).map(one => one.outerHTML.slice(0, 200))
"""  # noqa: E501


def assert_harmless(page: Page) -> None:
    """Nothing that was sent as text became an element, and nothing of it ran."""
    assert page.evaluate(_PLANTED) == []
    assert page.evaluate("() => window.__mgpu_hacked") is None


class HostileServer(hostile.Spoiler):
    """Stands between a page and its server: answers are those of the server with every string replaced, and
    many more of them.
    """

    def __init__(self, context: BrowserContext, count: int) -> None:
        super().__init__(hostile.named(count, hostile.sendable()))
        self.nodes: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.events: WebSocketRoute | None = None
        context.route(re.compile(r"/mgpu/api/v1/"), self._answer)
        context.route_web_socket(re.compile(r"/mgpu/api/v1/"), self._connect)

    def _answer(self, route: Route) -> None:
        answer = route.fetch()
        try:
            body = answer.json()
        except ValueError:
            route.fulfill(response=answer)
            return
        path = route.request.url.split("?")[0].rsplit("/mgpu/api/v1/", 1)[1]
        if path == "cluster":
            user = body["user"]
            body = self.spoil(body) | {"user": user, "admin": True}
        elif path == "nodes":
            self.nodes = [
                self.spoil(body["nodes"][number % len(body["nodes"])]) | {"id": text}
                for number, text in enumerate(self.texts)
            ]
            body = {"nodes": self.nodes}
        elif path == "jobs":
            body = body | {"jobs": self._many(body["jobs"])}
        elif path.endswith("/explain") or path.startswith(("jobs/", "nodes/", "cluster/")):
            body = self.spoil(body)
        route.fulfill(response=answer, json=body)

    def _many(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for number, text in enumerate(self.texts if jobs else ()):
            job = jobs[number % len(jobs)]
            owner = job["user"] if number % 5 == 0 else self.text()  # some are one's own
            found.append(
                self.spoil(job)
                | {"id": job["id"] if number < len(jobs) else f"H{number:07d}", "name": text, "user": owner}
            )
        self.jobs += found
        return found

    def _connect(self, socket: WebSocketRoute) -> None:
        if "/events" in socket.url:
            self.events = socket
            socket.send(json.dumps({"type": "ready", "seq": 10**9}))
            return
        lines = "".join(f"{text}\n" for text in self.texts).encode()
        output = {
            "type": "output",
            "attempt": 1,
            "rank": 0,
            "offset": 0,
            "stream": "stdout",
            "data": base64.b64encode(lines).decode(),
        }
        socket.send(json.dumps(output))
        socket.send(
            json.dumps(
                {"type": "gap", "rank": 0, "attempt": 1, "message": self.text(), "offset": 0, "skipped": 1}
            )
        )

    def end(self, job: dict[str, Any], **changes: object) -> None:
        """Say that a job changed."""
        assert self.events is not None
        frame = {"type": "job", "seq": 10**9 + self._at, "display_key": "", "job": job | changes}
        self.events.send(json.dumps(frame))
