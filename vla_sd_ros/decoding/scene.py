"""A cheap look at the image between decodes: did something move that was not moving before?

A skipped step acts without the policy. It is only as safe as the assumption that the world goes on as it was, and that
shows in the image long before the next decode: an object that is pushed changes places where nothing moved a control
period ago, while the arm itself changes places next to those that it changed before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from vla_sd_ros.types import Rgb

#: Side of the coarse image in cells: a cell is some centimetres of a table, far less than an object that is grasped.
CELLS: Final = 14
#: How much faster than a control period ago a place, or one of its eight neighbours, may change unnoticed.
ACCELERATION: Final = 1.5
LEVELS: Final = 255.0

Grid = npt.NDArray[np.float32]
_NEIGHBOURHOOD: Final = np.ones((3, 3), dtype=np.uint8)


@dataclass
class SceneChange:
    """Follows the images of an episode."""

    _coarse: Grid | None = None
    _change: Grid | None = None

    def look(self, image: Rgb) -> float:
        """Takes the next image and says how surprising it is.

        Args:
            image: uint8 [H, W, 3], of the same camera as the one before.

        Returns:
            The largest change of a cell in any colour beyond what is explained by the changes around it a control
            period ago: 0 where nothing is new, 1 where black turned white; 0 for the first two images.
        """
        coarse = cv2.resize(image, (CELLS, CELLS), interpolation=cv2.INTER_AREA).astype(np.float32)
        coarse *= 1.0 / LEVELS
        before, self._coarse = self._coarse, coarse
        if before is None:
            return 0.0
        change: Grid = np.abs(coarse - before).max(axis=2)
        explained, self._change = self._change, change
        if explained is None:
            return 0.0
        return max(0.0, float((change - ACCELERATION * cv2.dilate(explained, _NEIGHBOURHOOD)).max()))
