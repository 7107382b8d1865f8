"""The data layer as others import it: names, documentation, and what importing it costs."""

import importlib
import inspect
import subprocess
import sys

import pytest

PUBLIC = {
    "fedkern.models.encoding": ["Column", "Encoding", "Spec"],
    "fedkern.data.table": ["Table", "Text", "load", "header", "find"],
    "fedkern.data.design": ["Column", "Design", "Encoding", "Fault", "Faults", "Spec", "check_header", "describe", "encode"],
    "fedkern.data.split": ["train_test", "imbalanced", "equal", "folds", "by_column", "dirichlet"],
    "fedkern.data.builtin": ["Federation", "load"],
    "fedkern.data.adult": ["Rows", "columns", "read"],
    "fedkern.data.breast_cancer": ["columns", "positive", "table"],
    "fedkern.data.heart_disease": ["read"],
    "fedkern.data.rppa": ["read"],
    "fedkern.data.sachs": ["adjacency", "read"],
    "fedkern.data.published": ["cells_of", "folder_of", "joined", "numbers", "text_of"],
    "fedkern.data.synthetic": [
        "Settings",
        "Simulated",
        "simulate",
        "logistic",
        "poisson",
        "regression",
        "sparse",
        "mrf",
        "sem",
        "vertical",
    ],
    "fedkern.data.columns": ["Columns", "write"],
    "fedkern.data.county_homicide": ["read"],
    "fedkern.data.heart_failure": ["Patients", "read"],
    "fedkern.data.vertical": ["areas", "logistic"],
    "fedkern.algorithms.agreement": ["PROTOCOL", "AskSchema", "SchemaReply", "Agreed", "Client", "Server", "Summary", "start"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_names_exist_and_are_documented(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    for name in PUBLIC[module]:
        thing = getattr(loaded, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert thing.__doc__, name


def test_optional_and_slow_packages_wait_until_they_are_needed():
    slow = ["pyarrow", "sklearn", "pandas", "pydantic", "scipy.stats", "scipy.special", "numba"]
    modules = ", ".join(name for name in PUBLIC if name not in ("fedkern.data.synthetic", "fedkern.data.vertical"))
    code = f"import sys, {modules}; print([name for name in {slow} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
