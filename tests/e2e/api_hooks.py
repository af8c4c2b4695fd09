"""Hooks of schemathesis: what the document cannot say about requests, so that they are not taken for mistakes
of the server.
"""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api.administration import NodeAction
from mgpu_jupyter.api.requests import BulkSubmit, JobChange, LineRequest, ReplaceRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.server.handlers.jobs import submission_of
from mgpu_jupyter.server.handlers.reading import decode_body


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: Any) -> bool:
    """Leave out what fits the schema and contradicts itself (3 GPUs on 2 nodes): JSON Schema has no words for
    that.

    Also a follow of output: it lasts as long as its job. And the removal of a node, since there is only one.
    """
    if isinstance(case.query, dict) and case.query.get("follow") in ("1", "true"):
        return False
    return not _contradicts(case.operation.definition.raw.get("operationId"), case.body)


def _contradicts(operation: str, body: object) -> bool:
    try:
        if operation in ("submitJob", "explainRequest"):
            spec = decode_body(msgspec.json.encode(body), JobSpec)
            check(spec)
            return _names_what_a_site_gives(spec)
        if operation == "submitJobs":
            for item in decode_body(msgspec.json.encode(body), BulkSubmit).jobs:
                check(item.spec)
                if _names_what_a_site_gives(item.spec):
                    return True
        elif operation == "parseLine":
            asked = decode_body(msgspec.json.encode(body), LineRequest)
            submission_of(asked.line, asked.cell)
        elif operation == "changeNode":
            change = decode_body(msgspec.json.encode(body), NodeAction)
            if change.action == "remove":
                return True
            names, labels = bool(change.users or change.accounts), bool(change.labels)
            return (change.action in ("allow", "deny", "only")) != names or (
                change.action == "label"
            ) != labels
        elif operation == "changeJob":
            wanted = decode_body(msgspec.json.encode(body), JobChange)
            return wanted == JobChange() or (wanted.hold and wanted.release)
        elif operation == "replaceJob":
            return bool(
                decode_body(msgspec.json.encode(body), ReplaceRequest).patch
            )  # what it may name depends on the job
    except InvalidRequest:
        return True
    except Exception:  # not even JSON: for the server to refuse
        return False
    return False


def _names_what_a_site_gives(spec: JobSpec) -> bool:
    """Tell whether the request names an account, a partition, a QoS or a folder that was sent: a new cluster
    has none.
    """
    return bool(spec.account or spec.partition or spec.qos or spec.sync)


@schemathesis.deserializer("application/x-ndjson")
def last_frame(context: Any, response: Any) -> object:
    """Return the last line, since the document describes one frame; an answer without lines is as good as a
    ping.
    """
    lines = response.content.splitlines()
    return msgspec.json.decode(lines[-1]) if lines else {"type": "ping"}
