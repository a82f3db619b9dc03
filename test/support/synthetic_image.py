"""An image that any numpy makes alike: its stream of random numbers is frozen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def synthetic_image(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Two ramps, a board of sharp edges, and noise; uint8 [height, width, 3]."""
    noise = np.random.RandomState(height).randint(-40, 41, (height, width, 3))
    row, column = np.mgrid[0:height, 0:width]
    board = (column // 16 + row // 16) % 2 * 200 + 20
    smooth = np.stack([column * 255 // width, row * 255 // height, board], axis=-1)
    return np.clip(smooth + noise, 0, 255).astype(np.uint8)
