from . import kernels as kernels
from .api import add as add
from .api import check as check
from .api import drop as drop
from .api import ledger as ledger
from .api import load as load
from .api import run as run
from .front import describe as describe
from .front import fit as fit
from .results.result import Result as Result

__version__: str
__all__ = [
    "Result", "add", "check", "describe", "drop", "fit", "get_cmake_dir", "get_include", "get_pkgconfig_dir", "kernels", "ledger",
    "load", "run",
]  # fmt: skip

def get_include() -> str: ...
def get_cmake_dir() -> str: ...
def get_pkgconfig_dir() -> str: ...
