"""Verify-skip of HeiSD, its offline part: how near a demonstrated frame must be to act in the policy's place.

The paper compares frames by the input of the output matrix and lets the historical minimum of an acceptable
similarity, "and the corresponding distance", decide online. That input exists only after a whole forward of the
policy, so what decides online are measures that cost nothing: the similarity of keys and the distance of end-effector
positions. A monotone map, fitted here on pairs of demonstrated frames, turns them into the expected similarity of
hidden states. Algorithm 1 as printed cannot run (``minS`` starts at 0 and shall only fall); here it starts above
everything and falls while the drafts of the pairs seen so far are acceptable often enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression, nnls

from vla_sd_ros.actions.bins import N_DOF, Ids

Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]
Accepts = Callable[[Ids, Ids], Bools]

MAX_BIAS_BINS, MAX_SUM_BINS = 15, 30
# The paper takes the largest distance of an acceptable pair; a single outlier would be that.
DISTANCE_QUANTILE = 0.95
_SEQUENCES = (slice(0, 3), slice(3, 6))


@dataclass(frozen=True)
class SkipCalibration:
    """When a retrieved action may be taken without asking the policy.

    Attributes:
        min_similarity: of hidden states; a frame whose expected similarity is below is not taken.
        max_distance_m: between end-effector positions; a farther frame is not taken.
        floor: below this similarity nothing is ever taken, whatever episodes teach (T in the paper).
        key_weight: weight of the keys' similarity in the measure x of nearness.
        distance_weight_per_m: weight of the distance: x = key_weight * similarity - distance_weight_per_m * distance.
        nearness: increasing values of x; between them the two maps are linear. What is farther than any pair was
            expects nothing: -1 and 0.
        expected_similarity: of hidden states at those x, not decreasing.
        expected_acceptance: share of acceptable drafts at those x, not decreasing.
        precision: share of acceptable drafts among the pairs that the rule takes; not a number where it takes none.
        coverage: share of the pairs that it takes.
    """

    min_similarity: float
    max_distance_m: float
    floor: float
    key_weight: float
    distance_weight_per_m: float
    nearness: tuple[float, ...]
    expected_similarity: tuple[float, ...]
    expected_acceptance: tuple[float, ...]
    precision: float
    coverage: float

    def similarity(self, key_similarity: npt.ArrayLike, distance_m: npt.ArrayLike) -> Floats:
        """Expected similarity of hidden states, S_c, of any shape."""
        return np.interp(self._nearness(key_similarity, distance_m), self.nearness, self.expected_similarity, left=-1.0)

    def acceptance(self, key_similarity: npt.ArrayLike, distance_m: npt.ArrayLike) -> Floats:
        """Probability that the frame's action is acceptable, of any shape."""
        return np.interp(self._nearness(key_similarity, distance_m), self.nearness, self.expected_acceptance, left=0.0)

    def may_skip(
        self,
        key_similarity: npt.ArrayLike,
        distance_m: npt.ArrayLike,
        min_similarity: float | None = None,
        max_distance_m: float | None = None,
    ) -> Bools:
        """Whether the frame is near enough, of any shape; the bounds are those of this task's episodes so far."""
        lowest = self.min_similarity if min_similarity is None else max(min_similarity, self.floor)
        farthest = self.max_distance_m if max_distance_m is None else max_distance_m
        expected = self.similarity(key_similarity, distance_m)
        return np.asarray((expected >= lowest) & (np.asarray(distance_m) <= farthest), dtype=np.bool_)

    def _nearness(self, key_similarity: npt.ArrayLike, distance_m: npt.ArrayLike) -> Floats:
        return self.key_weight * np.asarray(key_similarity) - self.distance_weight_per_m * np.asarray(distance_m)

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold."""
        content = asdict(self)
        return content | {"precision": None if np.isnan(self.precision) else self.precision}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SkipCalibration:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or unknown.
        """
        fields = cls.__dataclass_fields__
        if set(content) != set(fields):
            wrong = sorted(set(content) ^ set(fields))
            raise ValueError(f"skip calibration: missing or unknown {wrong}; legal: {sorted(fields)}")
        lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list | tuple)}
        precision = float("nan") if content["precision"] is None else content["precision"]
        return cls(**{**content, **lists, "precision": precision})


def sequence_wise(draft: Ids, target: Ids) -> Bools:
    """HeiSD's acceptance of whole actions, bool [M]: position and rotation each within 15 bins per token and 30 in
    sum, the gripper exactly.

    Args:
        draft: int64 [M, 7].
        target: the policy's own tokens, int64 [M, 7].
    """
    bias = np.abs(draft - target)
    near = [(bias[:, part].max(1) <= MAX_BIAS_BINS) & (bias[:, part].sum(1) <= MAX_SUM_BINS) for part in _SEQUENCES]
    return near[0] & near[1] & (bias[:, N_DOF - 1] == 0)


