"""The actions of this episode, newest last: what drafts from the arm's own past are made of."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, Ids


class ActionHistory:
    """Tokens of the last actions.

    Args:
        capacity: how many are kept.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._tokens: deque[Ids] = deque(maxlen=capacity)

    def __len__(self) -> int:
        """Actions that are kept."""
        return len(self._tokens)

    def add(self, tokens: npt.ArrayLike) -> None:
        """Appends the tokens of an action, int64 [7].

        Raises:
            ValueError: on another shape or type.
        """
        ids = np.asarray(tokens)
        if ids.shape != (N_DOF,) or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(f"tokens: {ids.dtype} {ids.shape}; legal: integers ({N_DOF},)")
        self._tokens.append(ids.astype(np.int64))

    def tokens(self) -> Ids:
        """All that are kept, int64 [n, 7], oldest first."""
        return np.array(self._tokens, dtype=np.int64).reshape(-1, N_DOF)

    def last(self) -> Ids | None:
        """Tokens of the newest action, int64 [7]; None before the first."""
        return self._tokens[-1] if self._tokens else None

    def reset(self) -> None:
        """Forgets all: a new episode, another instruction, a jump in time."""
        self._tokens.clear()
