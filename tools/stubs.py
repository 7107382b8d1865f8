"""Writes what a package has that is made from it: `python tools/stubs.py FOLDER`, where FOLDER is the package.

Stubs of the compiled module, from the signatures that it carries itself; stubs of the modules of kernels, whose documentation is
made of records when they are imported, so that editors, which import nothing, show it; and each shell's completion of commands.
`setup.py` calls it for a wheel. The sources get no stubs of kernels (`--sources`): these would hide the modules from mypy.
"""

import ast
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import GenericAlias, ModuleType, UnionType
from typing import TypeVar, get_origin

import shtab

from fedkern import _core
from fedkern.cli.__main__ import parser
from fedkern.kernels import KERNELS

WRITTEN = "# Written by tools/stubs.py from the module and its kernels' records.\n"
SHELLS = ("bash", "fish", "tcsh", "zsh")
TYPES = (
    ("typing.SupportsInt | typing.SupportsIndex", "int"),
    ("typing.SupportsFloat | typing.SupportsIndex", "float"),
    ("numpy.ndarray", "np.ndarray"),
)


def public(module):
    """Modules first."""
    members = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return dict(sorted(members.items(), key=lambda item: (not isinstance(item[1], ModuleType), item[0])))


def submodules():
    return [name for name, value in public(_core).items() if isinstance(value, ModuleType)]


def stub(module):
    """The text of a module's stub."""
    lines = []
    for name, value in public(module).items():
        if isinstance(value, ModuleType):
            lines.append(f"from . import {name} as {name}")
            continue
        signature = value.__doc__.splitlines()[0]
        for theirs, ours in TYPES:
            signature = re.sub(rf"\b{re.escape(theirs)}(?!\w)", ours, signature)
        signature = re.sub(r"-> object$", "-> Any", signature)  # who calls it knows more of what comes back than the binding
        lines.append(f"def {signature}: ...")
    text = "\n".join(lines)
    imports = ["from typing import Any\n"] * ("Any" in text) + ["import numpy as np\n"] * ("np." in text)
    return (
        "\n".join([f'"""{module.__doc__ or "Signatures: fedkern.kernels says what the arguments mean."}"""', *imports, text])
        + "\n"
    )


def stubs():
    """File below the package -> text."""
    return {"_core/__init__.pyi": stub(_core)} | {f"_core/{name}.pyi": stub(getattr(_core, name)) for name in submodules()}


def of_kernels():
    """File below the package -> text, of the modules that have kernels."""
    modules = {kernel.module: import_module(kernel.module) for kernel in KERNELS.values()}
    return {f"{name.partition('.')[2].replace('.', '/')}.pyi": of_module(module) for name, module in sorted(modules.items())}


def completions():
    """File below the package -> text, of each shell."""
    return {f"cli/completion/fedkern.{shell}": shtab.complete(parser(), shell).rstrip() + "\n" for shell in SHELLS}


def write(package, sources=False):
    """Writes all files into the package's folder."""
    files = stubs() | completions()
    if not sources:
        files |= of_kernels()
    for name, text in files.items():
        path = Path(package, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def of_module(module):
    """Its public names: functions with their documentation, classes, types, and of what else there is the type."""
    lines, choices = [WRITTEN + f'"""{module.__doc__}"""', "from typing import Any, Literal"], choices_of(module)
    body = ast.parse(inspect.getsource(module)).body
    body = [inner for node in body for inner in (node.body if is_for_types(node) else [node])]
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") not in {"__future__", "_docs"}:
            lines.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            function = getattr(module, node.name)
            node = with_choices(with_arguments_of(node, functions, function), choices.get(node.name.removeprefix("bind_"), {}))
            lines.append(ast.unparse(without_body(node, function)))
        elif isinstance(node, ast.ClassDef):
            node.body = [without_body(n) if isinstance(n, ast.FunctionDef) else n for n in node.body]
            lines.append(ast.unparse(node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            lines += [of_value(name, getattr(module, name), node) for name in names if hasattr(module, name)]
    return "\n".join(filter(None, lines)) + "\n"


def is_for_types(node):
    """`if TYPE_CHECKING:`"""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def with_arguments_of(node, functions, function):
    """What binds calls, with those of the arguments of the function whose calls it binds that it takes."""
    if not hasattr(function, "__signature__"):
        return node
    taken, given = inspect.signature(function).parameters, functions[node.name.removeprefix("bind_")].args
    named = dict(zip([a.arg for a in given.kwonlyargs], zip(given.kwonlyargs, given.kw_defaults)))
    only, defaults = zip(*(named[name] for name in named if name in taken))
    assert not given.defaults
    node.args = ast.arguments([], [a for a in given.args if a.arg in taken], None, list(only), list(defaults), None, [])
    return node


def choices_of(module):
    """Function -> argument -> the words that it may be, by the records."""
    found = {}
    for kernel in (kernel for kernel in KERNELS.values() if kernel.module == module.__name__):
        own = found.setdefault(kernel.public.partition(".")[2], {"backend": {}})
        own["backend"] |= dict.fromkeys(kernel.backends)
        for scalar in kernel.scalars:
            own.setdefault(scalar.keyword, {}).update(dict.fromkeys(scalar.domain.codes or ()))
    return found


def with_choices(node, choices):
    """A function whose arguments that are one of several words have these as their type."""
    given, defaults = node.args, [None] * len(node.args.args)
    defaults[len(defaults) - len(given.defaults) :] = given.defaults
    for argument, default in zip([*given.args, *given.kwonlyargs], [*defaults, *given.kw_defaults]):
        words = dict(choices.get(argument.arg, {}))
        if not words or argument.annotation is None or ast.unparse(argument.annotation) not in {"str", "str | None"}:
            continue
        if isinstance(default, ast.Constant) and isinstance(default.value, str):
            words = {default.value: None} | words
        or_none = " | None" if "None" in ast.unparse(argument.annotation) else ""
        argument.annotation = ast.parse(f"Literal[{', '.join(map(repr, words))}]{or_none}", mode="eval").body
    return node


def without_body(node, function=None):
    """A function of which only the signature and the documentation are left: those that it has when it is imported."""
    doc = inspect.getdoc(function) if function else ast.get_docstring(node)
    node.body = [ast.Expr(ast.Constant(re.sub(r"\n(?=.)", "\n    ", doc)))] if doc else []
    node.body.append(ast.Expr(ast.Constant(...)))
    node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) in {"property", "classmethod", "cached_property"}]
    return node


def of_value(name, value, node):
    """A type as it is written, and of all else its type."""
    if name == "__all__" or isinstance(value, (type, TypeVar, GenericAlias, UnionType)) or get_origin(value) is not None:
        return ast.unparse(node)
    if name.startswith("_"):
        return ""
    kinds = {dict: "dict[str, Any]", tuple: "tuple[Any, ...]"}
    return f"{name}: {kinds.get(type(value), type(value).__name__)}"


if __name__ == "__main__":
    write(sys.argv[-1], sources="--sources" in sys.argv)
