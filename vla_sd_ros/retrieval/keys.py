"""Keys: what the policy's own vision towers see, and where the arm is, as one vector.

No second encoder runs: the features are those that the policy decodes from. Kept on a grid of 2 x 2 cells, they find
better neighbours than their mean over the image (HeiSD's pooling), and the position of the end effector finds better
ones still: the nearest frame of another episode has all tokens within 15 bins of the policy's own in 64 % of 8,232
frames of three Goal tasks with the mean, 73 % with the grid, 4 x 4 cells likewise, 77 % with grid and position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

GRID_CELLS = 2
POSITION_WIDTH = 3


def visual_width(block_widths: Sequence[int], cells: int = GRID_CELLS) -> int:
    """Length of a key without a position."""
    return sum(block_widths) * cells**2


def key_from_features(
    features: npt.NDArray[np.floating],
    block_widths: Sequence[int],
    position: npt.ArrayLike | None = None,
    cells: int = GRID_CELLS,
) -> npt.NDArray[np.float32]:
    """Key of one image, and of the position of the end effector where it is given.

    Each tower's block of the patch features is averaged in every cell of a coarse grid and brought to length 1, so
    that all towers weigh the same; then the whole is. The position is appended as it is: the index weighs it.

    Args:
        features: [P, Dv], patch features, row by row from the top left; Dv is the sum of ``block_widths``.
        block_widths: of the towers, in the order of the features.
        position: of the end effector, [3], m, base frame; None: the key is of the image alone.
        cells: cells along each side of the grid; 1: the mean over all patches.

    Returns:
        float32 [D]; the part of the image has length 1, or 0 where the features are 0.

    Raises:
        ValueError: where the shapes do not fit.
    """
    patches, width = features.shape
    if width != sum(block_widths):
        raise ValueError(f"features: width {width}; legal: {sum(block_widths)}, the sum of {list(block_widths)}")
    side = math.isqrt(patches)
    if side * side != patches or side % cells:
        raise ValueError(f"features: {patches} patches; legal: a square whose side {cells} cells divide")
    grid = np.asarray(features, dtype=np.float32).reshape(cells, side // cells, cells, side // cells, width)
    # Rows of a cell first: adding whole rows of patches is the fast direction.
    pooled = grid.mean(axis=1).mean(axis=2).reshape(cells * cells, width)
    ends = np.cumsum(block_widths)
    blocks = [_unit(pooled[:, end - part : end].ravel()) for end, part in zip(ends, block_widths, strict=True)]
    key = _unit(np.concatenate(blocks))
    if position is None:
        return key
    place = np.asarray(position, dtype=np.float32)
    if place.shape != (POSITION_WIDTH,):
        raise ValueError(f"position: shape {place.shape}; legal: ({POSITION_WIDTH},)")
    return np.concatenate([key, place])


def _unit(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    norm = float(np.linalg.norm(vector))
    return vector / np.float32(norm) if norm > 0.0 else vector
