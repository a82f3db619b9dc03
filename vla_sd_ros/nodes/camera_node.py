"""camera_node: one or two cameras in, one Observation of the model's image size out, stamped with the capture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from vla_sd_ros.msg import Observation
from vla_sd_ros.policy.image import Crop, Resize, fit_image
from vla_sd_ros.ros import qos
from vla_sd_ros.ros.arrays import as_byte_array
from vla_sd_ros.ros.diagnostics import Diagnostics
from vla_sd_ros.ros.images import (
    DEFAULT_ENCODINGS,
    SUPPORTED_ENCODINGS,
    InvalidImage,
    rgb_from_compressed,
    rgb_from_image,
)
from vla_sd_ros.ros.parameters import read_parameters
from vla_sd_ros.ros.run import run_nodes
from vla_sd_ros.ros.stamps import nanoseconds, now_ns, stamp_from
from vla_sd_ros.ros.subscriptions import subscribe
from vla_sd_ros.safety.freshness import NS_PER_S, FreshnessLimits, StampGuard, StampVerdict
from vla_sd_ros.types import Rgb


class CameraConfig(BaseModel):
    """Parameters of the camera node.

    Attributes:
        views: camera names, in the order the policy wants; the topic of each is ``<name>/image_raw``, or
            ``<name>/image_raw/compressed``, to be remapped.
        transport: raw or compressed.
        image_size_px: side of the square image that the policy takes.
        resize: filter that the policy was trained on: area, bicubic or lanczos3 (see ``fit_image``).
        crop: before the resize a centred square of the camera's image, after it the middle of the stretched image.
        crop_fraction: share of the (shorter) side that the crop keeps, as in training.
        width_px: expected width of the camera's image; 0 accepts any.
        height_px: expected height; 0 accepts any.
        encodings: accepted encodings.
        max_age_s: older images are rejected.
        max_view_skew_s: two views further apart than this are not one observation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    views: Annotated[list[str], Field(min_length=1, max_length=2)] = ["camera"]
    transport: Literal["raw", "compressed"] = "raw"
    image_size_px: Annotated[int, Field(ge=14, le=1024)]
    resize: Resize = "area"
    crop: Crop = "before"
    crop_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    width_px: Annotated[int, Field(ge=0)] = 0
    height_px: Annotated[int, Field(ge=0)] = 0
    encodings: list[str] = list(DEFAULT_ENCODINGS)
    max_age_s: Annotated[float, Field(gt=0.0)] = 0.2
    max_view_skew_s: Annotated[float, Field(gt=0.0)] = 0.03

    @model_validator(mode="after")
    def _known_encodings(self) -> CameraConfig:
        unknown = sorted(set(self.encodings) - set(SUPPORTED_ENCODINGS))
        if unknown:
            raise ValueError(f"encodings {unknown} are unknown; legal: {list(SUPPORTED_ENCODINGS)}")
        if len(set(self.views)) != len(self.views):
            raise ValueError(f"views {self.views} repeat")
        return self


class CameraNode(Node):
    """Checks, crops and resizes images; publishes ``observation`` where every view has a fresh one."""

    def __init__(self) -> None:
        super().__init__("camera_node")
        self._config = read_parameters(self, CameraConfig)
        self._diagnostics = Diagnostics(self)
        limits = FreshnessLimits(self._config.max_age_s)
        self._stamp_guards = {view: StampGuard(limits) for view in self._config.views}
        self._latest: dict[str, tuple[int, str, Rgb]] = {}
        self._publisher = self.create_publisher(Observation, "observation", qos.reliable(depth=1))
        raw = self._config.transport == "raw"
        for view in self._config.views:
            topic = f"{view}/image_raw" if raw else f"{view}/image_raw/compressed"
            message_type = Image if raw else CompressedImage
            callback = partial(self._on_image, view)
            subscribe(self, message_type, topic, callback, qos.sensor_data(depth=1), self._diagnostics)
            self._diagnostics.expect(view)

    def _on_image(self, view: str, message: Any) -> None:
        stamp_ns = nanoseconds(message.header.stamp)
        verdict = self._stamp_guards[view].judge(stamp_ns, now_ns(self))
        if verdict is StampVerdict.TIME_JUMP:
            self._latest.clear()
            for other in self._config.views:
                if other != view:
                    self._stamp_guards[other].reset()  # its next stamp is the same jump, not a second one
            self._diagnostics.fault("time_jump", f"stamps of {view} jumped back; earlier views are dropped")
        elif verdict is not StampVerdict.FRESH:
            self._diagnostics.fault("image_rejected", f"{view}: stamp is {verdict.value}")
            return
        try:
            rgb = self._rgb(message)
        except InvalidImage as error:
            self._diagnostics.fault("image_rejected", f"{view}: {error}")
            return
        config = self._config
        fitted = fit_image(rgb, config.image_size_px, config.crop_fraction, config.resize, config.crop)
        self._latest[view] = (stamp_ns, message.header.frame_id, fitted)
        self._diagnostics.heard(view)
        self._publish_if_complete()

    def _rgb(self, message: Any) -> Rgb:
        convert = rgb_from_image if self._config.transport == "raw" else rgb_from_compressed
        rgb = convert(message, self._config.encodings)
        for name, expected, found in (
            ("width_px", self._config.width_px, rgb.shape[1]),
            ("height_px", self._config.height_px, rgb.shape[0]),
        ):
            if expected and expected != found:
                raise InvalidImage(f"{name} is {found}; legal: {expected}")
        return rgb

    def _publish_if_complete(self) -> None:
        views = [self._latest[view] for view in self._config.views if view in self._latest]
        if len(views) < len(self._config.views):
            return
        stamps = [stamp_ns for stamp_ns, _, _ in views]
        if (max(stamps) - min(stamps)) / NS_PER_S > self._config.max_view_skew_s:
            return  # the older view's next image may complete the pair
        size = self._config.image_size_px
        message = Observation(view_names=list(self._config.views), height_px=size, width_px=size)
        message.header.stamp = stamp_from(min(stamps))
        message.header.frame_id = views[0][1]
        message.rgb = as_byte_array(np.stack([rgb for _, _, rgb in views]))
        self._publisher.publish(message)
        self._latest.clear()


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until a signal."""
    return run_nodes([CameraNode], args)
