"""Every command line of the interface, and of the earlier tools, with what it must do. Data;
`test_command_table.py` runs it.

A row is a line for bash. It finds `$PORT`, the nodes n1 (4 simulated GPUs, rack r1) and n2 (2), the jobs
`$DONE` (printed two lines and exited with 0), `$RUN` (goes on) and `$HELD`, the files job.sh and trace.csv,
and the functions `bg FLAGS -- CMD` (submits and prints the id), `until_state JOB STATE` and `until_idle`.
Rows of `TOGETHER` run side by side and must not touch each other; rows of `ALONE` run one after the other.
"""

from __future__ import annotations

import msgspec

RULE = "=" * 50


class Row(msgspec.Struct, frozen=True):
    """A line, its exit code, what stdout and stderr must contain, in this order."""

    line: str
    code: int = 0
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()


def _row(line: str, *out: str, code: int = 0, err: tuple[str, ...] = ()) -> Row:
    return Row(line, code, out, err)


SRUN = (
    _row(
        "mgpu_srun --gpus 1 -- echo hi",
        "hi\n",
        err=("Job submitted. ID: ", " (priority=0)", "completed with exit code 0"),
    ),
    _row("mgpu srun -G 1 -- echo hi", "hi\n"),
    _row("mgpu_srun --gpus 0 -- bash -c 'exit 7'", code=7, err=("completed with exit code 7",)),
    _row("mgpu_srun --gpus 0 -- bash -c 'kill -9 $$'", code=137),
    _row('mgpu_srun --gpus 0 "echo one; echo two"', "one\ntwo\n"),
    _row("mgpu_srun --gpu-ids 0 -- bash -c 'echo gpu $CUDA_VISIBLE_DEVICES'", "gpu 0\n"),
    _row(
        "mgpu_srun --gpu-ids 0,1 --mem 100 --time-limit 60 --priority 3 --interactive -- echo seed",
        "seed\n",
        err=("(priority=3)",),
    ),
    _row(
        "mgpu_srun --gpus 0 --background -- true",
        "Job submitted. ID: ",
        "Job queued. Use mgpu_queue to check status.",
    ),
    _row("mgpu_srun --gpus 0 --background --json -- true", '{"job_id":"', '"state":"'),
    _row("mgpu_srun -N 2 --gpus 0 -- bash -c 'echo $MGPU_NODE_ID'", "n"),
    _row(
        "mgpu_srun --nodes 2 --gpus-per-node 1 -- bash -c 'echo rank $MGPU_NODE_RANK of $MGPU_NNODES' | sort",
        "0: rank 0 of 2\n1: rank 1 of 2\n",
    ),
    _row("mgpu_srun_multinode --nodes 2 --gpus-per-node 1 --interactive -- hostname | sort", "0: ", "\n1: "),
    _row(
        "mgpu_srun_multinode --gpu-ids 0 --master-host 127.0.0.1 --master-port $PORT --background -- true",
        "Job submitted. ID: ",
        "Job queued.",
    ),
    _row(
        "mgpu_srun --nodelist n1,n2 --gpu-ids 0,1 -- bash -c 'echo $MGPU_NODE_ID:$CUDA_VISIBLE_DEVICES' | "
        "cut -c4- | sort",
        "n1:0,1\nn2:0,1\n",
    ),
    _row(
        "mgpu_srun --node-gpu-ids 'n1:0,1;n2:1' -- bash -c 'echo $MGPU_NODE_ID:$CUDA_VISIBLE_DEVICES' | sort",
        "n1:0,1\n",
        "n2:1\n",
    ),
    _row(
        "mgpu_srun --nodes 2 --gpus-per-node 1 --distributed -- bash -c 'echo $RANK of $WORLD_SIZE' | sort",
        "0 of 2\n",
        "1 of 2\n",
    ),
    _row("mgpu_srun --gpus 0 --prolog true --epilog true -- echo between", "between\n"),
    _row(
        "mgpu_srun --gpus 0 --prolog true --epilog 'exit 3' --results '*.txt' -- bash -c 'echo 7 > r.txt; "
        "echo made'",
        "made\n",
    ),
    _row("d=$(mktemp -d); echo synced > $d/f; mgpu_srun --gpus 0 --sync $d -- cat f; rm -r $d", "synced\n"),
    _row(
        "j=$(bg --gpus 0 -- true); until_state $j completed; mgpu summary $j && mgpu results $j", "completed"
    ),
    _row("mgpu_srun -w n2 -G 1 -- bash -c 'echo $MGPU_NODE_ID'", "n2\n"),
    _row("mgpu_srun -x n1 -G 1 -- bash -c 'echo $MGPU_NODE_ID'", "n2\n"),
    _row("mgpu_srun --exclude n2 -G 1 -- bash -c 'echo $MGPU_NODE_ID'", "n1\n"),
    _row("mgpu_srun --prefer n2 --gpus 1 -- bash -c 'echo $MGPU_NODE_ID'", "n"),
    _row("mgpu_srun -p nosuch -- true", code=2, err=("nosuch",)),
    _row("mgpu_srun --gpu-type Simulated --gpu-mem 1G --arch $(uname -m) -- echo fits", "fits\n"),
    _row("mgpu_srun --gpu-type H9000 -- true", code=1, err=("H9000",)),
    _row("mgpu_srun --constraint 'rack=r1' --gpus 1 -- bash -c 'echo $MGPU_NODE_ID'", "n1\n"),
    _row("mgpu_srun --constraint kind=a --gpus 1 -- bash -c 'echo $MGPU_NODE_ID'", "n1\n"),
    _row("mgpu_srun --cpus 1 --mem-per-node 10M --gpus 0 -- echo small", "small\n"),
    _row("mgpu_srun --gpus 0 --time-limit 1 -- sleep 60", code=143, err=("Time limit",)),
    _row("mgpu_srun --gpus 0 -t 00:05:00 -- echo in time", "in time\n"),
    _row("mgpu_srun --gpus 0 --qos nosuch -- true", code=2, err=("nosuch",)),
    _row("mgpu_srun --gpus 0 --account nosuch -- true", code=2, err=("nosuch",)),
    _row("mgpu_srun --gpus 0 --env K=V -- bash -c 'echo $K'", "V\n"),
    _row("NAME=here mgpu_srun --gpus 0 --export NAME -- bash -c 'echo $NAME'", "here\n"),
    _row("mgpu_srun --gpus 0 --chdir /tmp -- pwd", "/tmp\n"),
    _row("mgpu_srun --gpus 0 --python /usr/bin/python3 -- echo x", "x\n"),
    _row(
        "J=$(bg --gpus 0 --name mine -- true); until_state $J completed; mgpu_queue --all --format id,name "
        "| grep $J",
        "mine",
    ),
    _row("J=$(bg --gpus 0 -J short -- true); mgpu_queue --all --format '{id} {name}' | grep $J", "short"),
    _row("mgpu_srun --gpus 0 --array 1-3%2 -- bash -c 'echo $MGPU_ARRAY_TASK_ID'", "array of 3 jobs"),
    _row("mgpu_srun --gpus 0 --sweep lr=0.1,0.01 --sweep s=1,2 -- echo '{lr}' '{s}'", "array of 4 jobs"),
    _row(
        "J=$(bg --gpus 0 --sweep lr=0.1 -- bash -c 'echo {lr} $SWEEP_lr'); until_state $J completed; mgpu "
        "logs $J",
        "0.1 0.1\n",
    ),
    _row("mgpu_srun --gpus 0 --dependency afterok:$DONE -- echo after", "after\n"),
    _row("J=$(bg --gpus 0 --begin now+1hour -- true); mgpu explain $J", "Not now"),
    _row(
        "J=$(bg --gpus 0 --hold -- true); mgpu release $J; until_state $J completed && echo ran",
        "released.",
        "ran",
    ),
    _row("J=$(bg --gpu-type H9000 --wait-for-nodes -- true); mgpu_cancel $J", "cancelled successfully."),
    _row("mgpu_srun --gpus 0 --no-requeue --on-disconnect keep -- echo kept", "kept\n"),
    _row("mgpu_srun --gpus 0 --policy spread -- echo spread", "spread\n"),
    _row("mgpu_srun --gpus 0 --dry-run -- true", "It would start now"),
    _row("mgpu_srun --gpus 0 --dry-run --json -- true", '"verdict":"now"'),
    _row("mgpu_srun --gpus 6 --dry-run -- true", "never", code=3),
    _row(
        "mgpu_srun --distributed --nodes 2 --gpus-per-node 1 -- bash -c 'echo $RANK/$WORLD_SIZE' | sort",
        "0: 0/2\n",
        "1: 1/2\n",
    ),
    _row("mgpu_srun --ntasks-per-node 2 --gpus 0 -- bash -c 'echo $SLURM_PROCID' | sort", "0: 0\n", "1: 1\n"),
    _row("mgpu_srun --gpus 0 --env-setup-cmd 'export GREETING=hello' -- bash -c 'echo $GREETING'", "hello\n"),
    _row(
        "mgpu_srun --gpus 0 --retries 1 -- bash -c 'echo try $MGPU_ATTEMPT; [ $MGPU_ATTEMPT = 2 ]'", "try 2\n"
    ),
    _row("mgpu_srun --gpus 0 --signal USR1@60 -t 5 --interactive-kill -- echo signal", "signal\n"),
    _row("echo typed | mgpu_srun --gpus 0 -- cat", "typed\n"),
    _row('script -qec "mgpu_srun --gpus 0 --pty -- tty" /dev/null', "/dev/"),
    _row("mgpu_srun --gpus 0 --image 'Not an image' -- true", code=2, err=("is no image",)),
    _row(
        "mgpu_srun --gpus 0 --image me/img:1 --env-setup-cmd 'export PATH=$ENGINES:$PATH' --export ENGINES "
        "-- x",
        "podman run --rm",
        "me/img:1 x",
    ),
    _row("mgpu_srun --gpus 9 -- true", code=1, err=("9 GPUs",)),
    _row("mgpu_srun --frobnicate -- true", code=2, err=("There is no flag --frobnicate",)),
    _row("mgpu_srun", code=2, err=("Name the command after `--`",)),
)
QUEUE = (
    _row(
        "mgpu_queue",
        "--- Running Jobs ---\n",
        "ID: ",
        " | User: ",
        " | GPUs: ",
        " | Type: single",
        "--- Queue ---\n",
        "--- Cluster Status ---\nNode n1: online\nNode n2: online",
    ),
    _row('mgpu_queue | grep -A5 "ID: $HELD"', "Priority: ", "  Nodes: ", "  CMD: ", "  Status: queued"),
    _row("mgpu queue --json", '{"jobs":[{"id":"'),
    _row("mgpu_queue --all --json | grep -c $DONE", "1"),
    _row("mgpu_queue --format id,state,user,gpus", "ID", "STATE", "USER", "GPUS"),
    _row("mgpu_queue --format '{id}:{state}' | grep $RUN", ":running"),
    _row("mgpu_queue --start | grep -A8 $HELD", "Start: "),
    _row("mgpu_queue --watch | grep -m2 -e '--- Queue ---'", "--- Queue ---\n--- Queue ---\n"),
    _row("mgpu_queue -u nobody-here", "No running jobs", "No queued jobs"),
    _row("mgpu_queue --all", "--- Finished Jobs ---"),
    _row("MGPU_MASTER_HOST=127.0.0.1 MGPU_MASTER_PORT=$PORT mgpu_queue", "--- Cluster Status ---"),
    _row("mgpu_queue --host 127.0.0.1 --port $PORT", "--- Cluster Status ---"),
    _row("MGPU_MASTER_PORT=1 mgpu_queue", code=1, err=("No mgpu master runs on port 1",)),
)
CANCEL = (
    _row("J=$(bg --gpus 0 -- sleep 300); mgpu_cancel $J", "Job ", " cancelled successfully."),
    _row("J=$(bg --gpus 0 --name gone -- sleep 300); mgpu cancel --name gone", "cancelled successfully."),
    _row("J=$(bg --gpus 0 -- sleep 300); mgpu_cancel --json $J", '{"jobs":[{"job_id":"', '"done":true'),
    _row("mgpu_cancel ZZZZ9999", "Cancel failed: There is no job ZZZZ9999", code=1),
    _row("mgpu_cancel $DONE", "has ended already (completed)", code=1),
    _row("mgpu_cancel", code=2, err=("Usage: mgpu_cancel <job_id>",)),
)
CLIENT = (
    _row(
        "mgpu_client --host 127.0.0.1 --port $PORT --verbose submit --gpus 1 'echo blocked'",
        "Job submitted: ",
        "Monitoring job ",
        f"{RULE}\nblocked\n{RULE}\nJob completed with status: completed\nExit code: 0\n",
    ),
    _row("mgpu_client submit --gpus 0 'exit 2'", "Job completed with status: failed\nExit code: 2\n", code=1),
    _row(
        "mgpu_client submit --gpus 0 --interactive --session-timeout 60 --connection-timeout 5 "
        "--max-wait-time 60"
        " --max-consecutive-timeouts 3 'echo on'",
        "Job submission: {'status': 'ok', 'job_id': '",
        "'message': 'Job submitted'}\nStarting interactive session...\n",
        f"{RULE}\non\n{RULE}\nJob completed with exit code: 0\n",
    ),
    _row("mgpu_client submit --node-gpu-ids 'n1:2;n2:1' 'echo $MGPU_NODE_ID' | sort", "0: n1\n", "1: n2\n"),
    _row(
        "mgpu_simple_client --port $PORT queue",
        "=== Queue Status ===\nQueued jobs: ",
        "Running jobs: ",
        "(Node: n",
        "Node status:\n  n1: GPUs [",
    ),
    _row(
        "J=$(bg --gpus 0 --hold -- true); mgpu_client cancel $J",
        "Cancel result: {'status': 'ok', 'message': 'Job ",
        " cancelled from queue'}",
    ),
    _row("J=$(bg --gpus 0 -- sleep 300); until_state $J running; mgpu_client cancel $J", " cancelled'}"),
    _row("mgpu_client cancel ZZZZ9999", "Job ZZZZ9999 not found", code=1),
    _row(
        "mgpu_client monitor $DONE --max-wait-time 20",
        "Monitoring job ",
        f"{RULE}\nfirst\nsecond\n{RULE}\n",
        "Exit code: 0",
    ),
    _row("mgpu_client monitor ZZZZ9999", "Job ZZZZ9999 not found on server", code=1),
    _row("mgpu_client monitor $RUN --max-wait-time 1", code=1, err=("goes on",)),
    _row("mgpu_client --json queue", '{"jobs":['),
    _row("mgpu_client", "usage: mgpu_client", code=1),
)
JOBS = (
    _row("mgpu logs $DONE", "first\nsecond\n"),
    _row("mgpu logs $DONE --rank 0", "first\nsecond\n"),
    _row("mgpu logs $DONE -f", "first\nsecond\n"),
    _row("mgpu logs ZZZZ9999", code=1, err=("There is no job ZZZZ9999",)),
    _row("mgpu attach $DONE", "first\nsecond\n", err=("completed with exit code 0",)),
    _row("mgpu trace $DONE", "started"),
    _row("mgpu trace $DONE --json", "{"),
    _row("mgpu trace --verify $RUN"),
    _row("debug_job_tracking $RUN"),
    _row("debug_job_tracking ZZZZ9999", code=1, err=("ZZZZ9999",)),
    _row("mgpu_srun --gpus 0 --debug -- echo debugged", "debugged\n", err=("n",)),
    _row("mgpu explain $HELD", "Not now"),
    _row("mgpu explain $HELD --json", '"verdict":'),
    _row("J=$(bg --gpus 0 --begin now+1hour -- true); mgpu hold $J", "held."),
    _row("J=$(bg --gpus 0 --hold -- true); mgpu release --json $J", '"done":true'),
    _row(
        "J=$(bg --gpus 0 -- sleep 300); until_state $J running; mgpu requeue $J; mgpu_cancel $J",
        "queued again.",
    ),
    _row(
        "J=$(bg --gpus 0 --hold -- true); mgpu update $J --priority 7 --time 00:10:00; mgpu_queue --format "
        "id,priority | grep $J",
        "changed.",
        "7",
    ),
    _row("mgpu update $DONE --priority 1", code=1, err=("nothing to change",)),
    _row("mgpu rerun $DONE --attach", "Job submitted. ID: ", "first\nsecond\n"),
    _row("mgpu rerun $DONE --json", '{"jobs":[{"of":"'),
    _row("mgpu purge --older-than 30d", "Deleted 0 jobs and 0 B of output."),
    _row("mgpu purge --dry-run --json", '"dry_run":true'),
    _row(
        "mgpu_sbatch job.sh",
        "Submitted batch job ",
        err=("job.sh:3: warning: #SBATCH --mail-type is not honoured",),
    ),
    _row(
        "J=$(mgpu sbatch --parsable job.sh word 2>/dev/null); until_state $J completed; mgpu logs $J",
        "in a file word\n",
    ),
    _row("mgpu_sbatch --gpus 0 --wrap 'echo x' --json", '{"job_id":"'),
    _row("mgpu_sbatch --test-only job.sh", "It would start now"),
    _row("mgpu validate job.sh", "job.sh:3: warning: ", "job.sh: can be submitted"),
    _row(
        "printf '#!/bin/bash\\n#MGPU --gpus 99\\ntrue\\n' > big.sh; mgpu validate big.sh",
        "big.sh:1: ",
        code=1,
    ),
    _row(
        "mgpu simulate trace.csv --nodes 2 --gpus-per-node 4 --policy easy --estimates perfect --json",
        '"n_jobs":2',
        '"avg_wait_s":',
        '"makespan_s":',
    ),
)
NODES = (
    _row("mgpu nodes", "n1: online", "GPU 0: Simulated GPU", "n2: online"),
    _row("mgpu nodes --json", '{"nodes":[{"id":"n1","state":"online"', '"simulated":true'),
    _row("mgpu node ping n1", "n1: answered in ", "its clock is "),
    _row("mgpu doctor", "n1 is online.", "n2 is online.", "All is well."),
    _row("mgpu node remove n1", code=1, err=("n1",)),
    _row("mgpu node revoke nosuch --reason gone", code=1, err=("nosuch",)),
    _row("mgpu node frobnicate n1", code=2, err=("mgpu node knows",)),
    _row(
        "mgpu join-token --node-id n9 --ttl 1h --listen 127.0.0.1",
        "mgpu_node --join mgpu1.",
        err=("works once",),
    ),
    _row("mgpu_node --node-id 'no good'", code=2, err=("is no node id",)),
    _row("mgpu_simple_node --help", "--master-host", "--gpu-count"),
    _row("mgpu_simple_master --help", "--host", "--config"),
    _row("mgpu_master --port x", code=2, err=("write a port up to 65535, like 8080",)),
    _row("mgpu doctor --json > doctor.json; head -c1 doctor.json", "{"),
    _row("mgpu user list", "No users yet"),
    _row("mgpu login nonsense", code=2),
    _row("mgpu logout", "There was no login."),
    _row("mgpu completion bash | head -1", "source <(mgpu completion bash)"),
    _row("mgpu completion zsh", "#compdef mgpu"),
    _row("mgpu completion fish", "complete -c"),
    _row("mgpu --help", "srun", "queue", "completion"),
    _row("mgpu --version", "mgpu "),
    _row("mgpu frobnicate", code=2, err=("There is no command frobnicate",)),
)
TOGETHER = (*SRUN, *QUEUE, *CANCEL, *CLIENT, *JOBS, *NODES)
ALONE = (
    _row(
        "mgpu node drain n2 --reason 'new memory'; mgpu nodes | grep n2:; mgpu_queue | grep 'Node n2'",
        "n2: ",
        "draining",
        "new memory",
        "Node n2: draining",
    ),
    _row(
        "J=$(bg -w n2 --gpus 1 -- true); mgpu explain $J; mgpu_cancel $J",
        "Not now",
        "n2",
        "cancelled successfully.",
    ),
    _row("mgpu_srun --prefer n2 -G 1 -- bash -c 'echo $MGPU_NODE_ID'", "n1\n"),
    _row("mgpu node resume n2; mgpu_srun -w n2 --gpus 1 -- bash -c 'echo $MGPU_NODE_ID'", "n2: ", "n2\n"),
    _row(
        "mgpu node label n2 room=B2 fast --reason moved; mgpu_srun --constraint 'room=B2&fast' --gpus 1 -- "
        "bash -c 'echo on $MGPU_NODE_ID';"
        " mgpu node label n2 room- fast-",
        "n2: It is labelled fast, room=B2.",
        "on n2\n",
        "n2: It has no label.",
    ),
    _row("mgpu node maintenance n2 --reason fans --json; mgpu node resume n2", '"action":"maintenance"'),
    _row(
        "mgpu node deny n2 --user eve; mgpu nodes | grep -A3 n2:; mgpu node allow n2 --everybody",
        "not for eve",
    ),
    _row(
        "mgpu user add ann --ttl 1d; mgpu user list --json; mgpu user remove ann",
        "mgpu login ",
        '{"users":[{"name":"ann"',
        "ann is removed",
    ),
    _row("J=$(bg --gpus 0 -- sleep 300); mgpu_cancel -u $(id -un)", "cancelled successfully."),
    _row("J=$(bg --gpus 0 -- sleep 300); mgpu_cancel --all", "cancelled successfully."),
    _row(
        "until_idle; for _ in 1 2 3; do bg --gpus 0 -- sleep 300 >/dev/null; done; mgpu_flush",
        "Flushed 3 jobs\n",
    ),
    _row(
        "until_idle; mgpu purge --older-than 0 --all --json; mgpu_queue --all --json",
        '"jobs":',
        '{"jobs":[]}',
    ),
)
