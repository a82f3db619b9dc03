"""Action bins: the 256 last ids of the vocabulary are the action tokens (OpenVLA's action tokenizer).

Bin edges are ``linspace(-1, 1, 256)``: 256 edges enclose 255 intervals, so two ids share the last centre.
An increasing id means a decreasing action value. Ids never pass through text.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

N_BINS: Final = 256
N_DOF: Final = 7

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

_EDGES: Final[Values] = np.linspace(-1.0, 1.0, N_BINS)
_CENTRES: Final[Values] = (_EDGES[:-1] + _EDGES[1:]) / 2.0


class ActionBins:
    """Maps normalised action values in [-1, 1] to token ids and back.

    Args:
        vocab_size: effective vocabulary size, padding rows excluded (32000 for OpenVLA).

    Raises:
        ValueError: where the vocabulary cannot hold the 256 action ids.
    """

    def __init__(self, vocab_size: int) -> None:
        if vocab_size < N_BINS:
            raise ValueError(f"vocab_size: {vocab_size} cannot hold {N_BINS} action ids; legal: at least {N_BINS}")
        self.vocab_size = vocab_size

    @property
    def first_id(self) -> int:
        """Lowest action id (31744 for OpenVLA): the highest action value."""
        return self.vocab_size - N_BINS

    def ids_from_normalised(self, normalised: npt.ArrayLike) -> Ids:
        """Token ids of normalised values, any shape; values outside [-1, 1] are clipped.

        Raises:
            ValueError: where a value is not finite.
        """
        values = np.asarray(normalised, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"normalised action is not finite: {values.tolist()}")
        return (self.vocab_size - np.digitize(np.clip(values, -1.0, 1.0), _EDGES)).astype(np.int64)

    def bin_of(self, ids: npt.ArrayLike) -> Ids:
        """Bin index 0..254 of each id, any shape; increases with the action value.

        Raises:
            ValueError: where an id is not an action id.
        """
        array = np.asarray(ids)
        if array.dtype.kind not in "iu":
            raise ValueError(f"token ids must be integers, not {array.dtype}")
        index = self.vocab_size - 1 - array.astype(np.int64)
        if array.size and (index.min() < 0 or index.max() >= N_BINS):
            raise ValueError(f"not action ids: {array.tolist()}; legal: {self.first_id} to {self.vocab_size - 1}")
        return np.minimum(index, N_BINS - 2)

    def normalised_from_ids(self, ids: npt.ArrayLike) -> Values:
        """Bin centres in (-1, 1) of token ids, any shape.

        Raises:
            ValueError: where an id is not an action id.
        """
        return _CENTRES[self.bin_of(ids)]
