"""Drafts what a Kalman filter over the last actions predicts (KERV)."""

from __future__ import annotations

import numpy as np

from vla_sd_ros.drafting.context import DraftContext
from vla_sd_ros.kinematics.kalman import ActionKalmanFilter, authors_random_walk
from vla_sd_ros.verification.draft_tree import DraftTree, chain

SOURCE = "kalman"
AUTHORS_SOURCE = "kalman_authors"


class KalmanDrafter:
    """Predicts values 0 to 5; the gripper's token is held.

    The filter is run over the history at every draft, so that nothing of a decode that failed stays in it.

    Args:
        kalman: model and noise; actions that it has taken are neither used nor changed.
    """

    def __init__(self, kalman: ActionKalmanFilter) -> None:
        self._kalman = kalman

    def draft(self, context: DraftContext) -> DraftTree | None:
        """A chain of seven tokens; None where the history is too short for the filter."""
        tokens = context.history.tokens()
        predicted = self._kalman.predict_from(context.bins.normalised_from_ids(tokens))
        if predicted is None:
            return None
        return chain(np.append(context.bins.ids_from_normalised(predicted), tokens[-1, -1]), SOURCE)


class AuthorsKalmanDrafter:
    """Predicts as the released code does: random walks on token ids, the gripper's too."""

    def draft(self, context: DraftContext) -> DraftTree | None:
        """A chain of seven tokens; None before the first action."""
        predicted = authors_random_walk(context.history.tokens(), context.bins)
        return None if predicted is None else chain(predicted, AUTHORS_SOURCE)
