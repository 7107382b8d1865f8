"""The examples of docstrings (`>>>`) run as they stand, and each public class and function has one with its name in it."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import fedkern
from fedkern import kernels
from fedkern.kernels._docs import example_of
from fedkern.kernels._record import KERNELS, Kernel
from support.refusal import refusal

ROOT = Path(fedkern.__file__).parent
BESIDE = ("bound", "families", "homes", "ordered", "ranges")  # modules of kernels that `fedkern.kernels` does not name
CLASSES = ("errors", "ground", "sections", "jobs.ledger")  # of these every class is to have an example
PRIVACY = tuple(f"privacy.{path.stem}" for path in sorted((ROOT / "privacy").glob("[a-z]*.py")))
WITHOUT = {  # what shows an example that cannot run here, and why
    "kernels.homes.device_home": "it needs a CUDA card",
    "testing.cases": "a Hypothesis strategy is drawn from inside of a test",
}


def defined(module, only=object):
    """Name -> classes and functions of a module's `__all__`; where it has none, those that it or a module of it defines."""
    of_it = (name for name, value in vars(module).items() if home_of(value) == module.__name__)
    values = {name: getattr(module, name) for name in getattr(module, "__all__", None) or of_it if not name.startswith("_")}
    return {
        name: value for name, value in values.items() if inspect.isclass(value) or (only is object and inspect.isroutine(value))
    }


def home_of(value):
    """The module of the low-level API from which callers have a class or function; `""` of a type's other name."""
    if hasattr(value, "__origin__") or not hasattr(value, "__qualname__"):
        return ""
    module = value.__module__.replace("kernels._layers", "kernels.mlp")
    return re.sub(r"(fedkern\.kernels\.(?:augmented|mlp|shrinkage|spatial))\..*", r"\1", module)


def public():
    """Dotted name below `fedkern` -> every class and function that is to show an example."""
    modules = [f"kernels.{name}" for name in kernels.__all__ if inspect.ismodule(getattr(kernels, name))]
    modules += [*(f"kernels.{name}" for name in BESIDE), "testing"]
    found = defined(fedkern) | {f"kernels.{name}": getattr(kernels, name) for name in ("bind", "from_dlpack", "list")}
    for name, only in [*((name, object) for name in modules), *((name, type) for name in (*CLASSES, *PRIVACY))]:
        module = importlib.import_module(f"fedkern.{name}")
        found |= {f"{name}.{own}": value for own, value in defined(module, only).items()}
    return found


PUBLIC = public()


def test_what_is_public_is_found():
    """The list below is made by rules: here are some of each."""
    assert PUBLIC.keys() >= {"run", "Result", "kernels.bind", "kernels.optim.adam", "kernels.rng.bind_words"}
    assert PUBLIC.keys() >= {"kernels.families.Family", "testing.Case", "errors.JobError", "privacy.accountant.Mechanism"}
    assert PUBLIC.keys() >= {f"kernels.{kernel.public}" for kernel in KERNELS.values()}
    assert WITHOUT.keys() <= PUBLIC.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_has_the_name(name):
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(PUBLIC[name]) or "")
    code = "".join(example.source for example in examples)
    assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), "write a `>>>` example of it in its docstring, or its record"
    run = [example for example in examples if not example.options.get(doctest.SKIP)]
    own = rf"(?<!import ){name.rpartition('.')[2]}\b"
    assert name in WITHOUT or any(re.search(own, example.source) for example in run), "its example is not run"


def documented():
    """Name -> docstring, of everything in the package whose source has an example, once."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        if ">>>" not in path.read_text(encoding="utf-8"):
            continue
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        found |= {module.__name__: module.__doc__} | of_members(module, module.__name__)
    return {name: text for name, text in found.items() if text and ">>>" in text}


def of_members(owner, module):
    found = {}
    for value in [*vars(owner).values()]:
        inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or getattr(value, "func", None) or value
        if getattr(inner, "__module__", None) != module or not hasattr(inner, "__qualname__"):
            continue
        found[f"{module}.{inner.__qualname__}"] = inner.__doc__
        if inspect.isclass(inner) and inner is not owner:
            found |= of_members(inner, module)
    return found


EXAMPLES = documented()


def outcome(name, text):
    """What doctest says of a docstring that is run with nothing imported; "" if all is well."""
    said = []
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), {"__name__": "example"}, name, None, None)
    doctest.DocTestRunner().run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name):
    assert not outcome(name, EXAMPLES[name])


def test_no_example_is_overlooked():
    """Every file with an example has one that is run, and records have theirs in the functions that they document."""
    assert {name.rpartition(".")[2] for name in EXAMPLES} >= {kernel.public.partition(".")[2] for kernel in KERNELS.values()}
    for kernel in KERNELS.values():
        function = getattr(importlib.import_module(kernel.module), kernel.public.partition(".")[2])
        assert inspect.cleandoc(kernel.example) in inspect.getdoc(function), kernel.name


def test_examples_have_the_same_output_by_the_reference(monkeypatch):
    """What is printed is what the kernel means, and not a backend's last digit."""
    implementation = Kernel.implementation
    asked = []

    def reference(kernel, backend):
        asked.append(kernel.name)
        return implementation(kernel, "reference")

    monkeypatch.setattr(Kernel, "implementation", reference)
    for kernel in KERNELS.values():  # `compute` keeps the function of the first backend
        monkeypatch.setitem(vars(kernel), "compute", Kernel.compute.func(kernel))
    assert not {name: said for name, kernel in KERNELS.items() if (said := outcome(name, example_of(kernel)))}
    assert set(asked) == set(KERNELS)


def test_a_wrong_output_is_seen():
    """A control: the same example with another digit."""
    text = example_of(KERNELS["optim.adam"])
    assert not outcome("adam", text)
    assert "Expected" in outcome("adam", text.replace("0.1, -0.1", "0.1, -0.2"))


def test_a_record_without_an_example_is_refused():
    kernel = KERNELS["optim.adam"]
    other = object.__new__(Kernel)
    for name, value in vars(kernel).items():
        object.__setattr__(other, name, ">>> 1 + 1\n2" if name == "example" else value)
    with refusal(TypeError, "optim.adam"):
        example_of(other)
