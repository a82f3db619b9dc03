"""Rules by which a verified draft is accepted, each bounded, each telling what deviation it lets through.

``strict`` keeps what the policy itself would say. The others trade exactness for length: ``token_radius`` is Spec-VLA's
(section 3.3 there), ``sequence`` HeiSD's sequence-wise rule (position, rotation and gripper as groups), ``physical``
bounds every degree of freedom in metres and radians. None of them lets the gripper's class change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vla_sd_ros.actions.bins import N_DOF, ActionBins, Ids
from vla_sd_ros.actions.statistics import ActionStatistics
from vla_sd_ros.verification.draft_tree import DraftTree

GRIPPER = N_DOF - 1
#: Degrees of freedom that are judged together: position, rotation, gripper.
GROUPS = (range(0, 3), range(3, 6), range(6, 7))
#: Normalised gripper values above this are open, the others closed.
GRIPPER_OPEN_ABOVE = 0.5


@dataclass(frozen=True)
class Verdict:
    """The accepted part of a draft.

    Attributes:
        path: accepted nodes, from the first on; may be empty.
        deviation_bins: draft minus verifier's choice of each, in bins (positive: a greater action value).
    """

    path: tuple[int, ...] = ()
    deviation_bins: tuple[int, ...] = ()


class AcceptanceRule(Protocol):
    """Judges a draft tree."""

    def judge(self, tree: DraftTree, targets: Ids, first_dof: int = 0) -> Verdict:
        """The longest acceptable path; among equally long ones that with the least total deviation.

        Args:
            tree: the draft; its depth 0 is degree of freedom ``first_dof``.
            targets: the verifier's choice at the place of every node, given its ancestors, int64 [N].
            first_dof: degree of freedom of the tree's first nodes.
        """
        ...


def gripper_is_open(tokens: npt.ArrayLike, bins: ActionBins) -> npt.NDArray[np.bool_]:
    """Class of gripper tokens, any shape."""
    return bins.normalised_from_ids(tokens) > GRIPPER_OPEN_ABOVE


class Strict:
    """Accepts only the verifier's own choices."""

    def judge(self, tree: DraftTree, targets: Ids, first_dof: int = 0) -> Verdict:
        """See :class:`AcceptanceRule`."""
        return _longest(tree, tree.tokens == targets, np.zeros(len(tree), dtype=np.int64))


class TokenRadius:
    """Accepts each token by itself, within a radius in bins (Spec-VLA, relaxed acceptance); the gripper by class.

    Args:
        radius_bins: largest deviation, at least 0.
        bins: of the policy.

    Raises:
        ValueError: on a negative radius.
    """

    def __init__(self, radius_bins: int, bins: ActionBins) -> None:
        if radius_bins < 0:
            raise ValueError(f"radius_bins: {radius_bins}; legal: at least 0")
        self._radius_bins = radius_bins
        self._bins = bins

    def judge(self, tree: DraftTree, targets: Ids, first_dof: int = 0) -> Verdict:
        """See :class:`AcceptanceRule`."""
        deviation = deviation_in_bins(tree.tokens, targets, self._bins)
        allowed = np.abs(deviation) <= self._radius_bins
        return _longest(tree, _with_gripper_class(allowed, tree, targets, first_dof, self._bins), deviation)


class Physical:
    """Accepts each token within a bound of its own in SI units; the gripper by class.

    Args:
        position_m: largest deviation of each of the three displacements.
        rotation_rad: largest deviation of each of the three rotations.
        bins: of the policy.
        statistics: what a bin is worth.

    Raises:
        ValueError: on bounds that are negative or not finite.
    """

    def __init__(self, position_m: float, rotation_rad: float, bins: ActionBins, statistics: ActionStatistics) -> None:
        for name, bound in (("position_m", position_m), ("rotation_rad", rotation_rad)):
            if not (np.isfinite(bound) and bound >= 0.0):
                raise ValueError(f"{name}: {bound}; legal: finite, at least 0")
        self._bounds = np.array([position_m] * 3 + [rotation_rad] * 3 + [0.0])
        self._bins = bins
        self._bin_si = bin_size_si(statistics)

    def judge(self, tree: DraftTree, targets: Ids, first_dof: int = 0) -> Verdict:
        """See :class:`AcceptanceRule`."""
        deviation = deviation_in_bins(tree.tokens, targets, self._bins)
        dof = first_dof + tree.depths
        allowed = np.abs(deviation) * self._bin_si[dof] <= self._bounds[dof] + 1e-12
        return _longest(tree, _with_gripper_class(allowed, tree, targets, first_dof, self._bins), deviation)


