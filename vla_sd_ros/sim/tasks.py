"""The LIBERO tasks that the scripted expert solves, and what it must know about each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ScriptedTask:
    """A pick-and-place task.

    Attributes:
        suite: LIBERO suite.
        task_id: Number of the task in its suite.
        grasp_object: Object to pick up.
        destination: Object, or ``site:<name>``, to put it on.
        grasp_offset_m: From the object's origin to the point between the finger tips when grasping, world axes.
        carry_clearance_m: Height above the destination (and the table) at which the object is carried.
        release_height_m: Height of the object's origin over the destination's at which it is let go.
        open_gap_m: Finger gap above which the gripper counts as open and the grasp point must be met closely.
        grasped_gap_m: Finger gap below which the grasp counts as closed.
    """

    suite: str
    task_id: int
    grasp_object: str
    destination: str
    grasp_offset_m: tuple[float, float, float] = (0.0, 0.047, 0.018)
    carry_clearance_m: float = 0.07
    release_height_m: float = -0.01
    open_gap_m: float = 0.072
    grasped_gap_m: float = 0.02


_BOWL = "akita_black_bowl_1"

_TASKS = (
    ScriptedTask("libero_goal", 8, _BOWL, "plate_1"),
    ScriptedTask("libero_goal", 1, _BOWL, "site:flat_stove_1_cook_region"),
    ScriptedTask("libero_goal", 4, _BOWL, "site:wooden_cabinet_1_top_side"),
    # Left out: bowls in the drawer (4), on the ramekin (5), on the stove (7) and on the cabinet (9), whose rim the
    # expert's level grasp does not reach.
    *(ScriptedTask("libero_spatial", i, _BOWL, "plate_1") for i in (0, 1, 2, 3, 6, 8)),
)

SCRIPTED_TASKS: dict[tuple[str, int], ScriptedTask] = {(task.suite, task.task_id): task for task in _TASKS}


def scripted_task(suite: str, task_id: int) -> ScriptedTask:
    """Return a task by suite and number.

    Raises:
        ValueError: The expert does not solve that task; the message lists those it solves.
    """
    try:
        return SCRIPTED_TASKS[suite, task_id]
    except KeyError:
        legal = ", ".join(f"{s}/{i}" for s, i in SCRIPTED_TASKS)
        raise ValueError(f"no scripted expert for {suite}/{task_id}; legal: {legal}") from None


def parse_tasks(names: Iterable[str]) -> list[ScriptedTask]:
    """Turn ``suite/task_id`` strings into tasks; ``suite/*`` stands for every scripted task of the suite."""
    tasks: list[ScriptedTask] = []
    for name in names:
        suite, _, number = name.partition("/")
        if number == "*":
            found = [task for task in SCRIPTED_TASKS.values() if task.suite == suite]
            if not found:
                legal = ", ".join(sorted({task.suite for task in SCRIPTED_TASKS.values()}))
                raise ValueError(f"no scripted task in suite {suite!r}; legal: {legal}")
            tasks.extend(found)
        elif number.isdecimal():
            tasks.append(scripted_task(suite, int(number)))
        else:
            raise ValueError(f"task {name!r} must read suite/number or suite/*")
    return tasks
