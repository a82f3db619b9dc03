"""A picture of where the time goes between the camera and the arm."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def plot_latency(report: dict[str, Any], path: Path) -> None:
    """Draws the stages' means on top of each other, the way in and out included, with p50 and p95 as lines.

    Args:
        report: as ``closed_loop.report_of`` makes it.
        path: the picture, PNG.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    latency = report["latency_ms"]
    stages = {name: mean_ms for name, mean_ms in latency["stage_means"].items() if name != "total"}
    decode_ms = latency["stages"]["total"]["p50"]
    transport_ms = latency["above_decode"].get("p50", max(0.0, latency["camera_to_action"]["p50"] - decode_ms))
    parts = {"ROS: image to decoder to action": transport_ms, **stages}
    figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
    left = 0.0
    for name, duration_ms in parts.items():
        axes.barh(0, duration_ms, left=left, label=f"{name} {duration_ms:.1f} ms")
        left += duration_ms
    for quantile, style in (("p50", "-"), ("p95", "--")):
        value = latency["camera_to_command"][quantile]
        axes.axvline(value, color="black", linestyle=style, label=f"camera to command {quantile} {value:.1f} ms")
    axes.set_yticks([])
    axes.set_xlabel("ms per action, means")
    axes.set_title(f"{report['policy']}, {report['decoder']}, {report['mode']}: from camera to action by stage")
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=4)
    figure.savefig(path, dpi=120)
    plt.close(figure)
