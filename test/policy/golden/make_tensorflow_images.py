"""Makes tensorflow_images.npz: images resized and cropped as OpenVLA's evaluation in LIBERO does it, by TensorFlow.

Run it where TensorFlow is installed; the package itself never needs it:

    pip install tensorflow-cpu && python make_tensorflow_images.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
from synthetic_image import synthetic_image  # noqa: E402

SIZE_PX, AREA, STRIDE = 224, 0.9, 5
SOURCES = ((256, 256), (480, 640), (720, 1280), (97, 131))


def resized(rgb: np.ndarray) -> Any:
    """Lanczos3 with antialiasing to the model's size, rounded to uint8."""
    levels = tf.image.resize(rgb, (SIZE_PX, SIZE_PX), method="lanczos3", antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(levels), 0, 255), tf.uint8)


def cropped(rgb: Any) -> Any:
    """The middle of the area, enlarged again, uint8."""
    side = tf.clip_by_value(tf.sqrt(AREA), 0, 1)
    offset = (1 - side) / 2
    box = tf.stack([offset, offset, offset + side, offset + side])[None]
    image = tf.image.convert_image_dtype(rgb, tf.float32)[None]
    enlarged = tf.image.crop_and_resize(image, box, [0], (SIZE_PX, SIZE_PX))[0]
    return tf.image.convert_image_dtype(tf.clip_by_value(enlarged, 0, 1), tf.uint8, saturate=True)


def main() -> None:
    """Writes a sample of each result, and the digest of the whole."""
    found: dict[str, Any] = {}
    for height, width in SOURCES:
        small = resized(synthetic_image(height, width))
        for step, image in (("resized", small.numpy()), ("cropped", cropped(small).numpy())):
            found[f"{step}_{height}x{width}"] = image[::STRIDE, ::STRIDE]
            found[f"{step}_{height}x{width}_sha256"] = hashlib.sha256(image.tobytes()).hexdigest()
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__}
    about = {"size_px": SIZE_PX, "area": AREA, "stride": STRIDE, "versions": versions}
    np.savez_compressed(HERE / "tensorflow_images.npz", about=json.dumps(about), **found)


if __name__ == "__main__":
    main()
