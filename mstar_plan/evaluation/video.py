"""Writes the video of recorded episodes: H.264 in MP4, at the speed of the world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.foresight import Encode, look_ahead
from mstar_plan.evaluation.panel import HEIGHT, WIDTH, Captions, EpisodePanel
from mstar_plan.evaluation.records import EvaluationReport
from mstar_plan.types import ImageArray

PAUSE_S = 1.5  # that the last frame of an episode stays


def write_video(report: EvaluationReport, folder: Path, encode: Encode | None = None) -> EvaluationReport:
    """Writes `<env>-<controller>.mp4` and a poster of the same name (.jpg) of the recorded episodes into `folder`.

    Args:
        report: An evaluation with recorded episodes (`EvaluateConfig.record`).
        folder: Where to write; it is made if it is not there.
        encode: The encoder of the model that planned, to show what its predicted latents mean; without it, or where
            plans hold no latents, the predicted-against-reached pictures are left out.

    Returns:
        The report, with the video's name in it.

    Raises:
        InvalidInputError: No episode was recorded.
    """
    panels = list(_panels(report, encode))
    if not panels:
        raise InvalidInputError(f"no episode of {report.env} was recorded; set record to at least 1", field="record")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{report.env}-{report.controller}"
    fps = round(1.0 / report.episodes[0].dt_s)
    middle = panels[0].frame(len(panels[0]) // 3)
    poster = Image.fromarray(middle).resize((WIDTH // 2, HEIGHT // 2), Image.Resampling.LANCZOS)
    poster.save(folder / f"{name}.jpg", quality=85)
    write_mp4(folder / f"{name}.mp4", _frames(panels, fps), fps)
    return replace(report, video=f"{name}.mp4")


def write_mp4(path: Path, frames: Iterator[ImageArray], fps: int) -> None:
    """Writes frames of even and equal size, [H, W, 3] uint8 RGB, as H.264 that browsers play."""
    writer = None
    try:
        for frame in frames:
            if writer is None:
                size = (frame.shape[1], frame.shape[0])
                options = ["-crf", "20", "-preset", "veryfast", "-movflags", "+faststart", "-threads", "1"]
                writer = imageio_ffmpeg.write_frames(
                    str(path),
                    size,
                    fps=fps,
                    codec="libx264",
                    pix_fmt_out="yuv420p",
                    quality=None,
                    output_params=options,
                )
                writer.send(None)
            writer.send(np.ascontiguousarray(frame))
    finally:
        if writer is not None:
            writer.close()


def _panels(report: EvaluationReport, encode: Encode | None) -> Iterator[EpisodePanel]:
    for result in report.episodes:
        if result.recording is not None:
            planner = f"{report.planner}, " if report.planner else ""
            model = f"model {report.model}, " if report.model else ""
            captions = Captions(report.env.capitalize(), f"{model}{planner}{report.controller}, seed {result.seed}")
            foresight = None if encode is None else look_ahead(result.recording, encode)
            yield EpisodePanel(result, result.recording, captions, report.success_distance, foresight)


def _frames(panels: list[EpisodePanel], fps: int) -> Iterator[ImageArray]:
    for panel in panels:
        frame = None
        for index in range(len(panel)):
            frame = panel.frame(index)
            yield frame
        for _ in range(round(PAUSE_S * fps)):
            assert frame is not None, "an episode has at least one moment"
            yield frame
