"""Goals that were encoded before, found again by the content of their pictures.

Shapes: N latent tokens, D width.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from mstar_plan.types import FloatArray, ImageArray

MOST = 64  # a session has one goal; those of more robots than this are encoded again now and then


class GoalCache:
    """Encoded goals [N, D] of one model by the bytes of their pictures. Thread-safe.

    Args:
        most: How many are kept; the one that was not asked for longest goes first.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most, self._lock = most, threading.Lock()
        self._known: OrderedDict[bytes, FloatArray] = OrderedDict()

    def find(self, frame: ImageArray) -> FloatArray | None:
        """The latent of a picture [H_px, W_px, 3], if it was kept."""
        key = _key(frame)
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key]

    def keep(self, frame: ImageArray, latent: FloatArray) -> None:
        """Keeps the latent of a picture."""
        with self._lock:
            self._known[_key(frame)] = latent
            if len(self._known) > self._most:
                self._known.popitem(last=False)


def _key(frame: ImageArray) -> bytes:
    digest = hashlib.blake2b(repr(frame.shape).encode(), digest_size=16)
    digest.update(frame.tobytes())
    return digest.digest()
