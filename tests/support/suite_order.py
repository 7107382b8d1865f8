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
    "methods/sigma/test_weights.py",
    "methods/likelihood/test_own_models.py",
    "api/test_places.py",
    "methods/vertical/test_jobs.py",
    "methods/likelihood/test_secure_sums.py",
    "jobs/test_inputs.py",
    "jobs/test_until.py",
    "golden/test_golden.py",
    "statistics/test_sem_joint.py",
    "privacy/test_accountant.py",
    "privacy/test_disclosure_maps.py",
    "statistics/test_hmc.py",
    "statistics/test_sparse_rows.py",
    "statistics/test_sfvi.py",
    "models/test_within_site.py",
    "models/test_vertical.py",
    "privacy/test_audit.py",
    "reproduce/test_dp_pvi_adult.py",
    "cli/test_launch.py",
    "cli/test_console.py",
    "statistics/test_sparse_exact.py",
    "privacy/test_disclosure.py",
    "cli/test_documents.py",
    "privacy/test_planted.py",
    "jobs/test_resuming.py",
    "methods/sigma/test_units.py",
    "methods/likelihood/test_reversed.py",
    "methods/likelihood/test_default_priors.py",
    "transports/test_mpi.py",
    "api/test_examples.py",
    "methods/sigma/test_censored.py",
    "jobs/test_locks.py",
    "jobs/test_formula_jobs.py",
    "jobs/test_few.py",
    "methods/sigma/test_private.py",
    "jobs/test_budget.py",
    "methods/sigma/test_variances.py",
    "methods/likelihood/test_jobs.py",
    "methods/likelihood/test_late_entry.py",
    "methods/sigma/test_train.py",
    "jobs/test_in_memory.py",
    "api/test_clients_write_labels.py",
    "transports/test_codec.py",
    "jobs/test_scale.py",
    "methods/pvi/test_arrival.py",
    "methods/sparse/test_jobs.py",
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
