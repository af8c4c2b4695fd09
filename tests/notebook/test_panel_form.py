"""The submit form of the panel without a front end: the line that it means, the picker, and the words of its
answers.
"""

from __future__ import annotations

import html
import re

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.client.words import moment
from mgpu_jupyter.model import explanations as api
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.notebook.panel import form, submit_views
from mgpu_jupyter.notebook.panel.form import Form, More
from mgpu_jupyter.notebook.panel.seen import Picked
from mgpu_jupyter.notebook.panel.submit_tab import cell_button
from tests.notebook.panel_world import NOW, gpu, node
from tests.notebook.test_panel_views import Tags, seen


def test_the_line_means_what_the_form_says() -> None:
    filled = Form(
        nodes=2,
        gpus=2,
        gpu_type="H100",
        time_limit="02:00:00",
        name="probe-13b",
        command="python finetune.py --size 13b",
    )
    assert form.magic(filled) == (
        "%mgpu_srun --nodes 2 --gpus-per-node 2 --gpu-type H100 -t 02:00:00 --name probe-13b -- python "
        "finetune.py --size 13b"
    )
    spec = form.submission_of(filled, {}, to_submit=True).spec
    assert (spec.nodes, spec.gpus_per_node, spec.gpu_type, spec.time_limit_s, spec.name) == (
        2,
        2,
        "H100",
        7200.0,
        "probe-13b",
    )
    assert spec.command == ("python", "finetune.py", "--size", "13b")


@pytest.mark.parametrize("name", ["it's", 'a "b" c', "$HOME", "a\\b", "{1+1}", "<b>", "-x", "日本"])
def test_any_name_survives_the_line(name: str) -> None:
    spec = form.submission_of(Form(name=name, command="true"), {}, to_submit=True).spec
    assert spec.name == name


def test_all_that_is_folded_is_on_the_line() -> None:
    values: dict[str, str | bool] = {
        "distributed": "distributed",
        "exclusive": True,
        "policy": "topology",
        "exclude": "gpu-06 gpu-07",
        "env_setup_cmd": "source ~/venv/bin/activate",
        "env": "A=1 B=2=3",
        "inputs": "cfg, tokens",
        "outputs": "scores",
        "retries": "2",
        "dependency": "afterok:K7P2M9QX",
        "array": "1-10%2",
    }
    more = More(values=values, flags=" --debug ")
    filled = Form(gpus=1, time_limit="02:00:00", name="it is", code="scores = f(cfg, tokens)", more=more)
    line, _, body = form.magic(filled).partition("\n")
    # The same as labextension/tests/jobs.test.ts expects of the sidebar.
    assert line == (
        "%%mgpu_srun --gpus 1 --distributed --exclusive --exclude gpu-06,gpu-07 --policy topology "
        "-t 02:00:00 --dependency afterok:K7P2M9QX --array 1-10%2 --name 'it is' --env A=1 --env B=2=3 "
        "--retries 2 --env-setup-cmd 'source ~/venv/bin/activate' --in cfg,tokens --out scores --debug"
    )
    assert body == "scores = f(cfg, tokens)"
    alone = {name: value for name, value in values.items() if name != "array"}
    without = msgspec.structs.replace(filled, more=More(values=alone))
    found = form.submission_of(without, {}, to_submit=True)
    spec = found.spec
    assert (spec.script, spec.distributed, spec.exclusive, spec.policy, spec.exclude) == (
        body,
        True,
        True,
        "topology",
        ("gpu-06", "gpu-07"),
    )
    assert (spec.env, spec.retries, found.inputs, spec.outputs) == (
        {"A": "1", "B": "2=3"},
        2,
        ("cfg", "tokens"),
        ("scores",),
    )
    with pytest.raises(InvalidRequest, match="Write the Python"):
        form.submission_of(Form(code=" "), {}, to_submit=True)
    with pytest.raises(InvalidRequest):  # a command has no variables
        form.submission_of(Form(command="true", more=more), {}, to_submit=False)


def test_other_sizes() -> None:
    assert [(one.nodes, one.gpus) for one in form.sizes_of(Form(nodes=2, gpus=2))] == [(2, 4), (1, 4), (2, 1)]
    assert [(one.nodes, one.gpus) for one in form.sizes_of(Form())] == [(1, 2), (2, 1)]
    assert form.sizes_of(Form(gpus=0)) == form.sizes_of(Form(picks=(Picked("a", 0),))) == []
    now = api.Explanation(verdict="now", code="", text="")
    later = api.Explanation(verdict="not_now", code="", text="", expected=api.Forecast(at=NOW + 60))
    unknown, never = (api.Explanation(verdict=verdict, code="", text="") for verdict in ("not_now", "never"))
    said = [
        submit_views.size_text(Form(nodes=2, gpus=4, gpu_type="A100"), told, NOW)
        for told in (now, later, unknown, never)
    ]
    assert said == [
        "2 × 4 A100 would start now.",
        f"2 × 4 A100 would start at {moment(NOW + 60, NOW)}.",
        "",
        "",
    ]


