"""The video plays: right size, length and speed, in a format that browsers know."""

import subprocess
import time

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from mstar_plan.errors import InvalidInputError
from mstar_plan.evaluation.panel import HEIGHT, WIDTH
from mstar_plan.evaluation.video import PAUSE_S, write_mp4, write_video


def _read(path, width, height):
    """Returns what ffmpeg says about a video, and its frames."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, check=True, capture_output=True)
    return done.stderr.decode(), np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def _encode(frame):
    return np.full((1, 4), frame.mean() / 255, np.float32)


def test_the_video_of_recorded_episodes(result, report, tmp_path):
    made = write_video(report(result(record=True), result(seed=1)), tmp_path / "deep" / "out", _encode)
    assert made.video == "line-grpc.mp4"
    about, frames = _read(tmp_path / "deep" / "out" / made.video, WIDTH, HEIGHT)
    for fact in ("h264", "yuv420p", f"{WIDTH}x{HEIGHT}", "10 fps"):
        assert fact in about
    assert len(frames) == 3 + PAUSE_S * 10
    assert np.abs(frames[0].astype(int) - frames[2]).max() > 100  # things move
    with Image.open(tmp_path / "deep" / "out" / "line-grpc.jpg") as poster:
        assert poster.size == (WIDTH // 2, HEIGHT // 2)


def test_forty_steps_take_less_than_five_seconds(result, report, tmp_path):
    long = result(distances=tuple(np.linspace(0.3, 0, 41)), plan_ms=(10.0,) * 40, record=True)
    start = time.process_time()
    write_video(report(long), tmp_path, _encode)
    assert time.process_time() - start < 5


def test_colours_survive(tmp_path):
    frames = [np.full((32, 48, 3), (200, 60, 20), np.uint8)] * 3
    write_mp4(tmp_path / "a.mp4", iter(frames), 10)
    assert np.abs(_read(tmp_path / "a.mp4", 48, 32)[1][1].astype(int) - frames[0]).max() < 12


def test_nothing_recorded_is_an_error(result, report, tmp_path):
    with pytest.raises(InvalidInputError, match="no episode of line was recorded"):
        write_video(report(result()), tmp_path)
