"""Names of the array types in signatures; no functions belong here.

The suffix of a name describes the axes, and is explained at the top of each file: `scores_BK`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