def fit_skip_calibration(
    hidden: Floats,
    positions: Floats,
    keys: Floats,
    episodes: Ids,
    tokens: Ids,
    tasks: Ids | None = None,
    neighbours: int = 5,
    target_precision: float = 0.95,
    floor: float = 0.9,
    accepts: Accepts = sequence_wise,
) -> SkipCalibration:
    """Fits the rule on demonstrated frames; every frame is asked about those of other episodes, as at run time.

    Args:
        hidden: input of the output matrix at the position that predicts the first token, [N, W].
        positions: of the end effector, [N, 3], m.
        keys: as the index holds them, [N, W]; their similarity is ``1 - d^2 / 2``.
        episodes: int64 [N].
        tokens: the policy's own greedy tokens, int64 [N, 7].
        tasks: int64 [N]; only frames of one task are neighbours; None: all are of one task.
        neighbours: nearest frames of each frame that make a pair.
        target_precision: share of acceptable drafts that is aimed at.
        floor: lowest similarity that may be taken (T).
        accepts: whether drafts pass for the policy's own tokens.

    Raises:
        ValueError: lengths differ, values are not finite, or no frame has a neighbour in another episode.
    """
    n = len(hidden)
    for name, array in (("positions", positions), ("keys", keys), ("episodes", episodes), ("tokens", tokens)):
        if len(array) != n:
            raise ValueError(f"{name}: {len(array)} rows; legal: {n}, as hidden has")
    if not all(np.isfinite(array).all() for array in (hidden, positions, keys)):
        raise ValueError("hidden, positions and keys must be finite")
    tasks = np.zeros(n, dtype=np.int64) if tasks is None else tasks
    asked, found = _pairs(keys, episodes, tasks, neighbours)
    if len(asked) == 0:
        raise ValueError("no frame has a neighbour in another episode; legal: at least two episodes of a task")
    similarity = np.sum(_unit(hidden)[asked] * _unit(hidden)[found], axis=1)
    distance = np.linalg.norm(positions[asked] - positions[found], axis=1)
    key_similarity = 1.0 - 0.5 * np.sum((keys[asked] - keys[found]).astype(np.float32) ** 2, axis=1)
    accepted = accepts(tokens[found], tokens[asked])

    weights = _weights(key_similarity, distance, similarity)
    nearness = weights[0] * key_similarity - weights[1] * distance
    knots, expected_similarity, expected_acceptance = _monotone(nearness, similarity, accepted.astype(np.float64))
    expected = np.interp(nearness, knots, expected_similarity)
    # The rule must hold its promise by the measure that decides online, too.
    lowest = max(_lowest(similarity, accepted, target_precision), _lowest(expected, accepted, target_precision), floor)
    near = (similarity >= lowest) & accepted
    farthest = float(np.quantile(distance[near], DISTANCE_QUANTILE)) if near.any() else 0.0
    taken = (expected >= lowest) & (distance <= farthest)
    return SkipCalibration(
        min_similarity=float(min(lowest, 1.0)),
        max_distance_m=farthest,
        floor=floor,
        key_weight=float(weights[0]),
        distance_weight_per_m=float(weights[1]),
        nearness=tuple(knots.tolist()),
        expected_similarity=tuple(expected_similarity.tolist()),
        expected_acceptance=tuple(expected_acceptance.tolist()),
        precision=float(accepted[taken].mean()) if taken.any() else float("nan"),
        coverage=float(taken.mean()),
    )


def _pairs(keys: Floats, episodes: Ids, tasks: Ids, count: int) -> tuple[Ids, Ids]:
    """Frames and their nearest frames of other episodes of the task, both int64 [M]."""
    wide = np.asarray(keys, dtype=np.float32)
    squares = np.sum(wide**2, axis=1)
    asked, found = [], []
    for episode, task in sorted(set(zip(episodes.tolist(), tasks.tolist(), strict=True))):
        rows = np.flatnonzero((episodes == episode) & (tasks == task))
        others = np.flatnonzero((episodes != episode) & (tasks == task))
        k = min(count, len(others))
        if k == 0:
            continue
        nearest = np.argpartition(squares[others] - 2.0 * wide[rows] @ wide[others].T, k - 1, axis=1)[:, :k]
        asked.append(np.repeat(rows, k))
        found.append(others[nearest].ravel())
    if not asked:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(asked), np.concatenate(found)


def _weights(key_similarity: Floats, distance: Floats, similarity: Floats) -> Floats:
    """Weights [2], neither negative, of key similarity and of distance in the best linear guess of the similarity."""
    columns = np.stack([key_similarity - key_similarity.mean(), distance.mean() - distance], axis=1)
    weights, _ = nnls(columns, similarity - similarity.mean())
    return np.asarray(weights if weights.any() else (1.0, 0.0), dtype=np.float64)


def _monotone(nearness: Floats, *targets: Floats) -> tuple[Floats, ...]:
    """Not decreasing functions of nearness that fit the targets best, at few enough knots for a file."""
    knots = np.unique(np.quantile(nearness, np.linspace(0, 1, 101)))
    order = np.argsort(nearness, kind="stable")
    fitted = [np.interp(knots, nearness[order], isotonic_regression(target[order]).x) for target in targets]
    return (knots, *(np.maximum.accumulate(values) for values in fitted))


def _lowest(values: Floats, accepted: Bools, target: float) -> float:
    """Lowest value v such that at least the target share of pairs with a value from v on is accepted; above all
    values where there is none."""
    order = np.argsort(-values, kind="stable")
    precision = np.cumsum(accepted[order]) / np.arange(1, len(order) + 1)
    ends = np.append(np.diff(values[order]) < 0, True)  # equal values stand or fall together
    good = np.flatnonzero(ends & (precision >= target))
    return float(values[order][good[-1]]) if len(good) else float("inf")


def _unit(rows: Floats) -> Floats:
    wide = np.asarray(rows, dtype=np.float32)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), np.float32(1e-12))
