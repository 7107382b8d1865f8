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
    "fedkern.data.sets.builtin": ["Federation", "load"],
    "fedkern.data.sets.adult": ["Rows", "columns", "read"],
    "fedkern.data.sets.breast_cancer": ["columns", "positive", "table"],
    "fedkern.data.sets.heart_disease": ["read"],
    "fedkern.data.sets.rppa": ["read"],
    "fedkern.data.sets.sachs": ["adjacency", "read"],
    "fedkern.data.sets.published": ["cells_of", "folder_of", "joined", "numbers", "text_of"],
    "fedkern.data.simulate.federations": [
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
    "fedkern.data.sets.heart_failure": ["Patients", "read"],
    "fedkern.algorithms.exchanges.columns": [
        "PROTOCOL",
        "AskSchema",
        "SchemaReply",
        "Agreed",
        "Client",
        "Server",
        "Summary",
        "start",
    ],
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
    modules = ", ".join(name for name in PUBLIC if not name.startswith("fedkern.data.simulate."))
    code = f"import sys, {modules}; print([name for name in {slow} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
