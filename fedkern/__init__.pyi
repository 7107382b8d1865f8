from . import kernels as kernels
from .api import check as check
from .api import load as load
from .api import run as run
from .results.result import Result as Result

__version__: str
__all__ = ["Result", "check", "get_include", "kernels", "load", "run"]

def get_include() -> str: ...
