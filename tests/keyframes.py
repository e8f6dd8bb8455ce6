"""Makes keyframes as often as a test wants them, whatever the steps before one take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everstep.runtime.drive import chain_writer


def space_keyframes(patch: pytest.MonkeyPatch, spacing: Callable[[], int]) -> None:
    """Let a checkpoint be a keyframe once so many bytes lie between it and the last one."""
    patch.setattr(chain_writer, "KEYFRAME_BYTES", 0)
    patch.setattr(chain_writer, "spacing", lambda live: spacing())
