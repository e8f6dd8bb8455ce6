"""Checkpoints as files in a folder: `CheckpointManager(host).create_checkpoint("A17")`."""

from everstep.client.exports.checkpoint_sets import CheckpointManager, CheckpointMetadata

__all__ = ["CheckpointManager", "CheckpointMetadata"]
