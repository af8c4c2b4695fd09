"""A job once more from its record, and jobs that are forgotten."""

from __future__ import annotations

from mgpu_jupyter.store.logs import log_files
from tests.builders import a_spec
from tests.server.conftest import submit


async def cancelled(api, **spec):
    _, body = await api("jobs", "POST", a_spec(**spec))
    await api(f"jobs/{body['job_id']}/cancel", "POST")
    return body["job_id"]


async def test_a_job_is_submitted_again_without_its_old_waits(api, app):
    first = await submit(api)
    job_id = await cancelled(
        api, name="again", env={"A": "1"}, hold=True, dependency=f"afterany:{first}", begin_at=4_000_000_000.0
    )
    headers = {"Idempotency-Key": "once"}
    code, body = await api(f"jobs/{job_id}/rerun", "POST", headers=headers)
    assert (code, body["state"]) == (201, "queued")
    assert await api(f"jobs/{job_id}/rerun", "POST", headers=headers) == (201, body)
    spec = app.service.saved_job(body["job_id"]).job.spec
    assert (spec.name, spec.env, spec.hold, spec.dependency, spec.begin_at) == (
        "again",
        {"A": "1"},
        False,
        "",
        0.0,
    )
    assert (await api("jobs/ZZZZ9999/rerun", "POST"))[1]["code"] == "no-such-job"


async def test_a_job_that_waits_gives_way_to_a_changed_one(api, app):
    job_id = await submit(api)
    assert (await api(f"jobs/{job_id}/replace", "POST", {"patch": {"gpus": -3}}))[1]["code"] == "invalid"
    assert (await api(f"jobs/{job_id}/replace", "POST", {"patch": {"no_such_field": 1}}))[0] == 400
    assert app.service.saved_job(job_id).job.state == "queued"
    code, body = await api(
        f"jobs/{job_id}/replace", "POST", {"patch": {"name": "changed", "time_limit_s": None}}
    )
    assert (code, app.service.saved_job(body["job_id"]).job.spec.name) == (201, "changed")
    assert app.service.saved_job(job_id).job.state == "cancelled"
    assert (await api(f"jobs/{job_id}/replace", "POST", {"patch": {}}))[1]["code"] == "not-waiting"


async def test_one_job_of_an_array_keeps_its_number(api, app):
    _, body = await api("jobs", "POST", a_spec(array="3-5"))
    _, again = await api(f"jobs/{body['job_ids'][1]}/rerun", "POST")
    _, job = await api(f"jobs/{again['job_id']}")
    assert (job["array_index"], len(again["job_ids"])) == (4, 1)


async def test_one_job_of_an_array_gives_way_and_the_others_stay(api, app):
    _, body = await api("jobs", "POST", a_spec(array="3-5"))
    code, made = await api(f"jobs/{body['job_ids'][1]}/replace", "POST", {"patch": {"name": "changed"}})
    _, job = await api(f"jobs/{made['job_id']}")
    assert (code, job["array_index"], len(made["job_ids"]), job["name"]) == (201, 4, 1, "changed")
    states = [app.service.saved_job(one).job.state for one in body["job_ids"]]
    assert states == ["queued", "cancelled", "queued"]


async def test_what_is_over_is_forgotten_with_its_output_and_what_waits_is_not(api, app):
    waits, over = await submit(api), await cancelled(api)
    path = app.service.log_root / over[:2] / f"{over}.1.0.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 1000)

    assert await api("jobs/purge", "POST", {}) == (200, {"jobs": 0, "output_bytes": 0, "dry_run": False})
    assert await api("jobs/purge", "POST", {"older_than_s": 0, "dry_run": True}) == (
        200,
        {"jobs": 1, "output_bytes": 1000, "dry_run": True},
    )
    assert path.exists()
    assert await api("jobs/purge", "POST", {"older_than_s": 0}) == (
        200,
        {"jobs": 1, "output_bytes": 1000, "dry_run": False},
    )
    assert log_files(app.service.log_root, over) == []
    _, page = await api("jobs")
    assert [job["id"] for job in page["jobs"]] == [waits]
    assert (await api(f"jobs/{over}"))[0] == 404


async def test_others_are_rerun_and_purged_by_administrators_only(api, app, ask, add):
    ann, bob = await add("ann"), await add("bob", role="admin")
    theirs = await cancelled(api)
    for path, body in (
        (f"jobs/{theirs}/rerun", {}),
        ("jobs/purge", {"everybody": True}),
        ("jobs/purge", {"user": "bob"}),
    ):
        status, answer = await ask(path, ann, "POST", body)
        assert (status, answer["code"]) in ((403, "not-yours"), (403, "not-admin"))
    assert await ask("jobs/purge", ann, "POST", {"older_than_s": 0}) == (
        200,
        {"jobs": 0, "output_bytes": 0, "dry_run": False},
    )
    status, answer = await ask("jobs/purge", bob, "POST", {"older_than_s": 0, "everybody": True})
    assert (status, answer["jobs"]) == (200, 1)


async def test_values_of_an_environment_are_in_no_file_and_no_answer_and_are_dropped_in_time(
    api, app, state_dir
):
    env = {"HF_TOKEN": "hf_planted_secret"}
    job_id = await cancelled(api, env=env)
    files = [path for path in state_dir.rglob("*") if path.is_file() and path.parent.name != "keys"]
    assert [path for path in files if b"hf_planted_secret" in path.read_bytes()] == []
    answers = [
        await api(path)
        for path in (f"jobs/{job_id}", "jobs", f"jobs/{job_id}/explain", f"jobs/{job_id}/trace", "changes")
    ]
    assert "hf_planted_secret" not in str(answers)

    headers = {"Idempotency-Key": "mine"}
    code, body = await api("jobs", "POST", a_spec(env=env), headers=headers)
    await api(f"jobs/{body['job_id']}/cancel", "POST")
    assert await app.service.write(lambda store: store.drop_values(app.service.clock() + 1)) == (2, 0)
    assert (await api("jobs", "POST", a_spec(env=env), headers=headers))[1]["job_id"] == body["job_id"]
    code, answer = await api(f"jobs/{job_id}/rerun", "POST")
    assert (code, answer["code"], answer["message"]) == (
        409,
        "values-dropped",
        f"The values of --env of job {job_id} (HF_TOKEN) are kept no longer: submit it anew with them.",
    )
