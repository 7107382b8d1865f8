"""How tests compile the headers, and how exact their elementary functions are."""

from pathlib import Path

import fedkern

INCLUDE = Path(fedkern.get_include())
FLAGS = [
    "-std=c++20",
    "-O2",
    "-ftree-vectorize",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-I{INCLUDE}",
]

# Units in the last place, as math.hpp says.
BOUNDS = {
    "exp": 2,
    "expm1": 2,
    "log": 2,
    "log1p": 2,
    "sin": 2,
    "cos": 2,
    "sigmoid": 3,
    "softplus": 3,
    "tanh": 4,
    "normal_pdf": 4,
    "normal_cdf": 5,
}
