#!/usr/bin/env bash
# The same kind of job, its worker killed once before and once after the effect was marked:
#
#   before: nothing went out. The job runs again by itself and completes at its second attempt; one call.
#   after:  the call may have arrived. The job becomes unknown and nobody calls again; a person decides.
#
# Needs bash and the programs of this repository (BIN names their folder; without it they are built).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "${BIN:-}" ]; then
  cargo build --release -p fencepost -p fencepost-examples
  BIN=target/release
fi
place=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$place"
}
trap finish EXIT

cat >"$place/fencepost.toml" <<'TOML'
[kinds."invoice.send"]
registered = true
queue = "billing"
lease = "2s"
TOML

# Waits until a command succeeds, and gives up after a minute.
await() {
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@"; do
    if ((SECONDS > end)); then
      echo "gave up waiting for $what" >&2
      cat "$place"/*.log >&2
      exit 1
    fi
    sleep 0.05
  done
}

# Starts a program in the background and waits for the first line it prints.
start() {
  local name=$1
  shift
  "$@" >"$place/$name.out" 2>"$place/$name.log" &
  pids+=($!)
  await "$name to start" test -s "$place/$name.out"
}

export FENCEPOST_CONFIG=$place/fencepost.toml FENCEPOST_DATA_DIR=$place/data
RECEIVER_TAKES_MS=2000 start receiver "$BIN/receiver" 127.0.0.1:0 "$place/ledger"
receiver=$(grep -o 'http://[^ ]*' "$place/receiver.out")
start up "$BIN/fencepost" up --listen 127.0.0.1:0
FENCEPOST_URL=$(grep -o -m1 'http://[^ ]*' "$place/up.out")
export FENCEPOST_URL

# A worker whose invoices take this many milliseconds to render.
worker() {
  "$BIN/invoice-worker" "$place/data/fencepost.db" "$receiver" "$1" 2>>"$place/worker.log" &
  worker=$!
  pids+=("$worker")
}

# Kills it as a crash would.
crash() {
  kill -9 "$worker"
  wait "$worker" 2>/dev/null || true
}

submit() { "$BIN/fencepost" submit invoice.send "{\"number\": \"$1\", \"amount\": \"1.00 EUR\"}"; }

# Waits until a word stands in the history of a job.
has_event() { "$BIN/fencepost" events "$1" | grep -qw "$2"; }
until_event() { await "job $1 to be $2" has_event "$1" "$2"; }

# One line about a job: its state, its attempts, and the effects that the receiver made for it.
show() {
  local job
  job=$("$BIN/fencepost" get "$1" --json)
  printf '%s: %s, attempts %s, effects made %s\n' "$2" \
    "$(grep -o '"state": *"[a-z]*"' <<<"$job" | grep -o '[a-z]*"$' | tr -d '"')" \
    "$(grep -o '"attempts": *[0-9]*' <<<"$job" | grep -o '[0-9]*$')" \
    "$(grep -c "$1" "$place/ledger" || true)"
}

echo "killed before the mark, while the invoice is rendered:"
worker 60000
job=$(submit 1)
until_event "$job" claimed
crash
worker 0
until_event "$job" completed
show "$job" before

echo "killed after the mark, before the receiver has answered:"
job=$(submit 2)
until_event "$job" effect_opened
await "the call to arrive" grep -qs "$job" "$place/ledger"
crash
worker 0
until_event "$job" unknown
# A third job runs after it: the new worker has looked, and has left the second alone.
third=$(submit 3)
until_event "$third" completed
show "$job" after
