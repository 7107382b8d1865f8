from . import kernels as kernels
from .api import check as check
from .api import ledger as ledger
from .api import load as load
from .api import run as run
from .results.result import Result as Result

__version__: str
__all__ = ["Result", "check", "get_include", "kernels", "ledger", "load", "run"]

def get_include() -> str: ...
