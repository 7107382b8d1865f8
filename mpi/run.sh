#!/usr/bin/env bash
# What `fedkern launch` runs, from a copy of the repository:  mpi/run.sh -n RANKS JOB.toml [options of `fedkern run`]
here=${BASH_SOURCE[0]%/*}
[ "$here" != "${BASH_SOURCE[0]}" ] || here=.
. "$here/../fedkern/transports/run.sh" # not by another shell, which would be deaf to Ctrl-C while it starts
