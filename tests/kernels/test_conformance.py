"""Every (kernel, backend) pair against the reference, on shapes, layouts and values that people really pass."""

import ast
import inspect
import re
import runpy
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from fedkern import _core, kernels, testing
from fedkern.kernels._checks import MADE
from fedkern.kernels._record import KERNELS
from support.command import python

PAIRS = [(name, backend) for name, kernel in sorted(KERNELS.items()) for backend in kernel.backends if backend != "reference"]
NAMES = sorted(KERNELS)
BIG = (1000, 4097)
STUB = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "stubs.py"))["stub"]
# To Numba a layout is a type, and a type a compilation: the others are a matter of its own typing, and wait for the night. By day
# one kernel of each of its families is held in a second one.
LAYOUTS = {"cpp": testing.LAYOUTS, "numba": ("C",), "cuda": testing.LAYOUTS}
# By day each of these sizes is all of a case's, and some cases have several; then of several blocks. They are the same in every
# run: more of them would show nothing new tomorrow. Numba compiles for each choice of what may be left out, an emulator is slow.
SIZES, SOME, LARGE, MANY = (0, 1, 2, 9, 33), {"cpp": 10, "numba": 5, "cuda": 5}, {"cpp": 3, "numba": 2, "cuda": 1}, 60
# Numba compiles these for two minutes. By day each of its families is held: of shrinkage sums, sweeps in batches, and moves, of
# linear models those with a diagonal.
SLOW = {"shrinkage": "gaussian_posterior_draw global_sweep global_sweep_sums imputed_sweeps local_sweeps logistic_sweeps"}
SLOW |= {"glm": "clipped_grad_sum_full elbo_grad_full expectations_full predict_full"}
SLOW |= {"mixed": "curvature", "sem": "sweeps", "privacy": "discrete_gaussian"}
AT_NIGHT = {(f"{family}.{name}", "numba") for family, names in SLOW.items() for name in names.split()}
BY_DAY = [pair for pair in PAIRS if pair not in AT_NIGHT]
STRIDED = {name.partition(".")[0]: name for name, backend in BY_DAY if backend == "numba"}.values()


def layouts_by_day(name, backend):
    return (*LAYOUTS[backend], "strided") if backend == "numba" and name in STRIDED else LAYOUTS[backend]


def cases_by_day(name, backend):
    layouts = layouts_by_day(name, backend)
    yield from (testing.case(name, seed, (size,), layouts) for seed, size in enumerate(SIZES))
    yield from (testing.case(name, seed, layouts=layouts) for seed in range(SOME[backend]))


def large(name, layouts, n):
    return (testing.case(name, seed, BIG if name.startswith("rng") else (200, 333), layouts) for seed in range(n))


@pytest.mark.parametrize(("name", "backend"), BY_DAY)
def test_conforms_to_the_reference(name, backend):
    for case in (*cases_by_day(name, backend), *large(name, layouts_by_day(name, backend), LARGE[backend])):
        testing.assert_conforms(name, backend, case)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "backend"), PAIRS)
def test_conforms_in_every_layout_and_more_cases(name, backend):
    @settings(max_examples=MANY, deadline=None, derandomize=True, database=None)
    @given(testing.cases(name, testing.LAYOUTS))
    def check(case):
        testing.assert_conforms(name, backend, case)

    check()
    for case in large(name, testing.LAYOUTS, 3):
        testing.assert_conforms(name, backend, case)


LEVELS = list(_core.levels())  # of instructions, from the highest
AT_A_LEVEL = """
from fedkern import _core, testing
from fedkern.kernels._record import KERNELS
for name, kernel in KERNELS.items():
    for seed in range(6 if "cpp" in kernel.backends else 0):
        testing.assert_conforms(name, "cpp", testing.case(name, seed, sizes=(7, 33, 200)), once=True)
print(_core.isa())
"""


@pytest.mark.parametrize("level", LEVELS[LEVELS.index(_core.isa()) + 1 :])
def test_every_kernel_conforms_at_a_lower_level(level, monkeypatch):
    """Other processors run objects that this one does not choose by itself."""
    monkeypatch.setenv("FEDKERN_ISA", level)
    run = python("-P", "-c", AT_A_LEVEL)
    assert run.code == 0, run.err
    assert run.out.split() == [level]


def faulty(kernel, fault):
    """The reference, and then `fault` on its first output."""

    def call(*arguments):
        returned = kernel.implementation("reference")(*arguments)
        first = [a for a in arguments if isinstance(a, np.ndarray)][-len(kernel.outputs)]
        if first.size:
            fault(first)
        return returned

    return call


def scaled(a):
    a[...] = a * 2 if a.dtype.kind in "iu" else a * (1 + 1e-5)


