"""One demonstration, and its file: a ``.npz`` per episode under ``<folder>/<suite>/<task_id>/``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

N_POSES = 11
POSE_NAMES = (
    *(f"end_effector_{axis}" for axis in "xyz"),
    "finger_1",
    "finger_2",
    *(f"object_{axis}" for axis in "xyz"),
    *(f"destination_{axis}" for axis in "xyz"),
)
_ARRAYS = ("images", "actions", "poses", "proprio")


@dataclass(frozen=True)
class Demonstration:
    """A solved episode of T control periods.

    Attributes:
        images: uint8 [T, S, S, 3], RGB at the policy's size, before the action of the same row.
        actions: float32 [T, 7], the expert's own (noise-free) labels in SI units; gripper 1 = open.
        poses: float32 [T, 11], world frame, metres; columns are ``POSE_NAMES``.
        proprio: float32 [T, 16]: joint positions (7 rad, 2 m), end effector in ``panda_link0`` (3 m, 4 quaternion).
        suite: LIBERO suite.
        task_id: Number of the task in its suite.
        instruction: What the robot was told.
        seed: Seed of the placement and of the noise.
        noise: Level of the noise added to the executed actions (0: none).
    """

    images: npt.NDArray[np.uint8]
    actions: npt.NDArray[np.float32]
    poses: npt.NDArray[np.float32]
    proprio: npt.NDArray[np.float32]
    suite: str
    task_id: int
    instruction: str
    seed: int
    noise: float

    def __post_init__(self) -> None:
        """Check that the arrays belong together."""
        steps = len(self.actions)
        if steps == 0 or any(len(getattr(self, name)) != steps for name in _ARRAYS):
            lengths = {name: len(getattr(self, name)) for name in _ARRAYS}
            raise ValueError(f"arrays of a demonstration must have the same length above 0, got {lengths}")
        if self.actions.shape != (steps, 7) or self.poses.shape != (steps, N_POSES):
            raise ValueError(
                f"actions {self.actions.shape} and poses {self.poses.shape} must be [T,7] and [T,{N_POSES}]"
            )
        if self.images.ndim != 4 or self.images.shape[-1] != 3 or self.images.dtype != np.uint8:
            raise ValueError(f"images must be uint8 [T,S,S,3], got {self.images.dtype} {self.images.shape}")

    @property
    def end_effector_positions(self) -> npt.NDArray[np.float32]:
        """Float32 [T, 3], m, in ``panda_link0``."""
        return self.proprio[:, 9:12]

    @property
    def end_effector_orientations(self) -> npt.NDArray[np.float32]:
        """Quaternions (x, y, z, w), float32 [T, 4], in ``panda_link0``."""
        return self.proprio[:, 12:16]

    def __len__(self) -> int:
        """Return the number of control periods."""
        return len(self.actions)


def demonstration_path(folder: Path, suite: str, task_id: int, seed: int) -> Path:
    """Where the episode with this seed lies."""
    return folder / suite / str(task_id) / f"{seed}.npz"


def save_demonstration(path: Path, demonstration: Demonstration) -> None:
    """Write an episode; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial")
    with partial.open("wb") as stream:
        np.savez(
            stream,
            images=demonstration.images,
            actions=demonstration.actions,
            poses=demonstration.poses,
            proprio=demonstration.proprio,
            suite=demonstration.suite,
            task_id=demonstration.task_id,
            instruction=demonstration.instruction,
            seed=demonstration.seed,
            noise=demonstration.noise,
        )
    partial.replace(path)


def load_demonstration(path: Path) -> Demonstration:
    """Read an episode.

    Raises:
        ValueError: The file lacks an entry or its arrays do not fit together.
    """
    with np.load(path, allow_pickle=False) as data:
        missing = [key for key in Demonstration.__dataclass_fields__ if key not in data]
        if missing:
            raise ValueError(f"{path} is not a demonstration: lacks {', '.join(missing)}")
        return Demonstration(
            images=data["images"],
            actions=data["actions"],
            poses=data["poses"],
            proprio=data["proprio"],
            suite=str(data["suite"]),
            task_id=int(data["task_id"]),
            instruction=str(data["instruction"]),
            seed=int(data["seed"]),
            noise=float(data["noise"]),
        )


def find_demonstrations(folder: Path) -> list[Path]:
    """Return the episode files under a folder, sorted by suite, task and seed.

    Raises:
        FileNotFoundError: There is none.
    """
    paths = sorted(folder.glob("*/*/*.npz"), key=lambda p: (p.parts[-3], int(p.parts[-2]), int(p.stem)))
    if not paths:
        raise FileNotFoundError(f"no demonstrations under {folder}; gather some with: vla-sd train gather")
    return paths
