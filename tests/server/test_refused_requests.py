"""Wrong requests, as data: each is answered by its status, a code and one sentence that says what to do, and
nothing is submitted.
"""

from __future__ import annotations

import json
import re

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.models import MAX_BODY_BYTES
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.scheduler.events import NodeJoined
from tests.builders import facts
from tests.server.refused_requests import REFUSED

FOR_PROGRAMMERS = re.compile(r"Traceback|[Ee]xpected `|regex|\\x|codec|`int`|`str`|\(\?")


async def test_each_wrong_request_is_answered_by_one_sentence(app, tell, http_server_client, jp_base_url):
    await tell(NodeJoined(at=1.0, node_id=NodeId("gpu01"), facts=facts("gpu01", 2)))
    known = {"Authorization": f"mgpu {app.service.token}"}

    async def ask(method, path, body, headers):
        response = await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/{path}",
            method=method,
            body=body,
            headers={name: value for name, value in (known | headers).items() if value is not None},
            raise_error=False,
            allow_nonstandard_methods=True,
        )
        return response.code, json.loads(response.body)

    found = []
    for method, path, body, headers, *_ in REFUSED:
        status, answer = await ask(method, path, body, headers)
        found.append((method, path, body, headers, status, answer["code"], answer["message"]))
    assert found == list(REFUSED)
    assert [row for row in REFUSED if FOR_PROGRAMMERS.search(row[-1])] == []
    _, queue = await ask("GET", "jobs", None, {})
    assert queue["jobs"] == []
    status, answer = await ask("POST", "jobs", b" " * (MAX_BODY_BYTES + 1), {})
    assert (status, answer["code"]) == (413, "body-too-large")
