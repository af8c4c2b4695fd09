#!/bin/bash
# A day with the earlier tools, by their own names, flags and sentences. $PORT is the port of the master; it runs in a directory of its own.
set -u

fail() { echo "FAILED: $*"; exit 1; }
expect() { grep -qF -- "$1" <<<"$2" || fail "no '$1' in: $2"; }
settle() { for _ in $(seq 120); do "$@" && return 0; sleep 0.5; done; fail "waited too long for: $*"; }
online() { mgpu_queue 2>/dev/null | grep -q "Node $1: online"; }
state_is() { mgpu_queue | grep -A4 "ID: $1 " | grep -q "Status: $2"; }

export MGPU_MASTER_HOST=127.0.0.1 MGPU_MASTER_PORT=$PORT
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT

mgpu_master --host 127.0.0.1 --port "$PORT" --verbose >master.log 2>&1 &
mgpu_node --node-id node001 --host 0.0.0.0 --port 8081 --master-host 127.0.0.1 --master-port "$PORT" --gpu-count 2 >node001.log 2>&1 &
mgpu_node --node-id node002 --host 0.0.0.0 --port 8082 --master-host 127.0.0.1 --master-port "$PORT" --gpu-count 2 --verbose >node002.log 2>&1 &
settle online node001
settle online node002

# --- mgpu_client submit, both ways
out=$(mgpu_client --host 127.0.0.1 --port "$PORT" submit --gpus 1 --interactive --session-timeout 60 "echo hello from a session") || fail "interactive: $out"
expect "Job submission: {'status': 'ok', 'job_id': '" "$out"
expect "Starting interactive session..." "$out"
expect "hello from a session" "$out"
expect "Job completed with exit code: 0" "$out"

out=$(mgpu_client submit --gpus 2 --max-wait-time 60 "echo one; echo two >&2; exit 3") && fail "a failed job counts as success"
expect "Job submitted: " "$out"
expect "==================================================" "$out"
expect "two" "$out"
expect "Job completed with status: failed" "$out"
expect "Exit code: 3" "$out"

out=$(mgpu_client submit --node-gpu-ids "node001:0,1;node002:1" 'echo "$MGPU_NODE_ID has $CUDA_VISIBLE_DEVICES"') || fail "map: $out"
expect "node001 has 0,1" "$out"
expect "node002 has 1" "$out"

# --- mgpu_srun, in front and in the background
out=$(mgpu_srun --gpu-ids 0,1 --mem 1000 --time-limit 60 --priority 5 --interactive -- echo in front 2>err.log) || fail "srun: $(cat err.log)"
expect "in front" "$out"
expect "(priority=5)" "$(cat err.log)"
expect "completed with exit code 0" "$(cat err.log)"
out=$(mgpu_srun --gpu-ids 0 --background -- sleep 300) || fail "background: $out"
expect "Job queued. Use mgpu_queue to check status." "$out"
first=$(sed -n 's/^Job submitted. ID: \([A-Z0-9]\{8\}\) (priority=0)$/\1/p' <<<"$out")
[ ${#first} = 8 ] || fail "no id in: $out"
settle state_is "$first" running

# --- queue
out=$(mgpu_queue) || fail "queue"
for line in "--- Running Jobs ---" "ID: $first | User: " "  CMD: sleep 300" "--- Queue ---" "No queued jobs" "--- Cluster Status ---"; do expect "$line" "$out"; done
out=$(mgpu_client queue) || fail "client queue"
for line in "=== Queue Status ===" "Queued jobs: 0" "Running jobs: 1" "  $first: sleep 300... (Node: node00" "Node status:" "GPUs [0, 1] available"; do expect "$line" "$out"; done

# --- monitor
mgpu_client monitor "$first" --max-wait-time 1 >monitor.log 2>&1 && fail "a job that sleeps is over"
expect "Monitoring job $first output..." "$(cat monitor.log)"
expect "Job ZZZZ9999 not found on server" "$(mgpu_client monitor ZZZZ9999)"

# --- cancel
expect "Job $first cancelled successfully." "$(mgpu_cancel "$first")"
out=$(mgpu_client monitor "$first") && fail "a cancelled job counts as success"
expect "Job completed with status: cancelled" "$out"
out=$(mgpu_cancel ZZZZ9999) && fail "cancelled what is not there"
expect "Cancel failed: " "$out"
out=$(mgpu_cancel 2>&1) && fail "cancelled nothing"
expect "Usage: mgpu_cancel <job_id>" "$out"
out=$(mgpu_srun --gpu-ids 1 --background -- sleep 300)
second=$(sed -n 's/^Job submitted. ID: \([A-Z0-9]*\) .*/\1/p' <<<"$out")
settle state_is "$second" running
expect "Cancel result: {'status': 'ok', 'message': 'Job $second cancelled'}" "$(mgpu_client cancel "$second")"

# --- flush
for _ in 1 2 3; do mgpu_srun --gpu-ids 0,1 --background -- sleep 300 >/dev/null || fail "submit"; done
expect "Flushed 3 jobs" "$(mgpu_flush)"
empty() { mgpu_queue | grep -q "No running jobs"; }
settle empty
echo "ALL WELL"
