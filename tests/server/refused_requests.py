"""Wrong requests of REST: method, path, body, headers; the answer's status, code and sentence. Data only.

The node `gpu01` is there with two GPUs; a header that is None is not sent.
"""

from __future__ import annotations

Row = tuple[str, str, str | bytes | None, dict[str, str | None], int, str, str]
# fmt: off
REFUSED: tuple[Row, ...] = (
    ("POST", "jobs", "", {},
     400, "not-json", ("The request is not JSON (Input data was truncated): send one JSON document "
      "in UTF-8.")),
    ("POST", "jobs", "{", {},
     400, "not-json", ("The request is not JSON (Input data was truncated): send one JSON document "
      "in UTF-8.")),
    ("POST", "jobs", "[]", {},
     400, "invalid", ("The request is not valid: it must be a table of names and values, and it is a"
      " list; change that and send it again (see openapi.json).")),
    ("POST", "jobs", "null", {},
     400, "invalid", ("The request is not valid: it must be a table of names and values, and it is "
      "nothing; change that and send it again (see openapi.json).")),
    ("POST", "jobs", "7", {},
     400, "invalid", ("The request is not valid: it must be a table of names and values, and it is a"
      " whole number; change that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":"true"}', {},
     400, "invalid", ("command is not valid: it must be a list, and it is text; change that and send"
      " it again (see openapi.json).")),
    ("POST", "jobs", '{"command":[]}', {},
     400, "no-command", "Give a command after `--`, or a cell body: one of the two."),
    ("POST", "jobs", '{"command":[1]}', {},
     400, "invalid", ("command[0] is not valid: it must be text, and it is a whole number; change "
      "that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":[""]}', {},
     400, "no-command", "The command is empty: name a program after `--`."),
    ("POST", "jobs", '{"command":["true"],"script":"x"}', {},
     400, "no-command", "Give a command after `--`, or a cell body: one of the two."),
    ("POST", "jobs", '{"command":["true"],"gpus":"2"}', {},
     400, "invalid", ("gpus is not valid: it must be a whole number, and it is text; change that and"
      " send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"gpus":-1}', {},
     400, "invalid", ("gpus is not valid: it must be at least 0; change that and send it again (see "
      "openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"gpus":1.5}', {},
     400, "invalid", ("gpus is not valid: it must be a whole number, and it is a number; change that"
      " and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"gpus":true}', {},
     400, "invalid", ("gpus is not valid: it must be a whole number, and it is true or false; change"
      " that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"gpus":1e400}', {},
     400, "invalid", ("gpus is not valid: it is too large; change that and send it again (see "
      "openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"nodes":0}', {},
     400, "invalid", ("nodes is not valid: it must be at least 1; change that and send it again (see"
      " openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"time_limit_s":0}', {},
     400, "invalid", ("time_limit_s is not valid: it must be above 0; change that and send it again "
      "(see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"time_limit_s":"1h"}', {},
     400, "invalid", ("time_limit_s is not valid: it must be a number, and it is text; change that "
      "and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"env":{"1A":"x"}}', {},
     400, "invalid", ("env is not valid: use letters, digits and underscore; change that and send it"
      " again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"env":{"A":1}}', {},
     400, "invalid", ("env[...] is not valid: it must be text, and it is a whole number; change that"
      " and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"env":[]}', {},
     400, "invalid", ("env is not valid: it must be a table of names and values, and it is a list; "
      "change that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"nodelist":"n1"}', {},
     400, "invalid", ("nodelist is not valid: it must be a list, and it is text; change that and "
      "send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"nodelist":["a b"]}', {},
     400, "invalid", ("nodelist[0] is not valid: use letters, digits, dot, dash and underscore, at "
      "most 63; change that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"exclude":["gpu1"]}', {},
     409, "unknown-node", ("There is no node gpu1, which --exclude names: name gpu01 if you mean "
      "that one, see `mgpu nodes`, or add --wait-for-nodes to name it before it"
      " joins.")),
    ("POST", "jobs", '{"command":["true"],"nodelist":["gpu1"]}', {},
     409, "unknown-node", ("There is no node gpu1: name gpu01 if you mean that one, see `mgpu "
      "nodes`, or add --wait-for-nodes to wait for a machine that has it.")),
    ("POST", "jobs", '{"command":["true"],"cwd":"relative"}', {},
     400, "invalid", ("cwd is not valid: it must be a whole path, from / on; change that and send it"
      " again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"name":"a\\u0000b"}', {},
     400, "invalid", ("name is not valid: line breaks and control characters are not allowed; change"
      " that and send it again (see openapi.json).")),
    ("POST", "jobs", "{\"command\":[\"true\"],\"name\":\"" + "x" * 300 + "\"}", {},
     400, "invalid", ("name is not valid: it may have at most 200 characters; change that and send "
      "it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"stdout_file":"%z"}', {},
     400, "bad-pattern", ("--output %z: %z stands for nothing; use %j (job), %A and %a (array), %N "
      "(node), %t (rank), %x (name), %u (user) or %% for a percent sign.")),
    ("POST", "jobs", '{"command":["true"],"open_mode":"maybe"}', {},
     400, "invalid", ("open_mode is not valid: 'maybe' is none of the values that it can have; "
      "change that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"on_disconnect":"maybe"}', {},
     400, "invalid", ("on_disconnect is not valid: 'maybe' is none of the values that it can have; "
      "change that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"zebra":1}', {},
     400, "invalid", ("The request is not valid: there is no field zebra; change that and send it "
      "again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"constraint":"(a"}', {},
     400, "bad-constraint", ("--constraint (a: write labels with & | ! and brackets, as in "
      "a100&(rack=r1|!old).")),
    ("POST", "jobs", '{"command":["true"],"array":"5-1"}', {},
     400, "bad-array", "--array 5-1: 5-1 is an empty range; write the smaller number first."),
    ("POST", "jobs", '{"command":["true"],"dependency":"afterok:xyz"}', {},
     400, "bad-dependency", ("--dependency afterok:xyz: name jobs by their ids, as in "
      "afterok:ABCD1234.")),
    ("POST", "jobs", '{"command":["true"],"dependency":"afterok:AAAAAAAA"}', {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("POST", "jobs", '{"command":["true"],"signal":"KILL@5"}', {},
     400, "bad-signal", "--signal KILL@5: no program can hear SIGKILL; use USR1 or TERM."),
    ("POST", "jobs", '{"command":["true"],"sync":"nothex"}', {},
     400, "invalid", ("sync is not valid: it must be a whole path, from / on, or a SHA-256; change "
      "that and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"sync":"' + "a" * 64 + '"}', {},
     409, "folder-missing", ("The folder of this job is not here (any more): send it again with "
      "--sync.")),
    ("POST", "jobs", '{"command":["true"],"inputs":"zz"}', {},
     400, "invalid", ("inputs is not valid: it must be a SHA-256, 64 digits 0-9 and a-f; change that"
      " and send it again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"partition":"nope"}', {},
     400, "unknown-partition", "There is no partition nope: this cluster has none; leave it out."),
    ("POST", "jobs", '{"command":["true"],"account":"nope"}', {},
     400, "unknown-account", "There is no account nope: this cluster has none; leave it out."),
    ("POST", "jobs", '{"command":["true"],"qos":"nope"}', {},
     400, "unknown-qos", "There is no qos nope: this cluster has none; leave it out."),
    ("POST", "jobs", '{"command":["true"],"policy":"nope"}', {},
     400, "unknown-policy", ("There is no policy nope: it is one of fill_first, spread, topology, "
      "round_robin.")),
    ("POST", "jobs", '{"command":["true"],"gpus":9}', {},
     409, "too-large", ("Needs 9 GPUs on one node, but the largest, gpu01, has 2 GPUs and 8 CPUs: "
      "ask for less, or use --nodes; or add --wait-for-nodes to wait for a machine"
      " that has it.")),
    ("POST", "jobs", '{"command":["true"],"nodes":3}', {},
     409, "too-few-nodes", ("Needs 3 nodes, but only 1 may be used: ask for fewer --nodes; or add "
      "--wait-for-nodes to wait for a machine that has it.")),
    ("POST", "jobs", '{"command":["true"],"gpu_ids":[7]}', {},
     409, "too-large", ("There is no GPU 7: gpu01 has 2 GPUs, numbered from 0; name others, see "
      "`mgpu nodes`; or add --wait-for-nodes to wait for a machine that has it.")),
    ("POST", "jobs", '{"command":["true"],"gpu_type":"h100"}', {},
     409, "gpu-kind", ("Needs 1 node, but none would do. gpu01: It has 0 H100 GPUs, 1 is needed; or "
      "add --wait-for-nodes to wait for a machine that has it.")),
    ("POST", "jobs", '{"command":["true"],"arch":"sparc"}', {},
     409, "arch", ("Needs 1 node, but none would do. gpu01: It is x86_64, not sparc; or add --wait-"
      "for-nodes to wait for a machine that has it.")),
    ("POST", "jobs", '{"command":["true"],"parts":[{"gpu":1}]}', {},
     400, "invalid", ("parts[0] is not valid: there is no field gpu; change that and send it again "
      "(see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"terminal":[0,80]}', {},
     400, "invalid", ("terminal[0] is not valid: it must be at least 1; change that and send it "
      "again (see openapi.json).")),
    ("POST", "jobs", '{"command":["true"]} trailing', {},
     400, "not-json", ("The request is not JSON (JSON is malformed: trailing characters (byte 22)): "
      "send one JSON document in UTF-8.")),
    ("POST", "jobs", "command=true", {"Content-Type": "application/x-www-form-urlencoded"},
     400, "not-json", ("The request is not JSON (JSON is malformed: invalid character (byte 0)): "
      "send one JSON document in UTF-8.")),
    ("POST", "jobs", '{"command":["true"]}', {"Idempotency-Key": "x" * 500},
     400, "invalid", "Idempotency-Key must have 1 to 200 printable ASCII characters."),
    ("POST", "jobs", '{"command":["true"]}', {"Authorization": None},
     401, "unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."),
    ("POST", "jobs", '{"command":["true"]}', {"Authorization": "mgpu wrong"},
     401, "bad-token", ("This mgpu token is not known or has expired: restart the kernel, or log in "
      "again.")),
    ("POST", "jobs", '{"command":["true"]}', {"Authorization": "Bearer wrong"},
     401, "unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."),
    ("POST", "jobs", '{"command":["true"]}', {"Authorization": "Basic dXNlcjpwYXNz"},
     401, "unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."),
    ("POST", "jobs/bulk", '{"jobs":[]}', {},
     400, "invalid", ("jobs is not valid: it is empty; change that and send it again (see "
      "openapi.json).")),
    ("POST", "jobs/bulk", '{"jobs":[{"spec":{"command":[]}}]}', {},
     400, "no-command", "Give a command after `--`, or a cell body: one of the two."),
    ("POST", "jobs/bulk", "{}", {},
     400, "invalid", ("The request is not valid: the field jobs is missing; change that and send it "
      "again (see openapi.json).")),
    ("POST", "jobs/parse", "{}", {},
     400, "invalid", ("The request is not valid: the field line is missing; change that and send it "
      "again (see openapi.json).")),
    ("POST", "jobs/parse", '{"line":"--gpus -1 -- x"}', {},
     400, "bad-number", "--gpus -1: it cannot be below 0; write it like --gpus 2."),
    ("POST", "jobs/parse", '{"line":"--sync . -- x"}', {},
     400, "no-directory", (".: write the whole path, from / on; this request comes from no "
      "directory.")),
    ("POST", "jobs/parse", '{"line":"\\"open"}', {},
     400, "bad-quotes", "The quotation mark at \"open is never closed: close it, or write \\\""),
    ("POST", "jobs/dry-run", '{"command":[]}', {},
     400, "no-command", "Give a command after `--`, or a cell body: one of the two."),
    ("GET", "jobs?state=sleeping", None, {},
     400, "unknown-state", ("'sleeping' is no state: use active, queued, starting, running, "
      "stopping, completed, failed, cancelled, timeout.")),
    ("GET", "jobs?limit=0", None, {},
     400, "invalid", "limit must be between 1 and 1000, not 0."),
    ("GET", "jobs?limit=x", None, {},
     400, "invalid", "The parameter limit is no whole number: see openapi.json."),
    ("GET", "jobs/short", None, {},
     404, "no-such-job", ("'short' is no job id (eight characters A-Z and 0-9): see `mgpu_queue "
      "--all`.")),
    ("GET", "jobs/AAAAAAAA", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/aaaaaaaa", None, {},
     404, "no-such-job", ("'aaaaaaaa' is no job id (eight characters A-Z and 0-9): see `mgpu_queue "
      "--all`.")),
    ("GET", "jobs/AAAAAAAA/output", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/output?rank=x", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/output?offset=-1", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/explain", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/zebra", None, {},
     404, "not-found", "There is nothing at this address: see openapi.json."),
    ("DELETE", "jobs/AAAAAAAA", None, {},
     405, "method-not-allowed", "This address does not take that method: see openapi.json."),
    ("PUT", "jobs", "{}", {},
     405, "method-not-allowed", "This address does not take that method: see openapi.json."),
    ("PATCH", "jobs/AAAAAAAA", "{}", {},
     400, "nothing-to-change", "Say what is to change: priority, time_limit_s, hold or release."),
    ("PATCH", "jobs/AAAAAAAA", '{"priority":"high"}', {},
     400, "invalid", ("priority is not valid: it must be a whole number, and it is text; change that"
      " and send it again (see openapi.json).")),
    ("POST", "jobs/AAAAAAAA/cancel", "", {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "nodes/nope", None, {},
     404, "no-such-node", "There is no node 'nope': see `mgpu nodes`."),
    ("GET", "nodes/a%20b", None, {},
     404, "no-such-node", "There is no node 'a b': see `mgpu nodes`."),
    ("PATCH", "nodes/nope", '{"action":"drain"}', {},
     404, "no-such-node", "There is no node nope: see `mgpu nodes`."),
    ("POST", "nodes/nope", '{"action":"explode"}', {},
     405, "method-not-allowed", "This address does not take that method: see openapi.json."),
    ("POST", "join-tokens", '{"ttl_s":-5}', {},
     400, "invalid", ("ttl_s is not valid: it must be at least 1; change that and send it again (see"
      " openapi.json).")),
    ("POST", "join-tokens", '{"node_id":"a b"}', {},
     400, "invalid", ("node_id is not valid: use letters, digits, dot, dash and underscore, at most "
      "63; change that and send it again (see openapi.json).")),
    ("POST", "users", "{}", {},
     400, "invalid", ("The request is not valid: the field name is missing; change that and send it "
      "again (see openapi.json).")),
    ("POST", "users", '{"name":"a b"}', {},
     400, "invalid", ("name is not valid: use letters, digits and . _ @ -, at most 64; change that "
      "and send it again (see openapi.json).")),
    ("POST", "users", '{"name":"ann","ttl_s":-1}', {},
     400, "invalid", ("ttl_s is not valid: it must be above 0; change that and send it again (see "
      "openapi.json).")),
    ("DELETE", "users/nobody", None, {},
     404, "no-such-user", "There is no user nobody: see `mgpu user list`."),
    ("GET", "zebra", None, {},
     404, "not-found", "There is nothing at this address: see openapi.json."),
    ("GET", "", None, {},
     404, "not-found", "There is nothing at this address: see openapi.json."),
    ("POST", "cluster", "{}", {},
     405, "method-not-allowed", "This address does not take that method: see openapi.json."),
    ("GET", "jobs?cursor=nonsense", None, {},
     400, "bad-cursor", "That cursor is not one of ours: start again without it."),
    ("GET", "cluster/history?span=x", None, {},
     400, "invalid", "The parameter span is no whole number: see openapi.json."),
    ("POST", "jobs/purge", '{"older_than_s":-1}', {},
     400, "invalid", ("older_than_s is not valid: it must be at least 0; change that and send it "
      "again (see openapi.json).")),
    ("POST", "jobs", "[" * 5000, {},
     400, "invalid", ("The request is not valid: it must be a table of names and values, and it is a"
      " list; change that and send it again (see openapi.json).")),
    ("POST", "jobs", b'{"command":["\xff"]}', {},
     400, "not-json", "The request is not JSON (it is not UTF-8): send one JSON document in UTF-8."),
    ("POST", "jobs", '{"command":["true"]}', {"Authorization": "token wrong"},
     401, "unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."),
    ("GET", "jobs", None, {"Authorization": None},
     401, "unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."),
    ("GET", "jobs", None, {"Authorization": "mgpu"},
     401, "bad-token", ("This mgpu token is not known or has expired: restart the kernel, or log in "
      "again.")),
    ("PATCH", "nodes/gpu01", '{"action":"explode"}', {},
     400, "invalid", ("action is not valid: 'explode' is none of the values that it can have; change"
      " that and send it again (see openapi.json).")),
    ("PATCH", "nodes/gpu01", "{}", {},
     400, "invalid", ("The request is not valid: the field action is missing; change that and send "
      "it again (see openapi.json).")),
    ("PATCH", "nodes/gpu01", '{"labels":{"a b":"c"}}', {},
     400, "invalid", ("labels is not valid: use letters, digits and _ . / -, at most 63; change that"
      " and send it again (see openapi.json).")),
    ("GET", "nodes/gpu01/history?points=0", None, {},
     400, "invalid", "points must be between 1 and 2000, not 0."),
    ("POST", "nodes/nope/ping", "", {},
     404, "no-such-node", "There is no node 'nope': see `mgpu nodes`."),
    ("DELETE", "nodes/gpu01", None, {},
     409, "node-connected", ("Node gpu01 is online: stop its agent, or give up what it runs with "
      "`mgpu node revoke gpu01`; then remove it.")),
    ("DELETE", "nodes/nope", None, {},
     404, "no-such-node", "There is no node nope: see `mgpu nodes`."),
    ("POST", "jobs/AAAAAAAA/requeue", "", {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("POST", "jobs/AAAAAAAA/rerun", "", {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/trace", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/results", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("GET", "jobs/AAAAAAAA/result?node=n1", None, {},
     404, "no-such-job", "There is no job AAAAAAAA: see `mgpu_queue --all`."),
    ("POST", "folders/missing", "{}", {},
     400, "invalid", ("The request is not valid: the field digests is missing; change that and send "
      "it again (see openapi.json).")),
    ("POST", "folders/missing", '{"pieces":["zz"]}', {},
     400, "invalid", ("The request is not valid: there is no field pieces; change that and send it "
      "again (see openapi.json).")),
    ("POST", "folders/pieces", "nonsense", {},
     400, "not-json", ("The request is not JSON (JSON is malformed: invalid character (byte 4)): "
      "send one JSON document in UTF-8.")),
    ("POST", "jobs/dry-run", '{"command":["true"],"gpus":"x"}', {},
     400, "invalid", ("gpus is not valid: it must be a whole number, and it is text; change that and"
      " send it again (see openapi.json).")),
    ("POST", "jobs/parse", "{\"line\":\"" + "x" * 30000 + "\"}", {},
     400, "invalid", ("line is not valid: it may have at most 20000 characters; change that and send"
      " it again (see openapi.json).")),
    ("POST", "jobs/bulk", '{"jobs":[{"spec":{"command":["true"]},"zebra":1}]}', {},
     400, "invalid", ("jobs[0] is not valid: there is no field zebra; change that and send it again "
      "(see openapi.json).")),
    ("GET", "jobs?user=a%00b", None, {},
     400, "invalid", "The parameter user is no plain text: see openapi.json."),
    ("GET", "jobs?limit=%FF", None, {},
     400, "not-utf8", "The query string is not UTF-8: encode its text as UTF-8 and send it again."),
    ("POST", "jobs", '{"command":["true"],"time_limit_s":1e999}', {},
     400, "invalid", ("time_limit_s is not valid: it is too large; change that and send it again "
      "(see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"node_gpu_ids":{"gpu01":[]}}', {},
     400, "invalid", ("node_gpu_ids[...] is not valid: it is empty; change that and send it again "
      "(see openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"gpu_ids":[0,0]}', {},
     400, "gpu-contradiction", "--gpu-ids names a GPU twice: name each once."),
    ("POST", "jobs", '{"command":["true"],"sweep":{"lr":[]}}', {},
     400, "invalid", ("sweep[...] is not valid: it is empty; change that and send it again (see "
      "openapi.json).")),
    ("POST", "jobs", '{"command":["true"],"image":"BAD IMAGE"}', {},
     400, "bad-image", ("--image BAD IMAGE is no image: write it like pytorch/pytorch:2.5.1 or "
      "ghcr.io/me/train:1.")),
    ("POST", "jobs", '{"command":["true"],"results":["/etc/x"]}', {},
     400, "bad-results", "--results /etc/x: it must be within the job's directory, like out/*.pt."),
    ("POST", "jobs", '{"script":"print(1)\\u0000"}', {},
     400, "bad-script", "The cell has a NUL character: remove it."),
)
# fmt: on