def test_exact_gpus_and_more_flags() -> None:
    picks = (Picked("gpu-04", 5), Picked("gpu-03", 7), Picked("gpu-03", 6))
    filled = Form(nodes=3, gpus=8, picks=picks, command="true", more=More(flags="--distributed --env LR=0.1"))
    assert form.arguments(filled) == "--node-gpu-ids 'gpu-03:6,7;gpu-04:5' --distributed --env LR=0.1 -- true"
    spec = form.submission_of(filled, {}, to_submit=True).spec
    assert isinstance(spec, JobSpec)
    assert (spec.node_gpu_ids, spec.distributed, spec.env) == (
        {"gpu-03": (6, 7), "gpu-04": (5,)},
        True,
        {"LR": "0.1"},
    )
    assert form.toggled(picks, picks[0]) == picks[1:]
    assert form.toggled((), picks[0]) == picks[:1]


def test_what_is_wrong_is_said_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="Write the command"):
        form.submission_of(Form(), {}, to_submit=True)
    assert form.submission_of(Form(), {}, to_submit=False).spec.command == ("python", "train.py")
    with pytest.raises(InvalidRequest):
        form.submission_of(Form(command="true", more=More(flags="--no-such-flag")), {}, to_submit=False)
    with pytest.raises(InvalidRequest, match="--help"):
        form.submission_of(Form(command="true", more=More(flags="--help")), {}, to_submit=False)


def test_offers_that_the_form_can_take() -> None:
    def taken(patch: dict[str, object]) -> Form | None:
        return form.with_offer(Form(gpus=4, gpu_type="H100"), api.Offer(text="", flags=(), patch=patch))

    assert taken({"gpus": 2}) == Form(gpus=2, gpu_type="H100")
    assert taken({"gpu_type": None, "time_limit_s": 3480.0}) == Form(gpus=4, time_limit="00:58:00")
    assert taken({"nodes": 2, "gpus_per_node": 2}) == Form(nodes=2, gpus=2, gpu_type="H100")
    assert taken({"partition": "x"}) is None


def test_the_picker_shows_where_it_would_go_first() -> None:
    told = seen(nodes=[node("a"), node("b", 16), node("c", [gpu(0, job_id="J", user="x", state="held")])])
    answer = api.Explanation(verdict="now", code="", text="", where=(api.Where(node=NodeId("c"), gpus=(0,)),))
    found = submit_views.pick_rows(told, Form(), answer)
    assert [(row.node, row.first) for row in found] == [("c", 0), ("b", 0), ("b", 8), ("a", 0)]
    assert "would take GPU 0" in submit_views.pick_html(told, found[0], Form(), answer)
    assert submit_views.pick_html(told, found[1], Form(picks=(Picked("b", 3),)), answer).count("pick") == 2
    assert submit_views.types_of(told) == [("H100 80GB", 24)]


def test_answers_of_the_dry_run() -> None:
    now = api.Explanation(
        verdict="now", code="", text="", where=(api.Where(node=NodeId("gpu-03"), gpus=(6, 7)),)
    )
    assert (
        Tags(submit_views.answer_html(now, "", NOW, checking=False)).text
        == " Starts nowon gpu-03 (GPUs 6, 7)"
    )
    assert "mgpu-old" in submit_views.answer_html(now, "", NOW, checking=True)
    never = api.Explanation(verdict="never", code="", text="No node has 16 GPUs.")
    assert "Can never start here" in submit_views.answer_html(never, "", NOW, checking=False)
    assert "Checking…" in submit_views.answer_html(None, "", NOW, checking=True)
    time = submit_views.answer_html(
        now, "Time limit is not a time: Write hours, like 02:00:00.", NOW, checking=False
    )
    assert "<b>Time limit is not a time</b></div><p>Write hours, like 02:00:00.</p>" in time


def test_the_button_that_writes_a_cell_carries_the_line() -> None:
    button = cell_button("%mgpu_srun --name 'a\"b' -- x")
    args = html.unescape(re.search(r'commandlinker-args="([^"]*)"', button)[1])  # type: ignore[index]
    assert args == (
        '{"commands":["notebook:insert-cell-below","notebook:replace-selection"],"args":{"text":"%mgpu_srun '
        "--name 'a\\\"b' -- x\"}}"
    )
