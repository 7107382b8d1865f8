"""What tests stand on: small federations, jobs and files, mpirun, and the order and counts of the suite itself."""
