"""In which order files run, and which go together on one of several workers."""

from __future__ import annotations

import re

import pytest

# What takes longest begins first, so that workers end together.
LONGEST = (
    "kernels: shrinkage",
    "kernels: mixed",
    "kernels: cuda",
    "kernels: nopython",
    "statistics/test_vertical_optimum.py",
    "kernels: sem",
    "kernels: mlp",
    "statistics/test_sparse_joint.py",
    "kernels: rng",
    "kernels: privacy",
    "kernels: glm",
    "kernels: augmented",
    "kernels: spatial",
    "kernels: optim",
    "cpp/test_cpp.py",
    "transports/test_kills.py",
    "golden/test_golden.py",
    "jobs/test_mpi_command.py",
    "methods/sparse/test_jobs.py",
    "statistics/test_sem_joint.py",
    "privacy/test_accountant.py",
    "privacy/test_disclosure_maps.py",
    "statistics/test_hmc.py",
    "statistics/test_sparse_rows.py",
    "statistics/test_sfvi.py",
    "models/test_within_site.py",
    "models/test_vertical.py",
    "methods/likelihood/test_own_models.py",
    "methods/likelihood/test_late_entry.py",
    "jobs/test_budget.py",
    "transports/test_mpi.py",
    "privacy/test_audit.py",
    "methods/likelihood/test_by_evidence.py",
    "methods/likelihood/test_reversed.py",
    "methods/likelihood/test_response_units.py",
    "methods/test_random_jobs.py",
    "methods/sigma/test_censored.py",
    "api/test_suite.py",
    "reproduce/test_dp_pvi_adult.py",
    "methods/likelihood/test_summaries.py",
    "methods/likelihood/test_uneven.py",
    "methods/likelihood/test_responses.py",
    "jobs/test_rows_stay.py",
    "jobs/test_inputs.py",
    "jobs/test_until.py",
    "cli/test_launch.py",
    "jobs/test_scale.py",
    "cli/test_console.py",
    "statistics/test_sparse_exact.py",
    "methods/vertical/test_jobs.py",
    "jobs/test_resuming.py",
    "methods/sigma/test_train.py",
    "jobs/test_few.py",
    "privacy/test_disclosure.py",
    "methods/pvi/test_arrival.py",
    "cli/test_documents.py",
    "jobs/test_in_memory.py",
    "jobs/test_holders.py",
    "privacy/test_planted.py",
    "methods/pvi/test_client_jobs.py",
    "jobs/test_locks.py",
    "methods/pvi/test_units.py",
    "methods/likelihood/test_jobs.py",
    "jobs/test_memory.py",
    "jobs/test_machine.py",
)
FAMILIES = {"polya": "rng", "vae": "mlp", "clip": "glm", "families": "glm"}  # the files whose first word is not a family


def group(nodeid: str) -> str:
    """What runs on one worker: a file, or all of a family of kernels, which Numba then compiles once."""
    file, _, test = nodeid.removeprefix("tests/").partition("::")
    kernel = re.search(r"\[(?:\w+-)?(\w+)\.\w+", test) if file == "kernels/test_conformance.py" else None
    word = kernel or re.match(r"kernels/test_([a-z]+)", file)
    return f"kernels: {FAMILIES.get(word[1], word[1])}" if word else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(group(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False  # it would begin with the files of the most tests
    return Groups(config, log)