class SequenceWise:
    """Accepts position, rotation and gripper as whole groups (HeiSD, sequence-wise relaxed acceptance).

    A group is accepted where the sum of its absolute deviations and the largest of them are within bounds; the gripper
    where its class is right. Of a group that is not, only a strictly equal beginning is kept.

    Args:
        max_sum_bins: bound of the sum over a group (30 in the paper).
        max_each_bins: bound of each token (15 in the paper).
        bins: of the policy.

    Raises:
        ValueError: on negative bounds.
    """

    def __init__(self, max_sum_bins: int, max_each_bins: int, bins: ActionBins) -> None:
        for name, bound in (("max_sum_bins", max_sum_bins), ("max_each_bins", max_each_bins)):
            if bound < 0:
                raise ValueError(f"{name}: {bound}; legal: at least 0")
        self._max_sum_bins = max_sum_bins
        self._max_each_bins = max_each_bins
        self._bins = bins

    def judge(self, tree: DraftTree, targets: Ids, first_dof: int = 0) -> Verdict:
        """See :class:`AcceptanceRule`."""
        deviation = deviation_in_bins(tree.tokens, targets, self._bins)
        equal = tree.tokens == targets
        allowed = np.abs(deviation) <= self._max_each_bins
        allowed = _with_gripper_class(allowed, tree, targets, first_dof, self._bins)
        best: tuple[int, int, tuple[int, ...]] = (0, 0, ())
        for leaf in tree.leaves():
            path = self._accepted(tree.path(leaf), first_dof, deviation, allowed, equal)
            cost = int(np.abs(deviation[path]).sum()) if path else 0
            best = max(best, (len(path), -cost, tuple(path)), key=lambda entry: entry[:2])
        return Verdict(best[2], tuple(deviation[list(best[2])].tolist()) if best[2] else ())

    def _accepted(
        self,
        path: list[int],
        first_dof: int,
        deviation: Ids,
        allowed: npt.NDArray[np.bool_],
        equal: npt.NDArray[np.bool_],
    ) -> list[int]:
        kept: list[int] = []
        for group in GROUPS:
            members = [node for offset, node in enumerate(path) if first_dof + offset in group]
            if not members:
                continue
            last_dof = first_dof + len(kept) + len(members) - 1
            whole = last_dof == group[-1]  # a draft that ends inside a group is judged by what there is of it
            within = allowed[members].all() and (
                group[0] == GRIPPER or np.abs(deviation[members]).sum() <= self._max_sum_bins
            )
            if within:
                kept += members
                if not whole:
                    break
                continue
            for node in members:
                if not equal[node]:
                    break
                kept.append(node)
            break
        return kept


def deviation_in_bins(tokens: Ids, targets: Ids, bins: ActionBins) -> Ids:
    """Bin of each token minus bin of its target; positive where the action value is greater. Shapes broadcast."""
    deviation: Ids = bins.bin_of(tokens) - bins.bin_of(targets)
    return deviation


def bin_size_si(statistics: ActionStatistics) -> npt.NDArray[np.float64]:
    """What one bin is worth in the statistics' units, float64 [7]: metres, radians; 0 for the gripper."""
    size = np.where(statistics.mask, (statistics.q99 - statistics.q01) / 255.0, 0.0)
    size[GRIPPER] = 0.0
    return size


def _with_gripper_class(
    allowed: npt.NDArray[np.bool_], tree: DraftTree, targets: Ids, first_dof: int, bins: ActionBins
) -> npt.NDArray[np.bool_]:
    same_class = gripper_is_open(tree.tokens, bins) == gripper_is_open(targets, bins)
    return np.where(first_dof + tree.depths == GRIPPER, same_class, allowed)


def _longest(tree: DraftTree, allowed: npt.NDArray[np.bool_], deviation: Ids) -> Verdict:
    length = np.zeros(len(tree), dtype=np.int64)
    cost = np.zeros(len(tree), dtype=np.int64)
    best, best_key = -1, (0, 0)
    for node, parent in enumerate(tree.parents.tolist()):
        if not allowed[node] or (parent >= 0 and length[parent] == 0):
            continue
        length[node] = 1 + (length[parent] if parent >= 0 else 0)
        cost[node] = abs(int(deviation[node])) + (cost[parent] if parent >= 0 else 0)
        key = (int(length[node]), -int(cost[node]))
        if key > best_key:
            best, best_key = node, key
    if best < 0:
        return Verdict()
    path: Sequence[int] = tree.path(best)
    return Verdict(tuple(path), tuple(deviation[list(path)].tolist()))
