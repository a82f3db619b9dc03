from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from message_makers import colour_card, compressed, image, pixels_of
from node_process import NodeProcess
from probe import Probe
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image

from vla_sd_ros.msg import Observation
from vla_sd_ros.policy.image import fit_image
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.stamps import nanoseconds, stamp_from

CARD = colour_card()
SECOND_NS = 10**9


class Camera:
    """A camera node in a namespace of its own, and the two ends of it."""

    def __init__(self, probe: Probe, namespace: str, views: tuple[str, ...] = ("camera",), raw: bool = True) -> None:
        self.probe, self.namespace, self.raw = probe, namespace, raw
        self.observations: list[Any] = probe.listen(Observation, f"/{namespace}/observation")
        for view in views:
            probe.connect(*self._topic(view))

    def _topic(self, view: str) -> tuple[Any, str]:
        topic = f"/{self.namespace}/{view}/image_raw"
        return (Image, topic) if self.raw else (CompressedImage, f"{topic}/compressed")

    def warm_up(self) -> Camera:
        """Sends images until observations and diagnostics arrive: then every pair of ends has found each other."""
        good = image if self.raw else compressed
        self.probe.repeat(
            lambda: self.send(good(CARD, stamp_ns=time.time_ns())),
            until=lambda: self.observations and self.probe.reasons(self.namespace),
        )
        return self

    def send(self, message: Any, view: str = "camera") -> None:
        self.probe.connect(*self._topic(view)).publish(message)

    def observe(self, message: Any, view: str = "camera") -> Any:
        """The observation of an image that was sent."""
        stamp_ns = nanoseconds(message.header.stamp)
        self.send(message, view)
        return self.probe.wait_until(
            lambda: next((seen for seen in self.observations if nanoseconds(seen.header.stamp) == stamp_ns), None),
            what="an observation",
        )

    def refuse(self, message: Any, *reason: str) -> None:
        """Sends an image that must be refused, and then a good one, which must be the next observation."""
        before = len(self.observations)
        self.probe.forget_diagnostics()
        self.send(message)
        self.probe.wait_for_reason(*reason, node=self.namespace)
        good = image(CARD, stamp_ns=time.time_ns()) if self.raw else compressed(CARD, stamp_ns=time.time_ns())
        self.observe(good)
        assert len(self.observations) == before + 1


@pytest.fixture(scope="module")
def camera(probe: Probe) -> Iterator[Camera]:
    with NodeProcess("camera_node", arguments=("-r", "__ns:=/raw")):
        yield Camera(probe, "raw").warm_up()


@pytest.fixture(scope="module")
def simulated(probe: Probe) -> Iterator[Camera]:
    parameters = {"use_sim_time": True, "views": ["camera"]}
    with NodeProcess("camera_node", parameters, ("-r", "__ns:=/simulated")):
        yield Camera(probe, "simulated")


def test_an_image_becomes_an_observation_of_the_policys_size_with_the_stamp_of_the_capture(camera: Camera) -> None:
    stamp_ns = time.time_ns()
    seen = camera.observe(image(CARD, stamp_ns=stamp_ns, frame="agentview_optical_frame"))
    assert nanoseconds(seen.header.stamp) == stamp_ns and seen.header.frame_id == "agentview_optical_frame"
    assert list(seen.view_names) == ["camera"] and (seen.height_px, seen.width_px) == (112, 112)
    assert (pixels_of(seen)[0] == fit_image(CARD, 112, 0.875)).all()


def test_padded_rows_give_the_same_observation(camera: Camera) -> None:
    seen = camera.observe(image(CARD, stamp_ns=time.time_ns(), step=224 * 3 + 32))
    assert (pixels_of(seen)[0] == fit_image(CARD, 112, 0.875)).all()


@pytest.mark.parametrize(
    ("pixels", "encoding", "reason"),
    [
        (colour_card(224, 200), "rgb8", "width_px is 200; legal: 224"),
        (colour_card(480, 224), "rgb8", "height_px is 480; legal: 224"),
        (CARD, "bgr8", "encoding 'bgr8' is not accepted; legal: ['rgb8']"),
        (np.zeros((224, 224, 2), dtype=np.uint8), "16UC1", "encoding '16UC1' is not accepted"),
    ],
)
def test_an_image_of_a_wrong_size_or_encoding_is_refused_with_the_reason(
    camera: Camera, pixels: np.ndarray, encoding: str, reason: str
) -> None:
    camera.refuse(image(pixels, encoding, time.time_ns()), "camera", reason)


