"""One LIBERO task as a small, deterministic world: reset, step, render, read the arm.

Frames: positions come in LIBERO's world frame or in the robot base frame ``panda_link0``, which has the world's
axes and sits at the foot of the arm. Quaternions are x, y, z, w.

LIBERO: Liu et al., "LIBERO: Benchmarking Knowledge Transfer for Lifelong Robot Learning", 2023. The simulator below it
is robosuite's.
"""

from __future__ import annotations

import atexit
import importlib
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_sd_ros.sim.action_units import CONTROL_PERIOD_S, Float64Array
from vla_sd_ros.sim.libero_package import import_libero, quiet
from vla_sd_ros.sim.suites import MAX_STEPS

ARM_JOINT_NAMES = tuple(f"panda_joint{i}" for i in range(1, 8))
FINGER_JOINT_NAMES = ("panda_finger_joint1", "panda_finger_joint2")
CAMERA_NAMES = ("agentview", "robot0_eye_in_hand", "frontview", "birdview", "sideview", "galleryview")
SUITES = tuple(MAX_STEPS)
SITE_PREFIX = "site:"
# Objects at rest lie this deep in each other and more (soft contacts); a collision is deeper.
MAX_OVERLAP_M = 1e-3


def require_task(suite: str, task_id: int) -> Any:
    """LIBERO's benchmark of a suite that has the task.

    Raises:
        ValueError: unknown suite or task; the message lists the legal ones.
    """
    if suite not in SUITES:
        raise ValueError(f"suite = {suite!r} is unknown; legal: {', '.join(SUITES)}")
    import_libero()
    with quiet():
        benchmark = importlib.import_module("libero.libero.benchmark").get_benchmark(suite)(0)
    if not 0 <= task_id < benchmark.n_tasks:
        names = "; ".join(f"{i}: {benchmark.get_task(i).language}" for i in range(benchmark.n_tasks))
        raise ValueError(f"task_id = {task_id} is not in {suite}; legal: {names}")
    return benchmark


