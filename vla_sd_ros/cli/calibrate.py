"""``vla-sd calibrate``: what demonstrations say about how a policy's arm moves, written beside its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vla_sd_ros.cli.paths import demo_policy


def calibrate(
    policy: Annotated[Path | None, typer.Option(help="Checkpoint directory; the demo policy by default.")] = None,
    demonstrations: Annotated[Path, typer.Option(help="As `vla-sd train policy` gathers them.")] = Path(
        "out/demonstrations"
    ),
    out: Annotated[Path | None, typer.Option(help="File; <policy>/calibration.json by default.")] = None,
    policy_tokens: Annotated[
        bool, typer.Option(help="Run the policy on held-out episodes; else the demonstrated actions stand for its own.")
    ] = True,
    gates: Annotated[bool, typer.Option(help="Calibrate what needs the index, too: verify-skip and the gate.")] = True,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16: as the policy will run.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Calibrates the fused metric, the Kalman filters and the kinematic variability of a policy, and its gates."""
    import torch

    from vla_sd_ros.kinematics.calibration import (
        CALIBRATION_FILE,
        InvalidCalibration,
        load_calibration,
        save_calibration,
    )
    from vla_sd_ros.policy.checkpoint import load_policy
    from vla_sd_ros.policy.precision import choose_dtype
    from vla_sd_ros.retrieval.index import INDEX_FOLDER, load_index
    from vla_sd_ros.training.calibration import calibrate as make_calibration
    from vla_sd_ros.training.demonstrations import find_demonstrations
    from vla_sd_ros.training.gate_calibration import calibrate_gates

    torch.set_num_threads(threads)
    folder = policy or demo_policy()
    path = out or folder / CALIBRATION_FILE
    loaded = load_policy(folder, choose_dtype(dtype, device), device=device)
    paths = find_demonstrations(demonstrations)
    calibration = make_calibration(loaded, paths, policy_tokens)
    if gates:
        index = load_index(folder / INDEX_FOLDER, loaded.fingerprint)
        judged = calibrate_gates(loaded, index, paths)
        calibration = calibration.model_copy(
            update={"skip": judged.skip.to_json(), "acceptance": judged.acceptance.to_json()}
        )
        typer.echo(
            f"acceptance gate: area under the curve {judged.area_under_curve:.2f} on other episodes; verify-skip by "
            f"similarity: precision {judged.skip.precision:.2f} at coverage {judged.skip.coverage:.2f}"
        )
    else:
        try:
            before = load_calibration(path, loaded.fingerprint)
            calibration = calibration.model_copy(update={"skip": before.skip, "acceptance": before.acceptance})
        except (FileNotFoundError, InvalidCalibration):
            pass  # there is nothing of this checkpoint to keep
    save_calibration(path, calibration)
    for metric in calibration.metrics:
        typer.echo(f"F, {metric.form} over {metric.window:2d} positions: median {metric.threshold(0.5):.3f}")
    for drafts, reference in calibration.variability.items():
        typer.echo(f"K of {drafts} drafts: median {reference.median:.4f}, 75 % {reference.upper_quartile:.4f}")
    typer.echo(f"calibration of {calibration.source} in {path}")
