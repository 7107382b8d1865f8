"""Runs jobs between organisations, over audited wires of other engines: `server` is the coordinator's, `site` a holder's side.

The engine carries bytes and knows who is who. Each party has its own copy of the job file; the server names a job by a digest,
and a site takes part only in a job that its holder has accepted.
"""