def last_is_forgotten(a):
    a.flat[-1] = 77


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", [scaled, last_is_forgotten])
def test_negative_control_a_faulty_backend_is_noticed(name, fault, monkeypatch):
    monkeypatch.setitem(KERNELS[name]._loaded, "faulty", faulty(KERNELS[name], fault))

    def check():
        for case in cases_by_day(name, "cuda"):  # as few as any backend has
            testing.assert_conforms(name, "faulty", case)

    with pytest.raises(AssertionError):
        check()


def arrays_of(case):
    return {name: value for name, value in case.arguments.items() if isinstance(value, np.ndarray)}


def sample(name):
    """A case whose arrays are not empty, and its results."""
    for seed in range(50):
        case = testing.case(name, seed, sizes=(5, 8))
        if arrays_of(case) or not KERNELS[name].inputs:
            return case, testing.results_of(name, case)
    raise AssertionError(f"{name}: no case has an array")


def call(name, case, arguments, **options):
    return testing.results_of(name, testing.Case({**case.arguments, **arguments}), **options)


def shown(name):
    """How messages call the kernel: by its public function."""
    return re.escape(name.partition(".")[0] + ".")


@pytest.mark.parametrize("name", [n for n in NAMES if KERNELS[n].inputs])
def test_a_wrong_input_is_refused_by_name(name):
    case, _ = sample(name)
    for argument, value in arrays_of(case).items():
        for wrong, want, error in (
            (value.tolist(), "must be a NumPy or CuPy array, got list", TypeError),
            (np.ma.masked_array(value), "is a masked array", TypeError),
            (value.astype(complex), "must be .*, got complex128", TypeError),
            (value[None], rf"must have shape \(.*\).*, got {re.escape(str(value[None].shape))}", ValueError),
        ):
            with pytest.raises(error, match=f"{shown(name)}.*: {argument} {want}"):
                call(name, case, {argument: wrong})


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_output_is_refused_by_name(name):
    case, results = sample(name)
    outputs = [r for r in results if isinstance(r, np.ndarray)]
    assert len(outputs) == len(KERNELS[name].outputs)
    for i, spec in enumerate(KERNELS[name].outputs):
        fixed = outputs[i].copy()
        fixed.flags.writeable = False
        for wrong, want, error in (
            (outputs[i].tolist(), "must be a NumPy or CuPy array, got list", TypeError),
            (outputs[i].astype(complex), ".*complex128", TypeError),
            (outputs[i][None], r"must have shape \(.*\).*, got \(1, ", ValueError),
            (fixed, "is read-only", ValueError),
        ):
            out = tuple(wrong if j == i else np.copy(o) for j, o in enumerate(outputs))
            with pytest.raises(error, match=f"{shown(name)}.*: {spec.name} {want}"):
                call(name, case, {}, out=out if len(out) > 1 else wrong)


