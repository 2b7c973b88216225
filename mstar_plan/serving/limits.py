"""What this server takes at most; whatever is over a limit is refused, never clamped."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from mstar_plan.errors import ConfigError


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on one message and on the server as a whole.

    Attributes:
        max_message_bytes: Of one message, in either direction.
        max_image_pixels: Height times width of one image after decoding, and of the images of one observation together;
            checked before they are decoded.
        max_images: In one observation.
        max_tensor_rank: Dimensions of one tensor.
        max_tensor_elements: Elements of one tensor.
        max_sessions: Open at one time.
        max_session_ttl_s: Longest time to live that a client may ask for.
        session_ttl_s: Time to live, in seconds without a call, of a session whose client asks for none.
        max_concurrent_plans: Plans being made at one time; the next is told to come again.
        max_concurrent_calls: Calls of all kinds at one time. It must leave room beside the plans for health checks.
        max_concurrent_walks: Walks of the inference protocol at one time, which come on top of these calls; and as many
            of its streams may be open.
    """

    max_message_bytes: int = 16 * 2**20
    max_image_pixels: int = 4 * 2**20
    max_images: int = 16
    max_tensor_rank: int = 8
    max_tensor_elements: int = 4 * 2**20
    max_sessions: int = 256
    max_session_ttl_s: float = 3600.0
    session_ttl_s: float = 300.0
    max_concurrent_plans: int = 32
    max_concurrent_calls: int = 40
    max_concurrent_walks: int = 32

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"limits.{item.name} is {value}; it needs a positive number", field=item.name)
        if self.session_ttl_s > self.max_session_ttl_s:
            raise ConfigError(
                f"limits.session_ttl_s {self.session_ttl_s} is over max_session_ttl_s {self.max_session_ttl_s}",
                field="session_ttl_s",
            )
        if self.max_concurrent_calls <= self.max_concurrent_plans:
            raise ConfigError(
                f"limits.max_concurrent_calls {self.max_concurrent_calls} must be over max_concurrent_plans "
                f"{self.max_concurrent_plans}, so that health checks are answered while the server plans",
                field="max_concurrent_calls",
            )
