"""How probable it is that a retrieved draft will be accepted: the calibrated gate.

Logistic regression on what is known before the language model runs. HeiSD's gate looks at the arm's path alone; this
one also looks at what the demonstrations say and how much they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import rankdata

from vla_sd_ros.actions.bins import N_DOF
from vla_sd_ros.retrieval.neighbour import Neighbour

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FEATURE_NAMES = ("retrieval_score", "disagreement", "speed", "curvature", "steps_to_gripper_change")
# Farther from a change of the gripper than this, more steps make no difference.
FAR_STEPS = 40


def acceptance_features(
    neighbours: Sequence[Neighbour], speed_m_per_s: float, curvature_per_m: float
) -> npt.NDArray[np.float64]:
    """What the probability is computed from, float64 [5], in the order of ``FEATURE_NAMES``.

    Args:
        neighbours: nearest demonstrations, most similar first.
        speed_m_per_s: of the end effector; not a number where it is not known.
        curvature_per_m: of its path; not a number where it is not known.

    Raises:
        ValueError: there are no neighbours.
    """
    if not neighbours:
        raise ValueError("neighbours: 0; legal: at least 1")
    tokens = np.stack([neighbour.tokens for neighbour in neighbours])[:, : N_DOF - 1]
    disagreement = np.abs(tokens - tokens.mean(axis=0)).mean()
    return np.array(
        [
            neighbours[0].similarity,
            np.log1p(disagreement),
            speed_m_per_s,
            np.log1p(curvature_per_m),
            min(neighbours[0].steps_to_gripper_change, FAR_STEPS),
        ]
    )


@dataclass(frozen=True)
class AcceptanceModel:
    """Logistic regression on standardised features.

    Attributes:
        names: of the F features.
        mean: of each in the data it was fitted on; stands in where a feature is not a number.
        deviation: of each, above 0.
        weights: of the standardised features.
        bias: log odds at the mean.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def probability(self, features: npt.ArrayLike) -> Floats:
        """Probability that the draft is accepted, [...], of features [..., F]."""
        standard = _standardise(np.asarray(features, dtype=np.float64), np.array(self.mean), np.array(self.deviation))
        return np.asarray(expit(standard @ np.array(self.weights) + self.bias), dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> AcceptanceModel:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or unknown, or lengths differ.
        """
        fields = cls.__dataclass_fields__
        if set(content) != set(fields):
            wrong = sorted(set(content) ^ set(fields))
            raise ValueError(f"acceptance model: missing or unknown {wrong}; legal: {sorted(fields)}")
        lists = {name: tuple(content[name]) for name in fields if name != "bias"}
        if len({len(values) for values in lists.values()}) != 1:
            raise ValueError(f"acceptance model: lengths differ: { {k: len(v) for k, v in lists.items()} }")
        return cls(bias=float(content["bias"]), **lists)


def fit_acceptance_model(
    features: npt.ArrayLike, accepted: npt.ArrayLike, names: Sequence[str] = FEATURE_NAMES, penalty: float = 1e-3
) -> AcceptanceModel:
    """Fits by maximum likelihood with a small quadratic penalty.

    Args:
        features: [N, F]; not a number where one is not known.
        accepted: bool [N], whether the draft was.
        names: F of them.
        penalty: on the squared weights, against separable data.

    Raises:
        ValueError: shapes do not fit, or all drafts or none were accepted.
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(accepted, dtype=np.float64)
    if x.ndim != 2 or x.shape != (len(y), len(names)):
        raise ValueError(f"features: shape {x.shape}; legal: ({len(y)}, {len(names)})")
    if y.min(initial=1.0) == y.max(initial=0.0):
        raise ValueError("accepted: all the same; legal: at least one draft accepted and one not")
    known = np.isfinite(x)
    counts = np.maximum(known.sum(0), 1)
    mean = np.where(known, x, 0.0).sum(0) / counts
    deviation = np.sqrt((np.where(known, x - mean, 0.0) ** 2).sum(0) / counts)
    deviation = np.where(deviation > 0, deviation, 1.0)
    standard = _standardise(x, mean, deviation)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, bias = parameters[:-1], parameters[-1]
        logits = standard @ weights + bias
        error = (expit(logits) - y) / len(y)
        value = np.mean(np.logaddexp(0.0, logits) - y * logits) + penalty * weights @ weights
        return float(value), np.append(standard.T @ error + 2 * penalty * weights, error.sum())

    solved = minimize(loss, np.zeros(len(names) + 1), jac=True, method="L-BFGS-B").x
    return AcceptanceModel(
        names=tuple(names),
        mean=tuple(mean.tolist()),
        deviation=tuple(deviation.tolist()),
        weights=tuple(solved[:-1].tolist()),
        bias=float(solved[-1]),
    )


def area_under_curve(scores: npt.ArrayLike, accepted: npt.ArrayLike) -> float:
    """Area under the receiver operating characteristic: the probability that an accepted draft scores above a
    rejected one, ties counting half; 0.5 for a score that knows nothing.

    Args:
        scores: [N], finite.
        accepted: bool [N].

    Raises:
        ValueError: all drafts or none were accepted, or a score is not finite.
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(accepted, dtype=np.bool_)
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if positives == 0 or negatives == 0:
        raise ValueError("accepted: all the same; legal: at least one draft accepted and one not")
    if not np.isfinite(values).all():
        raise ValueError("scores are not finite")
    ranks = rankdata(values)[labels].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def _standardise(features: Floats, mean: Floats, deviation: Floats) -> Floats:
    return np.where(np.isfinite(features), (features - mean) / deviation, 0.0)