def test_short_data_and_a_zero_step_are_refused_with_the_sizes(camera: Camera) -> None:
    short, stepless = image(CARD, stamp_ns=time.time_ns()), image(CARD, stamp_ns=time.time_ns())
    short.data = short.data[:1000]
    stepless.step = 0
    camera.refuse(short, "data holds 1000 bytes")
    stepless.header.stamp = stamp_from(time.time_ns())
    camera.refuse(stepless, "step 0 cannot hold a row")


@pytest.mark.parametrize(
    ("offset_s", "reason"), [(-0.5, "older than the allowed age"), (5.0, "from the future"), (-1.6e9, "older")]
)
def test_an_image_of_another_time_is_refused(camera: Camera, offset_s: float, reason: str) -> None:
    camera.refuse(image(CARD, stamp_ns=time.time_ns() + int(offset_s * SECOND_NS)), reason)


def test_an_image_without_a_stamp_is_refused(camera: Camera) -> None:
    camera.refuse(image(CARD, stamp_ns=0), "stamp is zero")


def test_an_image_out_of_order_is_refused(camera: Camera) -> None:
    stamp_ns = time.time_ns()
    camera.observe(image(CARD, stamp_ns=stamp_ns))
    camera.refuse(image(CARD, stamp_ns=stamp_ns - 1_000_000), "not newer than the one before")


def test_a_camera_that_falls_silent_is_named(camera: Camera, probe: Probe) -> None:
    camera.observe(image(CARD, stamp_ns=time.time_ns()))
    probe.forget_diagnostics()
    probe.wait_for_reason("nothing has arrived on camera for more than", node="raw")
    camera.observe(image(CARD, stamp_ns=time.time_ns()))
    probe.forget_diagnostics()
    camera.observe(image(CARD, stamp_ns=time.time_ns()))
    probe.wait_until(lambda: probe.reasons("raw"), what="a report")
    assert "nothing has arrived" not in probe.reasons("raw")[-1]


def test_refused_images_are_counted(camera: Camera, probe: Probe) -> None:
    camera.refuse(image(CARD, "bgr8", time.time_ns()), "bgr8")
    before = int(probe.diagnostic_value("image_rejected", "raw") or 0)
    camera.refuse(image(CARD, "bgr8", time.time_ns()), "bgr8")
    probe.wait_until(lambda: int(probe.diagnostic_value("image_rejected", "raw") or 0) > before, what="a count")


def test_a_best_effort_camera_is_heard(probe: Probe, camera: Camera) -> None:
    publisher = probe.node.create_publisher(Image, "/raw/camera/image_raw", qos.sensor_data())
    probe.wait_until(lambda: publisher.get_subscription_count() > 0)
    before = len(camera.observations)
    probe.repeat(
        lambda: publisher.publish(image(CARD, stamp_ns=time.time_ns())),
        until=lambda: len(camera.observations) > before,
    )
    probe.node.destroy_publisher(publisher)


def test_nothing_is_observed_before_simulated_time_has_started(simulated: Camera, probe: Probe) -> None:
    probe.repeat(
        lambda: simulated.send(image(CARD, stamp_ns=time.time_ns())),
        until=lambda: any("the clock has not started" in reason for reason in probe.reasons("simulated")),
    )
    assert not simulated.observations


def test_a_looped_bag_starts_anew_and_is_counted(simulated: Camera, probe: Probe) -> None:
    def observe_at(time_ns: int) -> None:
        before = len(simulated.observations)
        probe.repeat(
            lambda: (probe.set_clock(time_ns), simulated.send(image(CARD, stamp_ns=time_ns))),
            until=lambda: len(simulated.observations) > before,
        )
        assert nanoseconds(simulated.observations[-1].header.stamp) == time_ns

    observe_at(100 * SECOND_NS)
    observe_at(101 * SECOND_NS)
    probe.forget_diagnostics()
    observe_at(50 * SECOND_NS)
    probe.wait_for_reason("jumped back", node="simulated")
    assert probe.diagnostic_value("time_jump", "simulated") == "1"
    observe_at(50 * SECOND_NS + 50_000_000)