@pytest.mark.parametrize("name", [n for n in NAMES if KERNELS[n].inputs])
def test_an_output_that_overlaps_an_input_is_refused(name):
    case, results = sample(name)
    outputs = [r for r in results if isinstance(r, np.ndarray)]
    tried = 0
    for argument, value in arrays_of(case).items():
        for i, output in enumerate(outputs):
            if value.dtype != output.dtype or not (value.size and output.size):  # nothing overlaps an empty array
                continue
            memory = np.zeros(max(value.size, output.size), value.dtype)
            shared, target = memory[: value.size].reshape(value.shape), memory[: output.size].reshape(output.shape)
            shared[...] = value
            out = tuple(target if j == i else np.copy(o) for j, o in enumerate(outputs))
            with pytest.raises(ValueError, match="overlaps another argument"):
                call(name, case, {argument: shared}, out=out if len(out) > 1 else target)
            tried += 1
    assert tried or all(v.dtype != o.dtype for v in arrays_of(case).values() for o in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_backend_is_refused(name):
    case, _ = sample(name)
    with pytest.raises(ValueError, match=f"no backend 'abacus'; there are {', '.join(KERNELS[name].backends)}"):
        call(name, case, {}, backend="abacus")


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_complete(name):
    kernel = KERNELS[name]
    assert kernel.purpose.endswith(".")
    assert kernel.source
    assert kernel.outputs
    assert "reference" in kernel.backends
    assert set(kernel.streams) <= set(kernels.rng.streams())
    public = inspect.signature(testing.public_function(kernel)).parameters
    assert {a.name for a in kernel.inputs} <= set(public)
    bound = {symbol for a in kernel.inputs for symbol in a.shape} | set(public)  # a size may be an argument
    bound |= {symbol for s in kernel.scalars for symbol in s.binds}
    needed = {s for a in kernel.outputs for d in a.shape for s in re.findall(r"[a-z]\w*", d)}
    assert needed <= bound, f"{name}: unbound {needed - bound}"


def cpp_signature(name):
    family, _, function = name.partition(".")
    line = getattr(getattr(_core, family), function).__doc__.splitlines()[0]
    return re.findall(r"(\w+): ", line.partition("(")[2].rpartition("->")[0])


def stub_signature(name):
    family, _, function = name.partition(".")
    tree = ast.parse(STUB(getattr(_core, family)))
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    return [a.arg for a in found.args.args]


def python_signature(name, backend):
    family, _, own = name.partition(".")
    function = getattr(import_module(f"fedkern.kernels._{backend}.{family}"), own)
    return list(inspect.signature(getattr(function, "py_func", function)).parameters)


def with_plain_outputs(kernel, arguments):
    """An output that bears an input's name is new_x in one place, and x_out in another."""
    first = len(arguments) - len(kernel.outputs) - ("n_threads" in arguments)
    return [*arguments[:first], *(re.sub("^new_|_out$", "", a) for a in arguments[first:])]


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_takes_the_arguments_in_the_order_of_the_record(name):
    kernel = KERNELS[name]
    want = with_plain_outputs(kernel, list(kernel.arguments))
    assert with_plain_outputs(kernel, cpp_signature(name)) == want, "C++"
    assert with_plain_outputs(kernel, stub_signature(name)) == want, "stub"
    for backend in {"numba", "reference"} & {*kernel.backends}:
        assert with_plain_outputs(kernel, python_signature(name, backend)) == want, backend


@pytest.mark.parametrize("name", NAMES)
def test_the_public_function_has_the_scalars_of_the_record(name):
    kernel = KERNELS[name]
    public = inspect.signature(testing.public_function(kernel)).parameters
    scalars = {s.keyword: s for s in kernel.scalars if s.domain is not MADE}
    for keyword, scalar in scalars.items():
        default = public[keyword].default
        assert (... if default is inspect.Parameter.empty else default) == scalar.default, keyword
    symbols = {d for a in (*kernel.inputs, *kernel.outputs) for d in a.shape}
    others = set(public) - {"out", "n_threads", "backend"} - {a.name for a in kernel.inputs} - set(scalars)
    others -= {"seed", "chain"} if kernels.rng.MADE_KEY in kernel.scalars else set()  # the key is that of these
    assert others <= symbols, f"neither in the record nor a size: {others - symbols}"
    assert set(kernel.arguments) <= {a.name for a in (*kernel.inputs, *kernel.scalars, *kernel.outputs)} | {"n_threads"}


WRONG = (-1, -0.5, 0, 0.0, 1.0, 1.5, np.nan, np.inf, -np.inf, 2**31, 2**32, 2**63, 2**64, "nothing")


def is_outside(domain, value):
    try:
        return not domain.has(value)
    except TypeError:
        return True


@pytest.mark.parametrize("name", [n for n in NAMES if any(s.domain.test for s in KERNELS[n].scalars)])
def test_a_scalar_outside_its_domain_is_refused_by_name(name):
    case, _ = sample(name)
    for scalar in KERNELS[name].scalars:
        wrong = [value for value in WRONG if scalar.domain.test and is_outside(scalar.domain, value)]
        assert wrong or not scalar.domain.test
        for value in wrong:
            with pytest.raises((TypeError, ValueError)) as caught:
                call(name, case, {scalar.keyword: value})
            if caught.type is ValueError:
                assert re.match(rf"{shown(name)}\w+: .*\b{scalar.keyword}\b", str(caught.value)), caught.value


def families():
    return [getattr(kernels, name) for name in kernels.__all__ if inspect.ismodule(getattr(kernels, name))]


def public_functions():
    for module in families():
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and f"{function.__module__}.".startswith(f"{module.__name__}."):
                yield pytest.param(function, id=f"{module.__name__.rpartition('.')[2]}.{name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_documentation_and_signature_agree(function):
    doc = inspect.getdoc(function)
    assert doc, "no documentation"
    parameters = list(inspect.signature(function).parameters)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", doc, re.S | re.M)
    named = re.findall(r"^(\w[\w, ]*?)(?: : .*)?$", section[1], re.M) if section else []
    documented = [name.strip() for line in named for name in line.split(",")]
    shared = {"out", "n_threads", "backend"}  # the module fedkern.kernels says what these are
    assert set(documented) <= set(parameters), f"documented, but not there: {set(documented) - set(parameters)}"
    assert set(parameters) - shared <= set(documented), f"not documented: {set(parameters) - shared - set(documented)}"
    assert [p for p in parameters if p in documented] == list(dict.fromkeys(documented)), "in another order"


def test_every_kernel_has_a_row_in_the_table():
    table = kernels.list()
    assert set(table) == set(KERNELS)
    assert all(row["reference"] == "yes" for row in table.values())
    for name, row in table.items():
        there = "partly" if KERNELS[name].lacks.get("cuda") else "yes"
        assert row["cuda"] == (there if "cuda" in KERNELS[name].backends else "host" if KERNELS[name].host else "missing")
