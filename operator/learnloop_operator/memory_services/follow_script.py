"""What runs PostgreSQL and has it read a renewed certificate: the chart's own script, which a test compares."""

FOLLOW = r"""# follow STOP_SIGNAL COMMAND [ARGUMENT...]: runs COMMAND, and sends it SIGHUP when its certificate changed.
set -u
stop=$1; shift
folder=${FOLLOW_FOLDER:-/run/tls}
"$@" &
server=$!
trap 'kill -s "$stop" "$server"' TERM INT
state() { cat "$folder"/* | cksum; }
(
    trap - TERM INT
    before=$(state)
    while sleep "${FOLLOW_SECONDS:-10}"; do
        now=$(state)
        if [ "$now" != "$before" ]; then
            echo "the certificate has changed: the server reads it again"
            kill -s HUP "$server"
        fi
        before=$now
    done
) &
watcher=$!
wait "$server"
code=$?
# A signal ends the wait before the server has ended.
while kill -0 "$server" 2>/dev/null; do
    wait "$server"
    code=$?
done
kill "$watcher" 2>/dev/null
exit "$code"
"""