def test_a_fast_clock_does_not_starve_the_images(simulated: Camera, probe: Probe) -> None:
    """/clock at 1 kHz, images at 30 Hz: at least 95 of 100 become observations."""
    clock, begin_s, ended = probe.connect(Clock, "/clock"), time.monotonic(), threading.Event()
    images = probe.connect(Image, "/simulated/camera/image_raw")
    ticks = 0

    def simulated_ns() -> int:
        return 200 * SECOND_NS + int((time.monotonic() - begin_s) * SECOND_NS)

    def run_the_clock() -> None:
        nonlocal ticks
        while not ended.is_set():
            ticks += 1
            clock.publish(Clock(clock=stamp_from(simulated_ns())))
            time.sleep(max(0.0, begin_s + ticks * 0.001 - time.monotonic()))

    thread = threading.Thread(target=run_the_clock)
    thread.start()
    try:
        probe.repeat(
            lambda: images.publish(image(CARD, stamp_ns=simulated_ns())),
            until=lambda: simulated.observations and simulated.observations[-1].header.stamp.sec >= 200,
        )
        before, sent, first_s, first_ticks = len(simulated.observations), 60, time.monotonic(), ticks
        for number in range(sent):
            images.publish(image(CARD, stamp_ns=simulated_ns()))
            probe.spin_for(max(0.001, first_s + (number + 1) / 30.0 - time.monotonic()))
        lasted_s, clock_ticks = time.monotonic() - first_s, ticks - first_ticks
        probe.spin_for(0.3)
    finally:
        ended.set()
        thread.join()
    assert clock_ticks > 500 * lasted_s
    assert len(simulated.observations) - before >= 0.95 * sent


def test_two_views_of_one_instant_make_one_observation(probe: Probe) -> None:
    parameters = {"views": ["left", "right"], "max_view_skew_s": 0.02, "width_px": 0, "height_px": 0}
    with NodeProcess("camera_node", parameters, ("-r", "__ns:=/pair")):
        pair = Camera(probe, "pair", ("left", "right"))
        right_stamps_ns: list[int] = []

        def send_both() -> None:
            stamp_ns = time.time_ns()
            right_stamps_ns.append(stamp_ns - 1_000_000)
            pair.send(image(CARD, stamp_ns=stamp_ns - 1_000_000, frame="right_optical"), "right")
            pair.send(image(255 - CARD, stamp_ns=stamp_ns, frame="left_optical"), "left")

        seen = probe.repeat(send_both, until=lambda: pair.observations and pair.observations[-1], period_s=0.1)
        assert any(nanoseconds(seen.header.stamp) == right_ns for right_ns in right_stamps_ns), "not the oldest view's"
        assert list(seen.view_names) == ["left", "right"] and seen.header.frame_id == "left_optical"
        assert (pixels_of(seen)[0] == fit_image(255 - CARD, 112, 0.875)).all()
        assert (pixels_of(seen)[1] == fit_image(CARD, 112, 0.875)).all()

        probe.spin_for(0.3)
        before, later_ns = len(pair.observations), time.time_ns()
        pair.send(image(CARD, stamp_ns=later_ns - 60_000_000), "left")
        pair.send(image(CARD, stamp_ns=later_ns), "right")
        probe.spin_for(0.3)
        assert len(pair.observations) == before, "views that lie apart are not one observation"


def test_compressed_images_are_decoded_and_a_broken_one_is_refused(probe: Probe) -> None:
    with NodeProcess("camera_node", {"transport": "compressed"}, ("-r", "__ns:=/packed")):
        camera = Camera(probe, "packed", raw=False).warm_up()
        seen = camera.observe(compressed(CARD[..., ::-1], stamp_ns=time.time_ns()))
        assert (pixels_of(seen)[0] == fit_image(CARD, 112, 0.875)).all()
        as_jpeg = camera.observe(compressed(CARD[..., ::-1], ".jpg", "rgb8; jpeg compressed bgr8", time.time_ns()))
        assert np.abs(pixels_of(as_jpeg)[0].astype(int) - pixels_of(seen)[0]).mean() < 3.0
        broken = compressed(CARD, stamp_ns=time.time_ns())
        broken.data = broken.data[:100]
        camera.refuse(broken, "does not decode")


def test_an_openvla_camera_stretches_the_whole_image_and_enlarges_its_middle(probe: Probe) -> None:
    parameters = {"resize": "lanczos3", "crop": "after", "crop_fraction": 0.9486833, "image_size_px": 224}
    with NodeProcess("camera_node", {**parameters, "width_px": 0, "height_px": 0}, ("-r", "__ns:=/openvla")):
        camera = Camera(probe, "openvla").warm_up()
        wide = colour_card(120, 160)
        seen = camera.observe(image(wide, stamp_ns=time.time_ns()))
        assert (pixels_of(seen)[0] == fit_image(wide, 224, 0.9486833, "lanczos3", "after")).all()


def test_an_illegal_parameter_ends_the_node_and_says_what_is_legal() -> None:
    with NodeProcess("camera_node", {"transport": "theora", "max_age_s": -1.0}, ("-r", "__ns:=/refused")) as process:
        assert process.wait(60.0) == 1
        for part in ("transport", "'theora'", "'raw' or 'compressed'", "max_age_s", "-1.0", "greater than 0"):
            assert part in process.log
        assert "Traceback" not in process.log
