#!/usr/bin/env bash
# What `fedkern launch` runs, from a copy of the repository:  mpi/run.sh -n RANKS JOB.toml [options of `fedkern run`]
exec bash "$(dirname "${BASH_SOURCE[0]}")/../fedkern/transports/run.sh" "$@"
