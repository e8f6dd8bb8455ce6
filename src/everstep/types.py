"""Types for annotations, the words that options take, and classes that extend a flow or a host."""

from everstep.codec.chain import Codec
from everstep.graph.author.channel import Channel
from everstep.graph.author.node import Gate
from everstep.graph.author.node_options import DeterminismName, EffectsName, PersistName
from everstep.graph.author.profiles import Profile, Registry
from everstep.graph.check.validate import Offers, Rule
from everstep.model.bundles import LeaveOut
from everstep.model.durability import DurabilityMode
from everstep.model.retry import RetryPreset

__all__ = [
    "Channel",
    "Codec",
    "DeterminismName",
    "DurabilityMode",
    "EffectsName",
    "Gate",
    "LeaveOut",
    "Offers",
    "PersistName",
    "Profile",
    "Registry",
    "RetryPreset",
    "Rule",
]
