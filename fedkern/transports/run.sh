#!/usr/bin/env bash
# One job over MPI on this machine:  fedkern launch (or mpi/run.sh) -n RANKS JOB.toml [options of `fedkern run`]
#
# Takes the mpirun that is installed beside Python (the environment in use, then .venv of this folder's parent), adds what it needs to
# start more ranks than there are cores and to tell the ranks of each other's death, and has a process beside it that turns TERM, INT
# (Ctrl-C), USR1 and HUP, sent to whomever, into a checkpoint, and leaves no rank alive (if it is killed itself: for some seconds). The
# exit codes are fedkern's: 0 finished, 1 internal error, 2 bad job or data, 3 stopped or lost a peer (--resume goes on), 4 finished
# without some clients, 5 a privacy budget ended the job.
set -u

asked='' job=''
ask() { # a request to end becomes a checkpoint; a second Ctrl-C ends at once
    local name=TERM
    [ -n "$asked" ] && name=$1
    asked=$1
    [ -n "$job" ] && kill -s "$name" "$job" 2>/dev/null
}
trap 'ask INT' INT
trap 'ask TERM' TERM USR1 HUP
[ -n "${HOME:-}" ] || { unset HOME && HOME=~ && export HOME; } # Open MPI does not start without one

usage() { echo 'fedkern launch -n RANKS JOB.toml [options of fedkern run], or mpi/run.sh -n RANKS JOB.toml [..]' >&2; exit 2; }
[ "${1:-}" = -n ] && [ "$#" -ge 3 ] || usage
ranks=$2
shift 2
case $ranks in '' | *[!0-9]*) usage ;; esac

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-}
for candidate in "${VIRTUAL_ENV:-}/bin/python" "$here/.venv/bin/python" "$(command -v python3)" "$(command -v python)"; do
    [ -z "$python" ] && [ -x "$candidate" ] && python=$candidate
done
[ -n "$python" ] || { echo "fedkern launch: no Python found; activate an environment or set PYTHON" >&2; exit 2; }

mpirun="$(dirname "$(command -v "$python")")/mpirun"
[ -x "$mpirun" ] || mpirun=$(command -v mpirun) || {
    echo "fedkern launch: no mpirun beside $python or on the PATH: pip install 'fedkern[mpi]'" >&2
    exit 2
}

# A signal to all, as from a terminal, ends what is asked here too: its answer would be missing.
options=() said=$("$mpirun" --version 2>/dev/null) || [ "$?" -le 128 ] || asked=TERM
if [[ $said = *'Open MPI'* ]]; then
    if [ "$(id -u)" = 0 ] && [ -z "${OMPI_ALLOW_RUN_AS_ROOT:-}" ]; then
        echo "fedkern launch: Open MPI does not start as root unless you allow it. In a container of your own:" >&2
        echo "    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" >&2
        exit 2
    fi
    options+=(--with-ft ulfm --bind-to none)
    [ "$ranks" -gt "$(nproc)" ] && options+=(--oversubscribe)
fi

[ -z "$asked" ] || { echo 'fedkern: stopped before the job had begun; start it again' >&2; exit 3; }
FEDKERN_SH=$$ "$python" -P -m fedkern.transports.mpirun "$ranks" \
    "$mpirun" "${options[@]}" -n "$ranks" "$python" -P -m fedkern.cli run "$@" --mpi &
job=$!
[ -n "$asked" ] && kill "$job" 2>/dev/null
while kill -0 "$job" 2>/dev/null; do wait "$job" 2>/dev/null; done # a signal for us also ends a wait
wait "$job" 2>/dev/null
code=$?
if [ "$code" -gt 128 ]; then # killed itself, by a signal
    what='the process beside mpirun was killed, and the job ends with it; --resume goes on from the last checkpoint'
    [ -n "$asked" ] && [ "$code" -eq 143 ] && what='stopped before the job had begun; start it again'
    echo "fedkern: $what" >&2
    code=3
fi
exit "$code"
