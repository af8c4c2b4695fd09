"""The sidebar's form in a real JupyterLab over the table of request lines: what the server reads of the line
that is shown is the same request, or the same sentence, as in every other front end.
"""

from __future__ import annotations

import msgspec
from playwright.sync_api import BrowserContext, expect

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import JobSpec
from tests.browser.lab import Lab
from tests.browser.test_sidebar import show
from tests.contract.request_lines import ROWS, Row
from tests.contract.test_front_ends import expected, outcome

SAID = tuple(row for row in ROWS if row.form is None or not row.form.picks)
"""The sidebar has no picker of single GPUs. Two ways to write a number are the same number in a field."""


def filled(row: Row) -> tuple[str, str, str]:
    """Return nodes, GPUs on each and more flags, as somebody fills them in."""
    if row.form is None:
        return "1", "1", row.flags
    return str(row.form.nodes), str(row.form.gpus), ""


def line_of(row: Row) -> str:
    nodes, gpus, more = filled(row)
    size = f"--gpus {gpus}" if nodes == "1" else f"--nodes {nodes} --gpus-per-node {gpus}"
    return f"%mgpu_srun {f'{size} {more}'.strip()} -- {row.typed}"


def test_the_form_means_what_every_front_end_means(lab: Lab, context: BrowserContext) -> None:
    page = show(lab, context)
    page.command("mgpu:new-job")
    form = page.page.locator(".mgp-submit:visible")
    form.locator(".mgp-more summary").click()

    def ask(row: Row) -> JobSpec:
        line = line_of(row)
        with page.page.expect_response(
            lambda told: "/jobs/parse" in told.url and told.request.post_data_json["line"] == line
        ) as told:
            for label, text in zip(("Nodes", "GPUs on each", "More flags"), filled(row), strict=True):
                form.get_by_label(label, exact=True).fill(text)
            form.get_by_label("What to run", exact=True).fill(row.typed)
        expect(form.locator(".mgp-join-line")).to_have_text(line)
        answer = told.value.json()
        if "spec" not in answer:
            raise InvalidRequest("usage", answer["message"])
        return msgspec.convert(answer["spec"], JobSpec)

    lines = {line_of(row): row for row in SAID}
    found = {line: outcome(row, ask) for line, row in lines.items()}

    assert found == {line: expected(row) for line, row in lines.items()}
    assert len(lines) >= 60
