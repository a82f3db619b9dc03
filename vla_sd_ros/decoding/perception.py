"""What one decode sees, computed when it is asked for and once: pixels, features, prefix, nearest demonstrations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from vla_sd_ros.decoding.autoregressive import choose_view
from vla_sd_ros.decoding.stage_times import Stopwatch
from vla_sd_ros.policy.loaded import LoadedPolicy
from vla_sd_ros.policy.transfer import to_host
from vla_sd_ros.retrieval.keys import GRID_CELLS
from vla_sd_ros.retrieval.neighbour import Neighbour
from vla_sd_ros.types import KinematicState, Observation, Rgb

#: (instruction, patch features [P, Dv], end-effector position or None, k) -> neighbours, most similar first.
Search = Callable[[str, np.ndarray, "np.ndarray | None", int], Sequence[Neighbour]]


class Perception:
    """One observation on its way through the policy.

    Args:
        policy: sees.
        observation: what the robot sees and shall do.
        state: where the arm is; None where it is not known.
        view: camera whose image the policy sees; None: the only one.
        search: None: there are no demonstrations.
        neighbours: how many demonstrations are asked for.
        watch: gets the stages.
    """

    def __init__(
        self,
        policy: LoadedPolicy,
        observation: Observation,
        state: KinematicState | None,
        view: str | None,
        search: Search | None,
        neighbours: int,
        watch: Stopwatch,
    ) -> None:
        self._policy = policy
        self._observation = observation
        self.state = state
        self._view = view
        self._search = search
        self._k = neighbours
        self._watch = watch
        self.degraded = ""

    @cached_property
    def image(self) -> Rgb:
        """What the camera saw, uint8 [S, S, 3]."""
        return choose_view(self._observation, self._view)

    @cached_property
    def features(self) -> torch.Tensor:
        """Patch features [1, P, Dv]."""
        with self._watch.stage("preprocess"):
            pixels = self._policy.prepare_pixels(self.image)
        with self._watch.stage("vision"):
            return self._policy.model.patch_features(pixels)

    @cached_property
    def prefix(self) -> torch.Tensor:
        """Embeddings of image and prompt, [1, P + T, W]."""
        with self._watch.stage("preprocess"):
            prompt = self._policy.prepare_prompt(self._observation.instruction)
        features = self.features
        with self._watch.stage("prefill"):
            return self._policy.model.join_prefix(features, prompt)

    @property
    def found(self) -> Sequence[Neighbour]:
        """The nearest demonstrations, if somebody has asked for them; nothing is searched."""
        neighbours: Sequence[Neighbour] = self.__dict__.get("neighbours", ())
        return neighbours

    @cached_property
    def neighbours(self) -> Sequence[Neighbour]:
        """Nearest demonstrations, most similar first; none, with the reason in ``degraded``, where the search fails."""
        if self._search is None:
            return ()
        features = self.features
        with self._watch.stage("search"):
            array = features_for_search(features[0])
            position = None if self.state is None else self.state.position
            try:
                return self._search(self._observation.instruction, array, position, self._k)
            except (ValueError, KeyError, OSError, RuntimeError) as error:
                self.degraded = f"no demonstrations: {error}"
                return ()


def features_for_search(features: torch.Tensor) -> np.ndarray:
    """Patch features [P, Dv] on the host, float32; from a GPU as coarse as the keys are, so that the copy is small."""
    return np.asarray(to_host(coarse_features(features) if features.is_cuda else features.float()))


def coarse_features(features: torch.Tensor) -> torch.Tensor:
    """Means over the cells of the keys' grid: patch features of a coarser image, which give the same key.

    Args:
        features: [P, Dv], row by row; of no square, or of one that the grid does not divide, they stay as they are.

    Returns:
        float32 [cells ** 2, Dv].
    """
    patches, width = features.shape
    side = math.isqrt(patches)
    if side * side != patches or side % GRID_CELLS:
        return features.float()
    part = side // GRID_CELLS
    return features.float().view(GRID_CELLS, part, GRID_CELLS, part, width).mean(dim=(1, 3)).view(-1, width)