class LiberoWorld:
    """A LIBERO task with images drawn on demand.

    Args:
        suite: One of :data:`SUITES`.
        task_id: Number of the task in its suite.
        camera_px: Default side of the square image.
        cameras: Cameras that :meth:`render` may be asked for; names from :data:`CAMERA_NAMES`.
        fast_rendering: Without multisampling, shadows, reflections and sky box: three times faster, another picture.
            A policy must see at run time what it saw in training.
        seed: Seed of the first placement.

    Raises:
        ValueError: Unknown suite, task or camera; the message lists the legal ones.
    """

    def __init__(
        self,
        suite: str,
        task_id: int,
        camera_px: int = 224,
        cameras: Sequence[str] = ("agentview",),
        fast_rendering: bool = True,
        seed: int = 0,
    ) -> None:
        benchmark = require_task(suite, task_id)
        for camera in cameras:
            if camera not in CAMERA_NAMES:
                raise ValueError(f"camera {camera!r} is unknown; legal: {', '.join(CAMERA_NAMES)}")
        libero, envs = import_libero()
        task = benchmark.get_task(task_id)
        self.suite = suite
        self.task_id = task_id
        self.instruction: str = task.language
        self.camera_px = camera_px
        self.cameras = tuple(cameras)
        self.fast_rendering = fast_rendering
        with quiet():
            self._initial_states = benchmark.get_task_init_states(task_id)
            self._env = envs.OffScreenRenderEnv(
                bddl_file_name=str(Path(libero.get_libero_path("bddl_files")) / task.problem_folder / task.bddl_file),
                use_camera_obs=False,
                hard_reset=False,
                camera_heights=camera_px,
                camera_widths=camera_px,
                horizon=10**9,
            )
        self._sim: Any = None
        self._steps = 0
        self._initial_quaternion = np.array([0.0, 0.0, 0.0, 1.0])
        self.reset(seed=seed)
        _close_at_exit(self)

    @property
    def n_initial_states(self) -> int:
        """How many initial states LIBERO ships for this task."""
        return len(self._initial_states)

    def reset(self, initial_state: int | None = None, seed: int | None = None, settle_steps: int = 5) -> None:
        """Start an episode; the same arguments give the same episode.

        Args:
            initial_state: Index of one of LIBERO's own initial states, or None for a random placement.
            seed: Seed of the placement; None stands for ``initial_state``, or 0.
            settle_steps: Control periods of waiting with an open gripper, in which dropped objects come to rest.
        """
        if initial_state is not None and not 0 <= initial_state < self.n_initial_states:
            raise ValueError(f"initial_state = {initial_state} is not in 0..{self.n_initial_states - 1}")
        seed = seed if seed is not None else (initial_state or 0)
        with quiet():
            self._env.seed(seed)
            self._put_fixtures_back()
            np.random.seed(seed % 2**32)  # LIBERO's placement samplers draw from numpy's global generator
            self._env.reset()
            self._adopt_simulation()
            # robosuite lets the gripper go on from where the last episode left its command.
            gripper = self._env.env.robots[0].gripper
            gripper.current_action = np.zeros(gripper.dof)
            if initial_state is not None:
                self._env.set_init_state(self._initial_states[initial_state])
            wait = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
            for _ in range(settle_steps):
                self._env.step(wait)
        self._steps = 0
        self._initial_quaternion = self.end_effector_quaternion()

    def step(self, env_action: npt.ArrayLike) -> bool:
        """Advance one control period (0.05 s).

        Args:
            env_action: [7] in [-1, 1], as :func:`env_action_from_si` returns it.

        Returns:
            Whether LIBERO's own success predicate holds now.
        """
        action = np.asarray(env_action, dtype=np.float64)
        if action.shape != (7,) or not np.isfinite(action).all():
            raise ValueError(f"env_action must be 7 finite values, got {env_action!r}")
        self._env.step(action)
        self._steps += 1
        return bool(self._env.check_success())

    def render(self, camera: str = "agentview", size_px: int | None = None) -> npt.NDArray[np.uint8]:
        """Draw what a camera sees now: uint8 [size, size, 3], RGB, upright."""
        if camera not in self.cameras:
            raise ValueError(f"camera {camera!r} was not asked for; legal: {', '.join(self.cameras)}")
        side = size_px or self.camera_px
        # Another world of this process may have been drawn, or closed, since.
        self._sim._render_context_offscreen.gl_ctx.make_current()
        upside_down = self._sim.render(camera_name=camera, width=side, height=side)
        return np.ascontiguousarray(upside_down[::-1])

    def close(self) -> None:
        """Free the simulation and its rendering context."""
        if self._env is not None:
            # Freed here and not by the garbage collector: freeing deletes drawing objects by number in whichever
            # context is current then, which may be another world's.
            drawing = self._sim._render_context_offscreen
            drawing.gl_ctx.make_current()
            drawing.con.free()
            drawing.gl_ctx.free()
            self._env.close()
            self._env = None

    def __enter__(self) -> LiberoWorld:
        """Return the world itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the world."""
        self.close()

    # What the arm's own sensors would tell

    @property
    def time_s(self) -> float:
        """Simulated time since the end of the last reset."""
        return self._steps * CONTROL_PERIOD_S

    @property
    def base_position(self) -> Float64Array:
        """Position [3] of ``panda_link0`` in the world frame."""
        return np.array(self._env.env.robots[0].base_pos, dtype=np.float64)

    def end_effector_world_position(self) -> Float64Array:
        """Position [3] between the finger tips, world frame."""
        return np.array(self._sim.data.get_site_xpos("gripper0_grip_site"), dtype=np.float64)

    def end_effector_position(self) -> Float64Array:
        """Position [3] between the finger tips, frame ``panda_link0``."""
        return self.end_effector_world_position() - self.base_position

    def end_effector_quaternion(self) -> Float64Array:
        """Orientation [4] of the hand, x, y, z, w; the same in the world and the base frame."""
        w, x, y, z = self._sim.data.get_body_xquat("robot0_right_hand")
        return np.array([x, y, z, w], dtype=np.float64)

    @property
    def initial_quaternion(self) -> Float64Array:
        """Orientation [4] of the hand at the end of the last reset."""
        return self._initial_quaternion

    def gripper_opening(self) -> float:
        """Distance between the fingers, 0 to about 0.08 m."""
        return float(self.finger_positions().sum())

    def finger_positions(self) -> Float64Array:
        """Travel [2] of each finger from the closed position, 0 to about 0.04 m."""
        robot = self._env.env.robots[0]
        first, second = (self._sim.data.qpos[i] for i in robot._ref_gripper_joint_pos_indexes)
        return np.array([first, -second], dtype=np.float64)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the nine joints, arm first."""
        return ARM_JOINT_NAMES + FINGER_JOINT_NAMES

    def joint_positions(self) -> Float64Array:
        """Positions [9] in the order of :attr:`joint_names` (rad, fingers m)."""
        robot = self._env.env.robots[0]
        arm = self._sim.data.qpos[robot._ref_joint_pos_indexes]
        return np.concatenate([np.asarray(arm, dtype=np.float64), self.finger_positions()])

    def joint_velocities(self) -> Float64Array:
        """Velocities [9] in the order of :attr:`joint_names` (rad/s, fingers m/s)."""
        robot = self._env.env.robots[0]
        arm = self._sim.data.qvel[robot._ref_joint_vel_indexes]
        first, second = (self._sim.data.qvel[i] for i in robot._ref_gripper_joint_vel_indexes)
        return np.concatenate([np.asarray(arm, dtype=np.float64), [first, -second]])

    # What only a simulator can tell

    def world_position(self, name: str) -> Float64Array:
        """Position [3] in the world frame of an object, or of a site when the name starts with ``site:``."""
        if name.startswith(SITE_PREFIX):
            return np.array(self._sim.data.get_site_xpos(name.removeprefix(SITE_PREFIX)), dtype=np.float64)
        bodies = self._env.env.obj_body_id
        if name not in bodies:
            raise ValueError(f"object {name!r} is unknown; legal: {', '.join(sorted(bodies))}, or {SITE_PREFIX}<site>")
        return np.array(self._sim.data.body_xpos[bodies[name]], dtype=np.float64)

    def is_successful(self) -> bool:
        """Whether LIBERO's success predicate holds."""
        return bool(self._env.check_success())

    def displace_object(self, name: str, offset: npt.ArrayLike) -> bool:
        """Move a free object at once and leave it at rest, unless it would be inside something there.

        Args:
            name: An object that lies free.
            offset: [3], metres, world axes.

        Returns:
            Whether the object was moved.

        Raises:
            ValueError: The object is unknown or fixed; the message lists the free ones.
        """
        free = self._env.env.objects_dict
        if name not in free:
            raise ValueError(f"object {name!r} does not lie free; legal: {', '.join(sorted(free))}")
        joint, data = free[name].joints[-1], self._sim.data
        pose = np.array(data.get_joint_qpos(joint), dtype=np.float64)
        velocity = np.array(data.get_joint_qvel(joint), dtype=np.float64)
        data.set_joint_qpos(joint, np.concatenate([pose[:3] + np.asarray(offset, dtype=np.float64), pose[3:]]))
        data.set_joint_qvel(joint, np.zeros(6))
        self._sim.forward()
        if self._deepest_overlap_m(name) <= MAX_OVERLAP_M:
            return True
        data.set_joint_qpos(joint, pose)
        data.set_joint_qvel(joint, velocity)
        self._sim.forward()
        return False

    def _deepest_overlap_m(self, name: str) -> float:
        """How deep an object is inside anything else."""
        data, body_of, body = self._sim.data, self._sim.model.geom_bodyid, self._env.env.obj_body_id[name]
        depths = [
            -contact.dist
            for contact in (data.contact[i] for i in range(data.ncon))
            if body in (body_of[contact.geom1], body_of[contact.geom2])
        ]
        return max(depths, default=0.0)

    def _put_fixtures_back(self) -> None:
        """Give the fixtures (stove, cabinet, ...) their places in the XML file.

        LIBERO adds a fixture's new place to the places of objects on it, which it reads from the running simulation;
        without this, a second reset would add it twice and drop the objects beside the fixture.
        """
        if self._sim is None:
            return
        model = self._sim.model
        for fixture in self._env.env.fixtures_dict.values():
            element = self._env.env.model.root.find(f".//body[@name='{fixture.root_body}']")
            if element is None:
                continue
            number = model.body_name2id(fixture.root_body)
            model.body_pos[number] = np.array(element.get("pos", "0 0 0").split(), dtype=np.float64)
            model.body_quat[number] = np.array(element.get("quat", "1 0 0 0").split(), dtype=np.float64)

    def _adopt_simulation(self) -> None:
        """Take over the simulation that a reset may have rebuilt, and set up drawing."""
        sim = self._env.env.sim
        if sim is self._sim:
            return
        self._sim = sim
        context = sim._render_context_offscreen
        if context is None or not self.fast_rendering:
            return
        import mujoco

        model = sim.model._model
        model.vis.quality.offsamples = 0
        model.vis.quality.shadowsize = 0
        context.con.free()
        context.con = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context.con)
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION", "mjRND_SKYBOX"):
            context.scn.flags[getattr(mujoco.mjtRndFlag, flag)] = 0


_open_worlds: weakref.WeakSet[LiberoWorld] = weakref.WeakSet()


def _close_at_exit(world: LiberoWorld) -> None:
    """Free a forgotten world before the drawing library shuts down, which otherwise complains at length."""
    if not _open_worlds:
        # Registered after the import of robosuite, hence called before its own shutdown.
        atexit.register(_close_open_worlds)
    _open_worlds.add(world)


def _close_open_worlds() -> None:
    for world in list(_open_worlds):
        world.close()
