"""Plays closed-loop episodes in the simulator without ROS: one decode per observation, in lockstep.

World, image, arm state, decoder and action go through the same functions as in the nodes, so that the graph must reach
the same rate.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vla_sd_ros.actions.convention import ActionConvention
from vla_sd_ros.bench.arm_state import SimulatedArmState
from vla_sd_ros.bench.disturbance import Disturbance
from vla_sd_ros.bench.plan import EpisodeSetting
from vla_sd_ros.bench.played_episode import PlayedEpisode
from vla_sd_ros.bench.rendering import NS_PER_MS, ViewsOnDemand, without_drawing
from vla_sd_ros.bench.shadow import ShadowDecoder
from vla_sd_ros.bench.steps import ActionTimes, GenerateTimes, StepRecorder
from vla_sd_ros.decoding.interface import Decoder
from vla_sd_ros.policy.image import fit_image
from vla_sd_ros.sim.action_units import env_action_from_si
from vla_sd_ros.sim.tasks import scripted_task
from vla_sd_ros.sim.world import LiberoWorld
from vla_sd_ros.types import Observation, Rgb

if TYPE_CHECKING:
    from vla_sd_ros.bench.decode import GenerateBaseline

# The demo policy speaks SI in base axes; an OpenVLA checkpoint brings a convention of its own.
SI_IN_BASE_AXES = ActionConvention(rotation_representation="axis_angle", action_frame="base")
CAMERA = "camera"


class EpisodeRunner:
    """Plays episodes of one world.

    The clock of a decode runs from the image to the action: the image is drawn when the decoder looks at it, and that
    time is taken off; what else a decoder does, it does on the clock.

    Args:
        world: the task.
        image_size_px: side of the policy's image.
        setting: how episodes are played.
        convention: what the policy's values mean.
    """

    def __init__(
        self,
        world: LiberoWorld,
        image_size_px: int,
        setting: EpisodeSetting,
        convention: ActionConvention = SI_IN_BASE_AXES,
    ) -> None:
        self._world = world
        self._image_size_px = image_size_px
        self._setting = setting
        self._convention = convention
        self._arm = SimulatedArmState()

    def play(
        self,
        decoder: Decoder,
        initial_state: int,
        label: str = "",
        key: str = "",
        shadow: ShadowDecoder | None = None,
        generate: GenerateBaseline | None = None,
    ) -> PlayedEpisode:
        """Plays one of LIBERO's initial states to success or to the step limit.

        Args:
            decoder: told of the beginning and of the end.
            initial_state: index of the state.
            label: of the decoder.
            key: of the episode.
            shadow: answers each image a second time, off the clock.
            generate: answers some of the images, off the clock.
        """
        world, recorder = self._world, StepRecorder()
        world.reset(initial_state=initial_state)
        self._arm.begin()
        decoder.reset()
        disturbance = self._disturbance(initial_state)
        success = False
        for step in range(self._setting.step_limit(world.suite)):
            if disturbance is not None:
                disturbance.maybe_push(world, step)
            success = self._step(step, decoder, recorder, shadow, generate)
            if success:
                break
        decoder.end_episode(success)
        return PlayedEpisode(
            key=key,
            decoder=label,
            suite=world.suite,
            task_id=world.task_id,
            instruction=world.instruction,
            initial_state=initial_state,
            success=success,
            steps=recorder.steps(),
            push=disturbance.push if disturbance is not None else None,
        )

    def warm_up(self, decoder: Decoder, rounds: int) -> None:
        """Lets a decoder see the scene a few times, so that its first episode pays no lazy initialisation."""
        self._arm.begin()
        for _ in range(rounds):
            decoder.reset()
            state = self._arm.read(self._world)
            decoder.decode(Observation({CAMERA: self._draw()}, self._world.instruction, state.stamp_ns), state)
        decoder.reset()

    def _step(
        self,
        step: int,
        decoder: Decoder,
        recorder: StepRecorder,
        shadow: ShadowDecoder | None,
        generate: GenerateBaseline | None,
    ) -> bool:
        """One control period; returns whether the task is solved."""
        state = self._arm.read(self._world)
        views = ViewsOnDemand(CAMERA, self._draw)
        observation = Observation(views, self._world.instruction, state.stamp_ns)
        # The wall clock within the processor's, whose reading is a system call that may wait on a busy machine.
        began_cpu_ns = time.thread_time_ns()
        began_ns = time.perf_counter_ns()
        decoded = decoder.decode(observation, state)
        action_ms = (time.perf_counter_ns() - began_ns) / NS_PER_MS - views.drawing_ms
        cpu_ms = (time.thread_time_ns() - began_cpu_ns) / NS_PER_MS - views.drawing_cpu_ms
        times = without_drawing(decoded.stage_times, views.drawing_ms)
        recorder.add(
            decoded,
            ActionTimes(action_ms, cpu_ms, times),
            state,
            shadow.compare(decoded, observation, state) if shadow is not None else None,
            self._time_generate(step, generate, observation),
        )
        action = self._convention.to_base_si(decoded.values, state.orientation)
        return self._world.step(env_action_from_si(action))

    def _draw(self) -> Rgb:
        return fit_image(self._world.render(), self._image_size_px, self._setting.crop_fraction)

    def _disturbance(self, initial_state: int) -> Disturbance | None:
        if not self._setting.disturb:
            return None
        return Disturbance(scripted_task(self._world.suite, self._world.task_id), initial_state)

    def _time_generate(
        self, step: int, generate: GenerateBaseline | None, observation: Observation
    ) -> GenerateTimes | None:
        if generate is None or step % self._setting.generate_every:
            return None
        run = generate.run(observation)
        return GenerateTimes(run.total_ms, run.language_ms)
