"""Videos of episodes: H.264 in MP4 through imageio's ffmpeg."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt


class VideoRecorder:
    """Writes frames, uint8 [H, W, 3] of one size, to an MP4.

    Args:
        path: the file; its folder is made.
        frames_per_second: of the video.
    """

    def __init__(self, path: Path, frames_per_second: float) -> None:
        import imageio.v2 as imageio

        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        # macro_block_size=16 would resize frames silently; LIBERO's 224 px need none.
        # Encoding must not take the time of the episode that it records: the fastest preset.
        self._writer: Any = imageio.get_writer(
            path,
            fps=frames_per_second,
            codec="libx264",
            quality=7,
            macro_block_size=2,
            output_params=["-preset", "ultrafast"],
        )

    def add(self, frame: npt.NDArray[np.uint8]) -> None:
        """Appends a frame."""
        self._writer.append_data(frame)

    def close(self) -> None:
        """Finishes the file."""
        self._writer.close()

    def __enter__(self) -> VideoRecorder:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finishes the file."""
        self.close()
